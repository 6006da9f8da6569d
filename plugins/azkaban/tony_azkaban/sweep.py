"""Ends applications that Azkaban's jobs left: those whose execution, or attempt, is over.

A job that is cancelled ends its application, and the lease ends one whose client was killed. An
administrator may want to end the rest: applications without a lease, and those of a server that was
stopped (its jobs go on without it). The sweep finds them by their tags. It asks the server which
executions are over, or takes that from the command line.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Dict, List, Optional, Tuple

from tony_azkaban.execution import EXECUTION, JOB, SERVER, tag_value
from tony_azkaban.server import ExecutionState, Server, host_in
from tony_core.cli.options import scheduler_of
from tony_core.cli.output import line, note, print_json, safe
from tony_core.client.errors import UsageError
from tony_core.client.kill import kill
from tony_core.schedulers.port import AppStatus, Scheduler, SchedulerError

PASSWORD = "AZKABAN_PASSWORD"  # noqa: S105 - the name of the variable
LOGIN = "azkaban"
ALL = "all"
REASON = "swept: its execution in Azkaban is over"


def run(args: argparse.Namespace) -> int:
    """The exit code: 0 when all applications that were to end have ended."""
    if sum(bool(each) for each in (args.server_url, args.ended, args.running)) != 1:
        raise UsageError(
            "expected one of --server-url, --ended and --running: the server to ask, or the"
            " executions that are over, or those that still run"
        )
    scheduler = scheduler_of(args)
    try:
        found = _of_server(args, [each for each in scheduler.list() if not each.state.ended])
        over = _over(args, found)
        rows = [_sweep(scheduler, status, args) for status in over]
    finally:
        scheduler.close()
    if args.json:
        print_json({"dry_run": args.dry_run, "applications": rows})
    elif rows and args.dry_run:
        note(
            "one that another execution took over (tony_azkaban.attach) has the tags of the one"
            " that submitted it, and would end too"
        )
    elif not rows:
        note("nothing to end" if found else "no application of this server runs")
    return 3 if any(row["problem"] for row in rows) else 0


def _of_server(args: argparse.Namespace, running: List[AppStatus]) -> List[AppStatus]:
    """The running applications of one server's executions."""
    by_server: Dict[str, List[AppStatus]] = {}
    for status in running:
        server = tag_value(status.tags, SERVER)
        if server is not None and tag_value(status.tags, EXECUTION) is not None:
            by_server.setdefault(server.lower(), []).append(status)
    name: Optional[str] = args.server_name
    if name is None and args.server_url:
        name = host_in(args.server_url)
    if name is None:
        if len(by_server) > 1:
            raise UsageError(
                f"applications of several servers run here ({safe(', '.join(sorted(by_server)))}):"
                " choose one with --server-name"
            )
        return [status for each in by_server.values() for status in each]
    others = sorted(set(by_server) - {name.lower()})
    if others:
        note(
            f"skipped the applications of other servers than {name}:"
            f" {safe(', '.join(others))} (--server-name)"
        )
    return by_server.get(name.lower(), [])


def _over(args: argparse.Namespace, found: List[AppStatus]) -> List[AppStatus]:
    if args.server_url:
        return _by_server(args, found) if found else []
    if args.running:
        kept = _numbers(args.running)
        return [status for status in found if tag_value(status.tags, EXECUTION) not in kept]
    if args.ended == ALL:
        return found
    named = _numbers(args.ended)
    return [status for status in found if tag_value(status.tags, EXECUTION) in named]


def _numbers(text: str) -> Tuple[str, ...]:
    numbers = tuple(item.strip() for item in text.split(",") if item.strip())
    wrong = [number for number in numbers if not number.isdecimal()]
    if wrong or not numbers:
        raise UsageError(f"{text!r}: expected the numbers of executions, separated by commas")
    return numbers


def _by_server(args: argparse.Namespace, found: List[AppStatus]) -> List[AppStatus]:
    server = Server(args.server_url)
    server.login(args.login or LOGIN, _password(args))
    states: Dict[str, Optional[ExecutionState]] = {}
    over = []
    for status in found:
        execid = tag_value(status.tags, EXECUTION) or ""
        if execid not in states:
            states[execid] = server.execution(execid)
        execution = states[execid]
        if execution is None:
            note(
                safe(
                    f"{status.app_id}: the server knows no execution {execid}; if that is right,"
                    f" tony azkaban sweep --ended {execid} ends it"
                )
            )
            continue
        job = next((tag for tag in status.tags if tag.lower().startswith(f"{JOB}:")), "")
        if execution.has_left(job):
            over.append(status)
    return over


def _password(args: argparse.Namespace) -> str:
    if args.password_file:
        try:
            with open(args.password_file, encoding="utf-8") as file:
                return file.readline().rstrip("\r\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"--password-file {args.password_file}: {why}") from None
    named = os.environ.get(PASSWORD)
    if named is not None:
        return named
    if not sys.stdin.isatty():
        raise UsageError(f"the server needs a password: --password-file, or ${PASSWORD}")
    import getpass

    return getpass.getpass(f"password of {args.login or LOGIN}: ")


def _sweep(
    scheduler: Scheduler, status: AppStatus, args: argparse.Namespace
) -> Dict[str, Optional[str]]:
    execid = tag_value(status.tags, EXECUTION)
    job = tag_value(status.tags, JOB)
    problem = None
    if not args.dry_run:
        try:
            if not kill(scheduler, status.app_id, REASON).ended:
                problem = "has not ended yet"
        except SchedulerError as error:
            problem = str(error)
    if not args.json:
        verb = "would end" if args.dry_run else "ended"
        text = f"{status.app_id} ({status.name}; execution {execid}, job {job})"
        line(safe(f"{verb} {text}" if problem is None else f"not ended: {text}: {problem}"))
    return {
        "app_id": status.app_id,
        "name": status.name,
        "user": status.user,
        "execution": execid,
        "job": job,
        "problem": problem,
    }
