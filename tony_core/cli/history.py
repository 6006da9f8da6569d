"""Jobs that have ended, as history keeps them."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import contextmanager
from itertools import islice
from typing import Any, ContextManager, Iterable, Iterator, Optional, Tuple

from tony_core.cli import history_files
from tony_core.cli.describe import show
from tony_core.cli.options import add_places, count, elsewhere, history_of, scheduler_of
from tony_core.cli.output import duration, line, moment, note, print_json, raw, safe, table
from tony_core.client.errors import UsageError
from tony_core.history.reader import read_config
from tony_core.schedulers.port import Scheduler, SchedulerError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="history_verb", metavar="VERB", required=True)
    listed = verbs.add_parser("list", help="all of them, the newest first")
    listed.add_argument("--limit", metavar="N", type=count, default=50, help="at most [50]; 0: all")
    listed.set_defaults(history_run=_list)
    shown = verbs.add_parser("show", help="one of them: tasks, root cause, story")
    shown.add_argument(
        "app", nargs="?", metavar="ID", help="its id, or enough of it; without: the newest"
    )
    shown.add_argument("--metrics", action="store_true", help="its metrics as well")
    shown.add_argument("--config", action="store_true", help="the configuration it ran with, alone")
    shown.set_defaults(history_run=_show)
    exported = verbs.add_parser("export", help="one of them as a file: HTML, JSON, .jhist")
    history_files.add_export_arguments(exported)
    exported.set_defaults(history_run=_export)
    imported = verbs.add_parser("import", help="jobs of the JVM TonY, from its folders")
    history_files.add_import_arguments(imported)
    imported.set_defaults(history_run=_import)
    for verb in (listed, shown, imported):
        add_places(verb)
    add_places(exported, json=False)


def run(args: argparse.Namespace) -> int:
    return int(args.history_run(args))


def _history(
    args: argparse.Namespace,
) -> ContextManager[Tuple[str, Optional[Scheduler]]]:
    return open_history(args, getattr(args, "app", None))


@contextmanager
def open_history(
    args: argparse.Namespace, app: Optional[str] = None
) -> Iterator[Tuple[str, Optional[Scheduler]]]:
    """The root of the history, and a scheduler that may know how an unfinished job ended.

    ``app`` is the id that the user gave.
    """
    named = history_of(args)
    try:
        scheduler = scheduler_of(args, app)
    except SchedulerError:
        if not named:
            raise
        yield named, None
        return
    try:
        root = named or scheduler.history_root(None)
        if not root:
            raise UsageError(
                f"the scheduler {scheduler.name} keeps no history of its own; use --history PATH,"
                " or set tony.history.location in the site's file"
            )
        yield root, scheduler
    finally:
        scheduler.close()


def _list(args: argparse.Namespace) -> int:
    from tony_core.client.finalize import finalize_and_list

    with _history(args) as (root, scheduler):
        shown = list(islice(finalize_and_list(root, scheduler, note), args.limit or None))
    if args.json:
        print_json({"history": root, "jobs": [view.to_json() for view in shown]})
        return 0
    if not shown:
        note(f"no jobs in the history at {root}")
        if scheduler is not None and not args.history:
            elsewhere(args, scheduler)
        return 0
    table(
        ("ID", "NAME", "STATE", "USER", "SUBMITTED", "TIME"),
        [
            (
                view.app_id,
                view.name,
                view.state.value,
                view.user,
                moment(view.submitted),
                duration(view.duration_s(time.time())),
            )
            for view in shown
        ],
    )
    return 0


def _objects(value: Any) -> Iterable[Tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _show(args: argparse.Namespace) -> int:
    from tony_core.client.finalize import finalize_and_read

    if args.config and (args.json or args.metrics):
        other = "--json" if args.json else "--metrics"
        raise UsageError(
            f"--config prints the configuration alone, as XML; it cannot be used with {other}"
        )
    with _history(args) as (root, scheduler):
        record, view = finalize_and_read(root, args.app, scheduler)
        text = read_config(root, record.app_id) if args.config else None
    if args.config:
        if text is None:
            raise UsageError(f"the configuration of {record.app_id} was not kept")
        config = text.decode("utf-8", "replace")
        if sys.stdout.isatty():
            line(config.rstrip("\n"))
        else:
            raw(config)
        return 0
    if args.json:
        data = {"job": view.to_json(), "events": [dict(event) for event in record.events]}
        print_json({**data, "metrics": dict(record.metrics), "problems": list(record.problems)})
        return 0
    # Without asking whether a node's page still answers: the command in its place finds the log.
    show(view, record.events, pages_last=False)
    if args.metrics:
        line()
        line("metrics (the newest values):")
        for task, values in _objects(record.metrics.get("latest")):
            for name, value in _objects(values):
                line(f"  {safe(str(task))}  {safe(str(name))} = {value}")
    for problem in record.problems:
        note(problem)
    return 0


def _export(args: argparse.Namespace) -> int:
    from tony_core.client.finalize import finalize_and_read

    with _history(args) as (root, scheduler):
        record, view = finalize_and_read(root, args.app, scheduler)
        config = read_config(root, record.app_id)
    return history_files.export(args, record, view, config)


def _import(args: argparse.Namespace) -> int:
    with _history(args) as (root, _):
        return history_files.import_history(args, root)
