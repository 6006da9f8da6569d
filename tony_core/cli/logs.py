"""What a job's tasks wrote: every line once, across restarts and containers."""

from __future__ import annotations

import argparse
import sys
from typing import Dict, List

from tony_core.cli.options import add_app, add_places, count, open_job
from tony_core.cli.output import (
    TASK_COLOURS,
    log_line,
    on_terminal,
    paint,
    print_json,
    raw,
    safe,
    wants_colour,
    warn,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_app(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    parser.add_argument(
        "-t",
        "--task",
        action="append",
        default=[],
        metavar="TASK",
        help="a task (worker:1) or role (worker); am: the job's master. May be repeated",
    )
    parser.add_argument(
        "--stream",
        default="both",
        metavar="NAME",
        help="stdout, stderr, both, executor, or any file beside them [both]",
    )
    parser.add_argument(
        "-n", "--tail", type=count, metavar="N", help="only the last N lines of each file"
    )
    parser.add_argument(
        "--session", type=count, metavar="N", help="only what was written in that session"
    )
    parser.add_argument("--no-prefix", action="store_true", help="no task's name before each line")
    parser.add_argument(
        "--raw", action="store_true", help="every character as it was written, on a terminal too"
    )
    add_places(parser)


def run(args: argparse.Namespace) -> int:
    from tony_core.client.logs import read_logs

    problems: List[str] = []
    with open_job(args) as (scheduler, app_id, history):
        lines = read_logs(
            scheduler,
            app_id,
            tasks=args.task,
            stream=args.stream,
            session=args.session,
            tail=args.tail,
            follow=args.follow,
            history=history,
            problems=problems,
        )
        colours: Dict[str, str] = {}
        # A person watches lines come; a file gets them faster in blocks.
        at_once = args.follow or on_terminal(sys.stdout)
        cleans, colourful = sys.stdout.isatty() and not args.raw, wants_colour(sys.stdout)
        single = args.no_prefix or (len(args.task) == 1 and (":" in args.task[0]))
        for item in lines:
            if args.json:
                data = {"task": item.task, "stream": item.stream, "container": item.container}
                print_json({**data, "text": item.text}, None)
                continue
            prefix = ""
            if not single:
                colour = TASK_COLOURS[len(colours) % len(TASK_COLOURS)]
                colour = colours.setdefault(item.task, colour)
                prefix = paint(f"{safe(item.task)} |", colour, sys.stdout) + " "
            text = log_line(item.text, colourful) if cleans else item.text
            raw(f"{prefix}{text}\n")
            if at_once:
                sys.stdout.flush()
    for problem in problems:
        warn(problem)
    return 0
