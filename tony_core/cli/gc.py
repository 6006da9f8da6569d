"""Remove what ended jobs left behind: their folders, unused content of the store, history
that is older than its retention. Nothing that a running job uses is touched."""

from __future__ import annotations

import argparse
import time
from typing import Iterator, Optional

from tony_core.cli.options import add_json, add_scheduler, scheduler_of, seconds, site_value
from tony_core.cli.output import line, note, print_json
from tony_core.client.errors import UsageError
from tony_core.files.location import is_remote
from tony_core.schedulers.port import NoSuchApplication, Scheduler, SchedulerError

NAME = "gc"
HELP = "remove what ended jobs left behind"
OLDER = "7d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its words."""
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        type=seconds,
        default=seconds(OLDER),
        help=f"only what was not used for so long: 90, 30m, 12h, 7d [{OLDER}]",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would go, and remove nothing"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="instead: read all that is staged on a cluster's file system, and say what is damaged",
    )
    add_scheduler(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Say each thing that goes."""
    scheduler = scheduler_of(args)
    if args.verify:
        return _verify(scheduler, args.json)
    removed = []
    try:
        for text in _everything(scheduler, args.older_than, args.dry_run):
            removed.append(text)
            if not args.json:
                line(("would remove " if args.dry_run else "removed ") + text)
    finally:
        scheduler.close()
    if args.json:
        print_json({"dry_run": args.dry_run, "removed": removed})
    elif not removed:
        note("nothing to remove")
    return 0


def _verify(scheduler: Scheduler, as_json: bool) -> int:
    from tony_core.bundle.remote import RemoteStore
    from tony_core.job.spec import Job

    try:
        root = scheduler.staging_root(Job("gc", ()))
        if not is_remote(root):
            raise UsageError(
                f"what the scheduler {scheduler.name} stages stands on this machine's own disk:"
                " there is nothing to verify"
            )
        damaged = RemoteStore(root).verify_all()
    finally:
        scheduler.close()
    if as_json:
        print_json({"root": root, "damaged": damaged})
    else:
        for text in damaged:
            line(text)
        note(f"{len(damaged)} damaged below {root}" if damaged else f"all is whole below {root}")
    return 1 if damaged else 0


def _everything(scheduler: Scheduler, older_s: float, dry_run: bool) -> Iterator[str]:
    from tony_core.bundle import gc
    from tony_core.job.spec import Job

    yield from scheduler.collect_garbage(older_s, dry_run)
    root = scheduler.staging_root(Job("gc", ()))
    # A cluster that cannot be asked may be running it; this machine's files tell for themselves.
    unsure = False if is_remote(root) else None
    yield from gc(root, older_s, dry_run, ended=lambda app_id: _ended(scheduler, app_id, unsure))
    yield from _history(scheduler, dry_run)


def _ended(scheduler: Scheduler, app_id: str, unsure: Optional[bool]) -> Optional[bool]:
    try:
        return scheduler.status(app_id).state.ended
    except NoSuchApplication:
        return None
    except SchedulerError:
        return unsure


def _history(scheduler: Scheduler, dry_run: bool) -> Iterator[str]:
    from tony_core.client.past import complete
    from tony_core.history import reader
    from tony_core.job.spec import History

    root = site_value("tony.history.location") or scheduler.history_root(None)
    if not root:
        return
    kept = site_value("tony.history.retention-sec")
    retention_s = seconds(kept) if kept else History().retention_s
    if not dry_run:
        complete(scheduler, root)
    for app_id in reader.expired(root, retention_s, time.time()):
        if not dry_run:
            reader.remove(root, app_id)
        yield f"history of {app_id}"
