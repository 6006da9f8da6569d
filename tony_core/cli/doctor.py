"""Checks whether jobs can run on a scheduler, thing by thing, and what to do where not.

It submits a small application of its own (--no-probe leaves that out): one container that ends
by itself, on YARN after a look at its node from inside. Ends with 0 when nothing is wrong, else 3.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import List

from tony_core.cli.options import add_json, add_scheduler, hint, scheduler_of
from tony_core.cli.output import line, note, paint, print_json, safe
from tony_core.schedulers.port import CheckResult, Finding, SchedulerError

_COLOURS = {CheckResult.OK: "green", CheckResult.WRONG: "red", CheckResult.NOTE: "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queue", metavar="QUEUE", help="look at this queue")
    parser.add_argument(
        "--python", metavar="PYTHON", help="the interpreter to try on a node (tony.runtime.python)"
    )
    parser.add_argument(
        "--no-probe", action="store_true", help="only ask; start no container, write no file"
    )
    add_scheduler(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Return 0 when nothing is wrong, else 3."""
    from tony_core.client.doctor import examine, site
    from tony_core.job.load import JobArguments, load_job

    of_site = site(os.environ)
    if of_site.verdict is CheckResult.WRONG:
        # Every job stands on it: which scheduler, which folder, which interpreter.
        return _end(args, [of_site], shown=False)
    conf = {"tony.yarn.queue": args.queue, "tony.runtime.python": args.python}
    settings = tuple(f"{key}={value}" for key, value in conf.items() if value)
    # An empty folder: the site's file and these options, not a job file in this folder.
    job = load_job(JobArguments(conf=settings), cwd=os.devnull, needs_command=False).job
    found: List[Finding] = [of_site]
    _show(of_site, args.json)
    try:
        scheduler = scheduler_of(args)
    except SchedulerError as error:
        found.append(Finding("the scheduler", CheckResult.WRONG, str(error)))
        _show(found[-1], args.json)
    else:
        try:
            job = job.replace(scheduler=scheduler.name)
            advice = hint(args, scheduler)
            if advice:
                found.append(Finding("the scheduler", CheckResult.NOTE, scheduler.name, advice))
                _show(found[-1], args.json)
            for finding in examine(scheduler, job, not args.no_probe):
                found.append(finding)
                _show(finding, args.json)
        finally:
            scheduler.close()
    return _end(args, found)


def _end(args: argparse.Namespace, found: List[Finding], shown: bool = True) -> int:
    for finding in found if not shown else ():
        _show(finding, args.json)
    wrong = sum(finding.verdict is CheckResult.WRONG for finding in found)
    if args.json:
        print_json({"findings": [_data(finding) for finding in found], "wrong": wrong})
    elif wrong:
        note(f"{wrong} of {len(found)} things are wrong")
    else:
        note("nothing is wrong" if found else "this scheduler has nothing to check")
    return 3 if wrong else 0


def _show(finding: Finding, as_json: bool) -> None:
    if as_json:
        return
    word = paint(f"{finding.verdict.value:<8}", _COLOURS.get(finding.verdict, ""), sys.stdout)
    line(f"{word}{finding.what}" + (f": {safe(finding.detail)}" if finding.detail else ""))
    if finding.advice:
        line(f"{'':8}  {safe(finding.advice)}")
    sys.stdout.flush()  # the next thing may take a while


def _data(finding: Finding) -> dict[str, str]:
    return {
        "what": finding.what,
        "verdict": finding.verdict.value,
        "said": finding.detail,
        "advice": finding.advice,
    }
