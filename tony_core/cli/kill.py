"""End jobs, with everything that belongs to them. A job that has ended stays as it is."""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import contextmanager
from typing import Iterator, List

from tony_core.cli.options import (
    add_choice,
    add_json,
    add_scheduler,
    chooses,
    chosen,
    elsewhere,
    hinting,
    scheduler_of,
)
from tony_core.cli.output import line, note, print_error, print_json, safe
from tony_core.client.errors import UsageError
from tony_core.client.kill import kill
from tony_core.schedulers.port import AppStatus, Scheduler, SchedulerError

NOTE_S = 2.0  # without an answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "apps",
        nargs="*",
        metavar="ID",
        help="ids, or enough of them; without: the running job, if there is only one",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="every job of yours that has not ended, or those of them chosen below",
    )
    add_choice(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before ending all")
    parser.add_argument("--reason", default="", metavar="TEXT", help="shown to the job's users")
    add_scheduler(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Return 0 when all of them have ended, else 3."""
    scheduler = scheduler_of(args, args.apps[0] if args.apps else None)
    rows: List[dict[str, object]] = []
    code = 0
    try:
        for app_id in _chosen_ids(args, scheduler):
            try:
                with _note_when_slow(app_id):
                    done = kill(scheduler, app_id, args.reason)
            except SchedulerError as error:
                note(str(error) if app_id in str(error) else f"{app_id}: {error}")
                rows.append({"app_id": app_id, "state": None, "was_over": False})
                code = 3
                continue
            state = done.status.state.value
            rows.append({"app_id": app_id, "state": state, "was_over": done.was_over})
            if not done.ended:
                code = 3
                note(f"{app_id} has not ended yet; to look again: tony status {app_id}")
            elif not args.json:
                line(f"{app_id} {'had ended already' if done.was_over else 'has ended'}: {state}")
    finally:
        scheduler.close()
    if args.json:
        print_json({"killed": rows})
    return code


@contextmanager
def _note_when_slow(app_id: str) -> Iterator[None]:
    """Print a line when a kill takes long: programs and a lost master have their grace."""
    text = (
        f"waiting for {app_id} to end: its programs have tony.task.kill-grace to exit, then"
        " they are killed, and so is a master that does not answer"
    )
    timer = threading.Timer(NOTE_S, note, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _chosen_ids(args: argparse.Namespace, scheduler: Scheduler) -> List[str]:
    from tony_core.client.lookup import only, only_own, resolve

    several = args.all or chooses(args)
    if several and args.apps:
        raise UsageError("expected ids or a choice (--all, --tag...), not both")
    if several:
        found = [status for status in chosen(scheduler.list(), args) if _runs(status)]
        if not args.user:
            all_users, found = found, only_own(scheduler, found)
            _others(len(all_users) - len(found))
        if found and not args.yes:
            _confirm(found)
        if not found:
            note("no such job is running" if chooses(args) else "no job is running")
            elsewhere(args, scheduler)
        return [status.app_id for status in found]
    if not args.apps:
        with hinting(args, scheduler):
            found_one = only(scheduler, _runs, "running job", "kill")
        note(found_one.how)
        return [found_one.app_id]
    with hinting(args, scheduler):
        return list(dict.fromkeys(resolve(scheduler, text).app_id for text in args.apps))


def _others(count: int) -> None:
    if count:
        whose = "another user's" if count == 1 else "other users'"
        note(f"{count} of {whose} not killed; to include them use --user NAME, or --user '*'")


def _runs(status: AppStatus) -> bool:
    return not status.state.ended


def _confirm(found: List[AppStatus]) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{len(found)} jobs would be ended; to confirm, add --yes")
    for status in found:
        note(f"{status.app_id} {safe(status.name)} ({safe(status.user)})")
    print_error(f"end these {len(found)} jobs? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("no job was ended")
