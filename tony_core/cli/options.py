"""Words that several verbs share, and what they lead to: a scheduler, an application."""

from __future__ import annotations

import argparse
import os
import re
from contextlib import contextmanager
from typing import Iterator, Optional

from tony_core.cli.output import note
from tony_core.schedulers.port import Scheduler

_YARN_ID = re.compile(r"application_\d+_\d+")
DEFAULT_SCHEDULER = "local"


def add_app(parser: argparse.ArgumentParser, absent: str = "the newest") -> None:
    """The application meant."""
    parser.add_argument(
        "app",
        nargs="?",
        metavar="ID",
        help=f"the application's id, or enough of its beginning; without: {absent}",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="JSON on standard output (docs/json.md)"
    )


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    """``--scheduler``."""
    parser.add_argument(
        "--scheduler",
        metavar="NAME",
        help="local, yarn, or one that is installed; without: what the id's form says, else the"
        " site's tony.scheduler, else local",
    )


def add_history(parser: argparse.ArgumentParser) -> None:
    """``--history``."""
    parser.add_argument(
        "--history",
        metavar="PATH",
        help="where history stands; without: the site's tony.history.location, else the"
        " scheduler's own place",
    )


def scheduler_of(args: argparse.Namespace, app: Optional[str] = None) -> Scheduler:
    """The scheduler that is meant, opened."""
    from tony_core.schedulers import open_scheduler

    name: Optional[str] = args.scheduler
    if name is None and app is not None and _YARN_ID.match(app):
        name = "yarn"
    return open_scheduler(name or site_value("tony.scheduler") or DEFAULT_SCHEDULER)


def hint(args: argparse.Namespace, scheduler: Scheduler) -> str:
    """What to say where nothing was found here by who may have meant the cluster; or nothing."""
    named = next((n for n in ("YARN_CONF_DIR", "HADOOP_CONF_DIR") if os.environ.get(n)), None)
    if not named or args.scheduler or scheduler.name != DEFAULT_SCHEDULER:
        return ""
    if site_value("tony.scheduler"):
        return ""
    return (
        f"{named} is set: jobs on that cluster are found by --scheduler yarn, or always with"
        " tony.scheduler in tony-site.xml"
    )


def elsewhere(args: argparse.Namespace, scheduler: Scheduler) -> None:
    """The :func:`hint` as a line of its own."""
    text = hint(args, scheduler)
    if text:
        note(text)


@contextmanager
def hinting(args: argparse.Namespace, scheduler: Scheduler) -> Iterator[None]:
    """What is not found within ends with the :func:`hint`."""
    from tony_core.client.errors import NotFound

    try:
        yield
    except NotFound as error:
        more = "" if error.candidates else hint(args, scheduler)
        raise NotFound(f"{error}\n{more}" if more else str(error), error.candidates) from None


def history_of(args: argparse.Namespace) -> Optional[str]:
    """The place of history that was named, if any."""
    named: Optional[str] = getattr(args, "history", None)
    return named or site_value("tony.history.location")


def site_value(key: str) -> Optional[str]:
    """What the site's file says of a key; nothing is read where there is no site."""
    if not os.environ.get("TONY_CONF_DIR"):
        return None
    from tony_core.job.load import JobArguments, load_job
    from tony_core.job.problems import JobError

    try:
        # An empty folder: the site's file alone, not the job file that lies about here.
        job = load_job(JobArguments(), cwd=os.devnull, needs_command=False).job
    except JobError:
        return None  # a submit says what is wrong with it; looking at jobs need not stop
    for item in job.settings:
        if item.key == key and item.source != "default":
            return item.value
    return None


def app_of(args: argparse.Namespace, scheduler: Scheduler, quiet: bool = False) -> str:
    """The application's whole id; says which one when that was not plain."""
    from tony_core.client.resolve import resolve

    with hinting(args, scheduler):
        meant = resolve(scheduler, args.app, history=history_of(args))
    if meant.how and not quiet:
        note(meant.how)
    return meant.app_id


def count(text: str) -> int:
    """A number argument of things: none or more."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative; expected 0 or more")
    return number


def seconds(text: str) -> float:
    """A duration argument: plain seconds, or with a unit (``90``, ``30m``, ``7d``)."""
    from tony_core.job.units import parse_duration_s

    try:
        parsed = parse_duration_s(text, "s")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return parsed or 0.0
