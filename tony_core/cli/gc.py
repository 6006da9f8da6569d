"""Remove what ended jobs left behind: their folders, unused content of the store, history
that is older than its retention. Nothing that a running job uses is touched."""

from __future__ import annotations

import argparse
import math
import time
from typing import TYPE_CHECKING, Dict, Iterator, List, Optional, Tuple

from tony_core.cli.options import (
    add_json,
    add_scheduler,
    elsewhere,
    scheduler_of,
    seconds,
    site_value,
)
from tony_core.cli.output import line, note, print_json
from tony_core.client.errors import UsageError
from tony_core.files.location import is_remote
from tony_core.history import reader
from tony_core.job.spec import History, Job, Yarn
from tony_core.job.units import parse_duration_s, parse_memory_mb
from tony_core.schedulers.port import NoSuchApplication, Scheduler, SchedulerError

if TYPE_CHECKING:
    from tony_core.bundle.remote.store import RemoteStore

OLDER = "7d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        type=seconds,
        default=seconds(OLDER),
        help=f"only what was not used for so long: 90, 30m, 12h, 7d [{OLDER}]",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be removed, and remove nothing"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="instead: read all that is staged on a cluster's file system, print what is damaged",
    )
    parser.add_argument(
        "--remove",
        action="store_true",
        help="with --verify: remove what is damaged, unless a running job uses it",
    )
    parser.add_argument(
        "--staging-dir",
        metavar="URL",
        help="where jobs on the cluster were staged, if they set tony.yarn.staging-dir",
    )
    add_scheduler(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.remove and not args.verify:
        raise UsageError("--remove needs --verify: it removes what that finds damaged")
    if args.remove and args.dry_run:
        raise UsageError(
            "--dry-run cannot be used with --remove; --verify alone prints what is damaged"
        )
    scheduler = scheduler_of(args)
    if args.verify:
        return _verify(scheduler, args)
    removed = []
    try:
        root = _root(scheduler, args.staging_dir)
        for text in _everything(scheduler, root, args.older_than, args.dry_run):
            removed.append(text)
            if not args.json:
                line(("would remove " if args.dry_run else "removed ") + text)
    finally:
        scheduler.close()
    if args.json:
        print_json({"dry_run": args.dry_run, "removed": removed})
    elif not removed:
        note("nothing to remove")
        elsewhere(args, scheduler)
    return 0


def _root(scheduler: Scheduler, staging_dir: Optional[str]) -> str:
    """The staging root that the options name."""
    root = scheduler.staging_root(Job("gc", (), yarn=Yarn(staging_dir=staging_dir)))
    if staging_dir and not (is_remote(root) and root.endswith(staging_dir.rstrip("/"))):
        raise UsageError(
            f"the scheduler {scheduler.name} has no --staging-dir; choose another with --scheduler"
        )
    return root


def _verify(scheduler: Scheduler, args: argparse.Namespace) -> int:
    """Print, or remove, what is damaged; 1 when something of it is left."""
    from tony_core.bundle.remote.store import RemoteStore

    removed: List[str] = []
    try:
        root = _root(scheduler, args.staging_dir)
        if not is_remote(root):
            raise UsageError(
                f"nothing to verify: the scheduler {scheduler.name} stages on this machine's own"
                " disk"
            )
        store = RemoteStore(root)
        damaged = {digest: str(error) for digest, error in store.verify_all().items()}
        if args.remove:
            damaged, removed = _remove(scheduler, store, damaged)
    finally:
        scheduler.close()
    if args.json:
        more = {"removed": removed} if args.remove else {}
        print_json({"root": root, "damaged": list(damaged.values()), **more})
    else:
        for text in removed:
            line(f"removed {text}")
        for text in damaged.values():
            line(f"left {text}" if args.remove else text)
        note(_summary(root, len(damaged), len(removed), args.remove))
    return 1 if damaged else 0


def _remove(
    scheduler: Scheduler, store: RemoteStore, damaged: Dict[str, str]
) -> Tuple[Dict[str, str], List[str]]:
    """Remove damaged objects; return what is left, with its users, and what was removed."""
    from tony_core.bundle.remote.garbage import remove_damaged

    kept = remove_damaged(store, damaged, lambda app_id: _ended(scheduler, app_id, False))
    left = {
        digest: f"{damaged[digest]}; {' and '.join(users)} use{'s' if len(users) == 1 else ''} it"
        for digest, users in kept.items()
    }
    return left, [text for digest, text in damaged.items() if digest not in kept]


def _summary(root: str, damaged: int, removed: int, requested: bool) -> str:
    if damaged and requested:
        return f"{damaged} damaged left below {root}; end the jobs that use it, and run this again"
    if damaged:
        return f"{damaged} damaged below {root}; tony gc --verify --remove removes what no job uses"
    if removed:
        return f"the rest is whole below {root}; a submit sends what it needs again"
    return f"all is whole below {root}"


def _everything(scheduler: Scheduler, root: str, older_s: float, dry_run: bool) -> Iterator[str]:
    from tony_core.bundle.local.garbage import collect

    yield from scheduler.cleaner.collect_garbage(older_s, dry_run)
    # A cluster that cannot be asked may be running it; this machine's files show whether it runs.
    unsure = False if is_remote(root) else None
    yield from collect(root, older_s, dry_run, lambda app_id: _ended(scheduler, app_id, unsure))
    yield from _history(scheduler, dry_run)


def _ended(scheduler: Scheduler, app_id: str, unsure: Optional[bool]) -> Optional[bool]:
    try:
        return scheduler.status(app_id).state.ended
    except NoSuchApplication:
        return None
    except SchedulerError:
        return unsure


def _history(scheduler: Scheduler, dry_run: bool) -> Iterator[str]:
    from tony_core.client.finalize import finalize_all

    root = site_value("tony.history.location") or scheduler.history_root(None)
    if not root:
        return
    retention_s, retention_bytes = _retention()
    try:
        if not dry_run:
            finalize_all(scheduler, root)
        found = reader.expired(root, retention_s, time.time(), note, retention_bytes)
    except PermissionError:
        # A portal's: users write into it, and only its group lists it (history/access.py).
        note(f"{root} may not be listed by this user: its owner removes what is old there")
        return
    for app_id in found:
        try:
            if not dry_run:
                reader.remove(root, app_id)
        except OSError as error:  # of one job: the others are no worse for it
            note(f"the history of {app_id} is kept: {error.strerror or error} ({root})")
            continue
        yield f"history of {app_id}"


def _retention() -> Tuple[float, Optional[int]]:
    """Seconds and bytes that the site keeps of history."""
    age, size = (site_value(f"tony.history.retention-{kind}") for kind in ("sec", "size"))
    retention_s = History().retention_s
    if age:
        kept_s = parse_duration_s(age, "s")
        retention_s = math.inf if kept_s is None else kept_s
    return retention_s, parse_memory_mb(size) << 20 if size else None
