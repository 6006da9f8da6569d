"""Options that several verbs share, and what they name: a scheduler, an application, a history."""

from __future__ import annotations

import argparse
import os
import re
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Iterator, List, NamedTuple, Optional

from tony_core.cli.output import note
from tony_core.client.errors import NotFound, UsageError
from tony_core.schedulers.port import AppState, AppStatus, Scheduler

_YARN_ID = re.compile(r"application_\d+_\d+")
DEFAULT_SCHEDULER = "local"


def add_app(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "app",
        nargs="?",
        metavar="ID",
        help="the application's id, or enough of its beginning; without: the newest",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="JSON on standard output (docs/json.md)"
    )


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler",
        metavar="NAME",
        help="local, yarn, or one that is installed; without: by the form of the id, else the"
        " site's tony.scheduler, else local",
    )

    add_login(parser)


def add_login(parser: argparse._ActionsContainer) -> None:
    """Declare ``--principal``, ``--keytab`` and ``--proxy-user``; :func:`use_login` reads them."""
    parser.add_argument(
        "--principal",
        metavar="NAME",
        help="log in as this principal on a cluster with Kerberos, by --keytab; without: the site's"
        " tony.kerberos.principal, else the user of the ticket cache",
    )
    parser.add_argument(
        "--keytab", metavar="FILE", help="a file of this machine with the principal's keys"
    )
    parser.add_argument(
        "--proxy-user",
        metavar="NAME",
        help="act for this user on a cluster, as a service that may (hadoop.proxyuser.*); without:"
        " HADOOP_PROXY_USER, else for oneself",
    )


def use_login(args: argparse.Namespace) -> None:
    """Let this process log in as the options or the site say."""
    principal = args.principal or site_value("tony.kerberos.principal")
    keytab = args.keytab or site_value("tony.kerberos.keytab")
    if bool(principal) != bool(keytab):
        named, missing = ("--principal", "--keytab") if principal else ("--keytab", "--principal")
        raise UsageError(f"{named} needs {missing}: a keytab holds the keys of principals")
    if keytab:
        from tony_core.client.cluster_login import login_variables
        from tony_core.job.spec import Hadoop

        found = Hadoop(principal=principal, keytab=os.path.abspath(os.path.expanduser(keytab)))
        os.environ.update(login_variables(found))
    if args.proxy_user is not None:
        from tony_core.hadoop.identity import PROXY_USER, find_name_problem

        problem = find_name_problem(args.proxy_user)
        if problem:
            raise UsageError(f"--proxy-user {problem}")
        os.environ[PROXY_USER] = args.proxy_user


def refuse_proxy_user(args: argparse.Namespace, scheduler: str) -> None:
    """Refuse ``--proxy-user`` for a scheduler that runs every job as the caller."""
    if args.proxy_user is not None and scheduler == DEFAULT_SCHEDULER:
        raise UsageError(
            "--proxy-user is for clusters, and the embedded scheduler runs every job as you: add"
            " --scheduler yarn, or leave the option out"
        )


def add_places(parser: argparse.ArgumentParser, json: bool = True) -> None:
    """Declare where a job is looked up (``--scheduler``, ``--history``), and ``--json``."""
    add_scheduler(parser)
    parser.add_argument(
        "--history",
        metavar="PATH",
        help="where history is; without: the site's tony.history.location, else the"
        " scheduler's own place",
    )
    if json:
        add_json(parser)


def scheduler_of(args: argparse.Namespace, app: Optional[str] = None) -> Scheduler:
    """Open the scheduler that the options, the id or the site name."""
    from tony_core.schedulers import open_scheduler

    use_login(args)
    name: Optional[str] = args.scheduler
    if name is None and app is not None and _YARN_ID.match(app):
        name = "yarn"
    name = name or site_value("tony.scheduler") or DEFAULT_SCHEDULER
    refuse_proxy_user(args, name)
    return open_scheduler(name)


