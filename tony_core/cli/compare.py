"""Two to twenty jobs side by side, as history keeps them."""

from __future__ import annotations

import argparse
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from tony_core.cli.history import open_history
from tony_core.cli.options import add_places
from tony_core.cli.output import duration, line, moment, note, number, print_json, table, warn
from tony_core.client.errors import UsageError
from tony_core.history.compare import (
    BY_SECONDS,
    BY_STEP,
    FEWEST,
    MOST,
    Compared,
    Comparison,
    MetricRow,
    Row,
    compare,
)
from tony_core.history.figures import name_figure

TIME = "time"  # what a user types for BY_SECONDS
_SHOWN = 60  # characters of a value
_SPEED = {
    "steps_per_s": "steps per s", "tasks": "tasks", "speed_up": "speed-up",
    "speed_up_of_growth": "speed-up, of the growth",
}  # fmt: skip
_YARN_ID = re.compile(r"application_\d+_")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "apps", nargs="+", metavar="ID", help=f"{FEWEST} to {MOST} ids, or enough of each"
    )
    parser.add_argument(
        "--by",
        choices=(BY_STEP, TIME),
        help="align metrics by the step that programs report, or by the time since they started;"
        " without: by step where all jobs report it",
    )
    add_places(parser)


def run(args: argparse.Namespace) -> int:
    if not FEWEST <= len(args.apps) <= MOST:
        given = "1 job" if len(args.apps) == 1 else f"{len(args.apps)} jobs"
        raise UsageError(f"{given} cannot be compared; name {FEWEST} to {MOST}")
    jobs, problems = _read(args)
    found = compare(jobs, {TIME: BY_SECONDS, None: ""}.get(args.by, args.by))
    if args.json:
        print_json({**found.to_json(), "problems": problems})
        return 0
    show(found)
    for problem in problems:
        warn(problem)
    return 0


def _read(args: argparse.Namespace) -> Tuple[List[Compared], List[str]]:
    """The jobs in the order of the ids, each place of history opened once; and what is missing."""
    found: Dict[int, Compared] = {}
    problems: List[str] = []
    on_yarn = [_YARN_ID.match(text) is not None for text in args.apps]
    for kind in dict.fromkeys(on_yarn):
        texts = [(at, text) for at, text in enumerate(args.apps) if on_yarn[at] is kind]
        with open_history(args, texts[0][1]) as (root, scheduler):
            for at, text in texts:
                found[at] = _read_one(root, text, scheduler, problems)
    ids = [found[at].record.app_id for at in sorted(found)]
    for app_id in ids:
        if ids.count(app_id) > 1:
            raise UsageError(f"{app_id} is named twice; name different jobs")
    return [found[at] for at in sorted(found)], problems


def _read_one(root: str, text: str, scheduler: Any, problems: List[str]) -> Compared:
    from tony_core.client.finalize import finalize_and_read
    from tony_core.history.configuration import read_config_entries

    record, _ = finalize_and_read(root, text, scheduler)
    problems += [f"{record.app_id}: {problem}" for problem in record.problems]
    if record.app_id != text:
        note(record.app_id)
    try:
        entries = read_config_entries(root, record.app_id)
    except OSError as error:
        problems.append(f"{record.app_id}: its configuration cannot be read: {error}")
        return Compared(record)
    return Compared(record, {entry.key: entry.value for entry in entries} if entries else None)


# ------------------------------------------------------------------ what is printed


def show(found: Comparison) -> None:
    """Print a comparison; each job is a letter, which the first table explains."""
    marks = [chr(ord("A") + at) for at in range(len(found.jobs))]
    table(
        ("", "ID", "NAME", "STATE", "USER", "SUBMITTED"),
        [
            (mark, job["app_id"], job["name"], job["state"], job["user"], moment(job["submitted"]))
            for mark, job in zip(marks, found.jobs, strict=True)
        ],
    )
    unknown = ", ".join(marks[at] for at in found.unknown_configs)
    if unknown:
        note(f"the configuration of {unknown} is not known")
    if len(marks) - len(found.unknown_configs) > 1 and not found.config:
        line()
        line("no difference in their configurations")
    _section("CONFIGURATION", marks, found.config, _value)
    _section("TIME", marks, found.phases, _seconds)
    if not all(job["lost_known"] for job in found.jobs):
        note("what restarts lost is not known of all: no steps or checkpoints were reported")
    _section("SPEED", marks, found.speed, _value, _SPEED.__getitem__)
    costs = [row for row in found.costs if row.name != "lost_s"]  # TIME has it
    _section("COST", marks, costs, _cost, name_figure)
    _section("RESULT", marks, found.results, _value)
    _metrics(marks, found.metrics)


def _section(
    title: str,
    marks: Sequence[str],
    rows: Sequence[Row],
    text: Callable[[Any, str], str],
    name: Callable[[str], str] = str,
) -> None:
    if not rows:
        return
    line()
    table(
        (title, *marks),
        [(name(row.name), *(text(value, row.name) for value in row.values)) for row in rows],
    )


def _metrics(marks: Sequence[str], found: Sequence[MetricRow]) -> None:
    if not found:
        return
    line()
    rows = []
    for metric in found:
        name = metric.name
        if metric.at is not None:
            at = metric.at
            where = f"step {number(at)}" if metric.across == BY_STEP else duration(at)
            rows.append((name, f"at {where}", *(_value(v) for v in metric.values)))
            name = ""
        if metric.at is None or metric.last != metric.values:
            rows.append((name, "at the end", *(_value(v) for v in metric.last)))
    table(("METRIC", "", *marks), rows)


def _value(value: Any, name: str = "") -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return number(value)
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _seconds(value: Optional[float], name: str = "") -> str:
    return duration(value) if value else "-"


def _cost(value: Optional[float], name: str) -> str:
    return _seconds(value) if name.endswith("_s") else _value(value)
