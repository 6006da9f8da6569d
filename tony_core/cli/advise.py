"""What a job could change so that it costs less or runs better, out of its history.

The worst comes first: what was seen, the numbers behind it, what to change in the job file, and
what that saves. --apply writes a copy of the job file with these changes: tony.xml becomes
tony.advised.xml, in which every other byte is as it was. docs/advice.md has more.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from tony_core.advice.advice import Advice
from tony_core.advice.report import Report
from tony_core.advice.wording import (
    describe_change,
    describe_evidence,
    describe_saving,
    subject,
)
from tony_core.cli.history import open_history
from tony_core.cli.options import add_app, add_places
from tony_core.cli.output import line, note, paint, print_json, raw, safe, warn
from tony_core.client.errors import UsageError
from tony_core.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from tony_core.client.advice import Advised
    from tony_core.client.advised_file import AdvisedFile

STDOUT = "-"
OF_THE_RUN = object()  # --apply without FILE; an empty FILE is a variable that is not set
_JOB_ID = re.compile(r"(?:local|application)_[0-9]+(?:_[0-9A-Za-z]*)?")
COLOURS = {"critical": "red", "severe": "red", "moderate": "yellow", "low": "cyan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_app(parser)
    parser.add_argument(
        "--apply",
        nargs="?",
        const=OF_THE_RUN,
        metavar="FILE",
        help="write a copy of this job file with the changes; without FILE: the file that the job"
        " was submitted with, if it is here and still the same",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="the copy's name, - for standard output; without: tony.advised.xml beside tony.xml. No"
        " file is overwritten",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --apply: print the changes as a diff, no more"
    )
    add_places(parser)


def run(args: argparse.Namespace) -> int:
    for option in ("apply", "output"):
        if getattr(args, option) == "":
            raise UsageError(f"--{option}: the name of the file is empty")
    if args.apply is OF_THE_RUN:
        args.apply = ""
    if args.apply is None and (args.output or args.dry_run):
        option = "--output" if args.output else "--dry-run"
        raise UsageError(f"{option} needs --apply: it is about the job file that is written")
    job_file = _read_named(args)
    from tony_core.client.advice import advise_on
    from tony_core.client.finalize import finalize_and_read

    with open_history(args, args.app) as (root, scheduler):
        record, _ = finalize_and_read(root, args.app, scheduler)
        found = advise_on(root, record)
    if record.app_id != args.app:
        note(record.app_id)
    if args.apply is not None:
        return _apply(args, record.app_id, found, job_file)
    if args.json:
        data = {"app_id": record.app_id, **found.report.to_json()}
        print_json({**data, "problems": list(record.problems)})
        return 0
    show(found.report)
    for problem in record.problems:
        note(problem)
    return 0


def _read_named(args: argparse.Namespace) -> Optional[bytes]:
    """The job file that ``--apply`` names, read before any job is looked up; None: none is named.

    What cannot be meant is refused.
    """
    if args.output == STDOUT and (args.json or args.dry_run):
        option = "--json" if args.json else "--dry-run"
        raise UsageError(
            f"--output - and {option} both print on standard output; leave one of them out"
        )
    if not args.apply:
        return None
    if _JOB_ID.fullmatch(args.apply) and not os.path.exists(args.apply):
        raise UsageError(
            f"--apply takes the job file, and {args.apply} is the id of a job, which comes first:"
            f" tony advise {args.apply} --apply [FILE]"
        )
    from tony_core.client.advised_file import read_job_file

    try:
        return read_job_file(args.apply)
    except UsageError as error:
        if args.app is not None:
            raise
        raise UsageError(
            f"{error}; a job's id comes first: tony advise ID --apply [FILE]"
        ) from None


def show(report: Report) -> None:
    """Print all of it, the worst first."""
    for text in report.notes:
        note(text)
    if not report.advice:
        line("nothing to change" + (" so far" if report.is_running else ""))
    for number, each in enumerate(report.advice):
        if number:
            line()
        _show_one(each)


def _show_one(advice: Advice) -> None:
    mark = paint(safe(advice.severity), COLOURS.get(advice.severity, ""), sys.stdout)
    line(f"{mark}: {safe(subject(advice) + advice.problem)}")
    for title, text in (
        ("evidence", describe_evidence(advice)),
        ("do", advice.todo),
        *(("change", describe_change(change)) for change in advice.changes),
        ("saves", describe_saving(advice)),
    ):
        if text:
            line(f"  {title}: {safe(text)}")


# ------------------------------------------------------------------ the job file


def _apply(args: argparse.Namespace, app_id: str, found: Advised, data: Optional[bytes]) -> int:
    from tony_core.client.advised_file import advised_name, apply_to_file, write_new

    advice = found.report.advice
    if not any(each.changes for each in advice):
        what = "the advice asks for no change of a key" if advice else "there is no advice"
        why = f"{what}{' so far' if found.report.is_running else ''}"
        if args.json:
            print_json(_applied_json(app_id, found.report))
            return 0
        if args.output != STDOUT:
            note(f"{why}; no job file is written")
            return 0
        note(why)
    done = apply_to_file(args.apply, advice, found.config, data)
    target = args.output or advised_name(done.path)
    if target == STDOUT:
        _print_file(done)
        return _exit_code(done)
    diff = _diff(done.old, done.applied.data, done.path, target)
    writes = done.is_changed and not args.dry_run
    if writes:
        write_new(target, done.applied.data, done.path)
    if args.json:
        print_json(_applied_json(app_id, found.report, done, target if writes else "", diff))
    else:
        _show_applied(done, diff if args.dry_run else "")
        if writes:
            note(f"written: {safe(target)}")
    return _exit_code(done)


def _exit_code(done: AdvisedFile) -> int:
    return int(ExitCode.BAD_JOB) if done.applied.refused and not done.is_changed else 0


def _show_applied(done: AdvisedFile, diff: str = "") -> None:
    """Print what was changed, or the difference."""
    _show_notes(done)
    if not done.is_changed:
        return
    if not diff:
        for change in done.applied.changes:
            line(safe(describe_change(change)))
    elif sys.stdout.isatty():
        line(diff.rstrip("\n"))
    else:
        raw(diff)


def _print_file(done: AdvisedFile) -> None:
    """Print the whole job file, also one that is as it was: a file of nothing would be no job."""
    _show_notes(done)
    if _exit_code(done):
        return
    for change in done.applied.changes:
        note(safe(describe_change(change)))
    if sys.stdout.isatty():
        line(done.applied.data.decode("utf-8", "backslashreplace").rstrip("\n"))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(done.applied.data)
        sys.stdout.buffer.flush()


def _show_notes(done: AdvisedFile) -> None:
    for text in (*done.applied.refused, *map(str, done.warnings)):
        warn(safe(text))
    for text in done.applied.notes:
        note(safe(text))
    if not done.is_changed:
        note(f"{safe(done.path)} is not changed")


def _applied_json(
    app_id: str,
    report: Report,
    done: Optional[AdvisedFile] = None,
    written: str = "",
    diff: str = "",
) -> Dict[str, Any]:
    applied: Dict[str, Any] = {"changes": [], "notes": [], "refused": []}
    warnings: List[str] = []
    if done is not None:
        applied, warnings = done.applied.to_json(), [str(each) for each in done.warnings]
    more = {"file": done.path if done else "", "written": written, "diff": diff}
    return {
        "app_id": app_id,
        **report.to_json(),
        "applied": {**applied, "warnings": warnings, **more},
    }


def _diff(old: bytes, new: bytes, path: str, target: str) -> str:
    import difflib

    before, after = (
        data.decode("utf-8", "backslashreplace").splitlines(True) for data in (old, new)
    )
    return "".join(
        each if each.endswith("\n") else f"{each}\n\\ No newline at end of file\n"
        for each in difflib.unified_diff(before, after, path, target)
    )