def hint(args: argparse.Namespace, scheduler: Scheduler) -> str:
    """Advice for a user who may have wanted the cluster's jobs and not local ones; or empty."""
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
    """Print the :func:`hint`."""
    text = hint(args, scheduler)
    if text:
        note(text)


@contextmanager
def hinting(args: argparse.Namespace, scheduler: Scheduler) -> Iterator[None]:
    """Add the :func:`hint` to a NotFound that is raised within."""
    try:
        yield
    except NotFound as error:
        more = "" if error.candidates else hint(args, scheduler)
        raise NotFound(f"{error}\n{more}" if more else str(error), error.candidates) from None


def history_of(args: argparse.Namespace) -> Optional[str]:
    """The place of history that the options or the site name, if any."""
    named: Optional[str] = getattr(args, "history", None)
    return named or site_value("tony.history.location")


def site_value(key: str) -> Optional[str]:
    """A key's value in the site's file; reads nothing where there is no site."""
    if not os.environ.get("TONY_CONF_DIR"):
        return None
    from tony_core.job.load import JobArguments, load_job
    from tony_core.job.problems import JobError

    try:
        # An empty folder: the site's file alone, not a job file in this folder.
        job = load_job(JobArguments(), cwd=os.devnull, needs_command=False).job
    except JobError:
        return None  # a submit reports what is wrong with it; other verbs go on
    for item in job.settings:
        if item.key == key and item.source != "default":
            return item.value
    return None


class NamedJob(NamedTuple):
    """The application that the options name, and where it is looked up."""

    scheduler: Scheduler
    app_id: str
    history: Optional[str]


@contextmanager
def open_job(args: argparse.Namespace) -> Iterator[NamedJob]:
    """Find the application; print its id where the user did not give it whole."""
    from tony_core.client.lookup import require_view, resolve

    scheduler = scheduler_of(args, args.app)
    try:
        history = history_of(args)
        with hinting(args, scheduler):
            found = resolve(scheduler, args.app, history=history)
        if found.how:
            note(found.how)
        if found.status is not None:
            require_view(found.status)
        yield NamedJob(scheduler, found.app_id, history)
    finally:
        scheduler.close()


def count(text: str) -> int:
    """Parse a count: 0 or more."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative; expected 0 or more")
    return number


def port(text: str) -> int:
    """Parse a port; 0 is any that is free."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def seconds(text: str) -> float:
    """Parse a duration: plain seconds, or with a unit (``90``, ``30m``, ``7d``)."""
    from tony_core.job.units import parse_duration_s

    try:
        parsed = parse_duration_s(text, "s")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return parsed or 0.0


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Declare ``--state``, ``--tag``, ``--name``, ``--user``: which of the applications.

    Names and users are shell patterns; tags are compared without regard to case, since YARN keeps
    them in lower case.
    """
    known = [state.value for state in AppState if state is not AppState.UNKNOWN]
    parser.add_argument(
        "--state",
        metavar="STATE",
        type=str.upper,
        action="append",
        choices=known,
        help=f"only these: {', '.join(known)}",
    )
    parser.add_argument(
        "--tag", metavar="TAG", action="append", help="only those with this tag; again: all of them"
    )
    parser.add_argument("--name", metavar="PATTERN", help="only those of this name (*, ?, [...])")
    parser.add_argument("--user", metavar="USER", help="only this user's (*, ?, [...])")


def chooses(args: argparse.Namespace) -> bool:
    """Whether an option of :func:`add_choice` was given."""
    return bool(args.tag or args.name or args.user or args.state)


def chosen(found: List[AppStatus], args: argparse.Namespace) -> List[AppStatus]:
    return [status for status in found if _matches(status, args)]


def _matches(status: AppStatus, args: argparse.Namespace) -> bool:
    tags = {tag.casefold() for tag in status.tags}
    return (
        all(tag.casefold() in tags for tag in args.tag or ())
        and (not args.name or fnmatchcase(status.name, args.name))
        and (not args.user or fnmatchcase(status.user, args.user))
        and (not args.state or status.state.value in args.state)
    )
