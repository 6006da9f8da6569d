"""A web site over every job, also long after its end: lists, pages, logs, comparisons.

Without options it shows your own jobs to you, at http://127.0.0.1:19886/, and to no other user of
this machine. A portal for many users has a file of settings (docs/portal.md).
"""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import TYPE_CHECKING, FrozenSet, List, Tuple

from tony_core.cli.options import port, site_value, use_login
from tony_core.cli.output import line, note, warn
from tony_core.client.errors import UsageError
from tony_core.schedulers.port import SchedulerError

if TYPE_CHECKING:
    from tony_core.portal.settings import HistoryLocation, Settings

NEEDED = (
    *("authlib", "fastavro", "httpx", "itsdangerous", "jinja2", "prometheus_client", "starlette"),
    "uvicorn",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="the portal's settings (portal.ini, docs/portal.md)"
    )
    parser.add_argument(
        "--history",
        metavar="[NAME=]PATH",
        action="append",
        help="where history is, a folder or hdfs://...; again: several. Without: that of the"
        " settings, else of the site and the schedulers",
    )
    parser.add_argument(
        "--scheduler",
        metavar="NAME",
        action="append",
        help="a scheduler whose running jobs are shown; again: several. Without: that of the"
        " settings, else local, and yarn where HADOOP_CONF_DIR is set",
    )
    parser.add_argument("--bind", metavar="ADDRESS", help="where it listens [127.0.0.1]")
    parser.add_argument("--port", metavar="N", type=port, help="0: any free one [19886]")
    parser.add_argument(
        "--index", metavar="PATH", help="the folder of its index [$TONY_HOME/portal]"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="read the settings and look at each history, print what is wrong, and end",
    )
    parser.add_argument(
        "--principal", metavar="NAME", help="log in to a cluster with Kerberos as this principal"
    )
    parser.add_argument(
        "--keytab", metavar="FILE", help="a file of this machine with the principal's keys"
    )
    parser.set_defaults(proxy_user=None)


def run(args: argparse.Namespace) -> int:
    require_extra()
    use_login(args)
    settings = _settings(args)
    from tony_core.portal.settings_checks import find_warnings

    for text in find_warnings(settings):
        warn(text)
    if args.check:
        for text in _describe(settings):
            line(text)
        return 0
    from tony_core.portal.service import serve

    serve(settings, lambda url: note(f"the portal is at {url}/ (Ctrl-C ends it)"))
    return 0


def require_extra() -> None:
    """Raise UsageError where what the portal needs is not installed."""
    from importlib.util import find_spec

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"tony portal needs Python packages that are not installed here ({', '.join(missing)});"
            " to install them: in TonY's checkout, pip install '.[portal]'"
        )


def _settings(args: argparse.Namespace) -> Settings:
    """The settings of file, options and defaults; raises UsageError with all problems."""
    from tony_core.portal.settings_checks import find_problems, find_unreadable
    from tony_core.portal.settings_file import SettingsError

    settings, unknown, problems = _read_file(args)
    given = {name: value for name in ("bind", "port") if (value := getattr(args, name)) is not None}
    settings, unknown = settings._replace(**given), unknown - frozenset(given)
    if args.index or not settings.index_folder:
        from tony_core.schedulers.local.home import home_root

        folder = args.index or os.path.join(home_root(), "portal")
        settings = settings._replace(index_folder=os.path.abspath(os.path.expanduser(folder)))
    if args.scheduler or not settings.schedulers:
        names = tuple(args.scheduler or _default_schedulers(settings))
        settings = settings._replace(schedulers=names)
    if args.history:
        settings = settings._replace(locations=_named_locations(args.history))
        unknown -= frozenset(("locations",))
    problems += _scheduler_problems(settings.schedulers)
    problems += find_problems(settings, unknown)
    if not problems and not settings.locations:
        settings = settings._replace(locations=_default_locations(settings.schedulers))
        problems += find_problems(settings)
    if args.check:
        problems += find_unreadable(settings)
    if problems:
        raise UsageError(str(SettingsError(problems, args.config or "")))
    return settings


def _read_file(args: argparse.Namespace) -> Tuple[Settings, FrozenSet[str], List[str]]:
    """The file's settings, which fields of it are unknown, and its problems."""
    from tony_core.portal.settings import Settings
    from tony_core.portal.settings_file import SettingsError, read_settings_file

    if not args.config:
        return Settings(), frozenset(), []
    try:
        return read_settings_file(args.config), frozenset(), []
    except SettingsError as error:
        if error.settings is None:
            raise UsageError(str(error)) from None
        return error.settings, error.unknown, list(error.problems)


def _default_schedulers(settings: Settings) -> List[str]:
    found = [] if settings.is_for_many else ["local"]
    if any(os.environ.get(name) for name in ("YARN_CONF_DIR", "HADOOP_CONF_DIR")):
        found.append("yarn")
    return found


def _scheduler_problems(names: Tuple[str, ...]) -> List[str]:
    from tony_core.schedulers import missing

    return [problem for problem in map(missing, names) if problem]


def _default_locations(schedulers: Tuple[str, ...]) -> Tuple[HistoryLocation, ...]:
    """The site's place, and each scheduler's own."""
    from tony_core.files.location import is_remote
    from tony_core.portal.settings import HistoryLocation
    from tony_core.schedulers import open_scheduler

    found = []
    site = site_value("tony.history.location")
    if site:
        found.append(HistoryLocation("site", site))
    for name in schedulers:
        try:
            scheduler = open_scheduler(name)
        except SchedulerError as error:
            warn(f"the scheduler {name} is left out: {error}")
            continue
        try:
            root = scheduler.history_root()
        finally:
            scheduler.close()
        if root and not is_remote(root):
            _make_private(root)
        if root and root != site:
            found.append(HistoryLocation(name, root))
    return tuple(found)


def _make_private(folder: str) -> None:
    """Make the user's own history folder before his first job does, so that it can be read."""
    with contextlib.suppress(OSError):  # the portal's page says what is wrong with it
        os.makedirs(folder, 0o700, exist_ok=True)


def _named_locations(texts: List[str]) -> Tuple[HistoryLocation, ...]:
    from tony_core.portal.settings import HistoryLocation
    from tony_core.portal.settings_file import LOCATION_NAME

    found: List[HistoryLocation] = []
    for text in texts:
        name, equals, root = text.partition("=")
        if not equals or not LOCATION_NAME.fullmatch(name):
            name, root = ("history" if len(texts) == 1 else f"history-{len(found) + 1}"), text
        if "://" not in root:
            root = os.path.abspath(os.path.expanduser(root))
        found.append(HistoryLocation(name, root.rstrip("/") or "/"))
    return tuple(found)


def _describe(settings: Settings) -> List[str]:
    where = settings.url or f"http://{settings.bind}:{settings.port}"
    lines = [
        f"address     {where}/ (listens at {settings.bind}, port {settings.port})",
        f"login       {settings.login.by}",
        f"admins      {', '.join(settings.admins) or '-'}",
        f"schedulers  {', '.join(settings.schedulers) or '-'}",
        f"index       {settings.index_folder}",
    ]
    lines += [f"history     {location.name}: {location.root}" for location in settings.locations]
    return lines
