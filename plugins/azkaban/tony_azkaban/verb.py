"""``tony azkaban``: install, upgrade and remove the job type of a server, and end the applications
that its jobs left (docs/azkaban.md)."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Dict

from tony_core.cli.options import add_json, add_scheduler
from tony_core.cli.output import line, note

READS_AT_START = (
    "restart the server: it reads its job types when it starts (3.x reads them again by"
    " http://EXECUTOR:PORT/executor?action=reloadJobTypePlugins)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-verbs and their options."""
    verbs = parser.add_subparsers(dest="azkaban_verb", metavar="VERB", required=True)
    installed = verbs.add_parser("install", help="install the job type into a server's plugins")
    upgraded = verbs.add_parser("upgrade", help="upgrade the job type; keeps your changes")
    removed = verbs.add_parser("remove", help="remove the job type")
    swept = verbs.add_parser("sweep", help="end applications whose execution is over")
    for verb, run_it in ((installed, _install), (upgraded, _install), (removed, _remove)):
        verb.add_argument(
            "--plugin-dir",
            metavar="PATH",
            required=True,
            help="the server's azkaban.jobtype.plugin.dir",
        )
        verb.set_defaults(azkaban_run=run_it)
    for verb in (installed, upgraded):
        verb.add_argument(
            "--python",
            metavar="PATH",
            help="the interpreter that submits jobs [the one that runs this]",
        )
        verb.add_argument(
            "--hadoop-conf-dir",
            metavar="PATH",
            help="the cluster's configuration; jobs then run on YARN unless they say otherwise",
        )
        verb.add_argument(
            "--server-url", metavar="URL", help="the server's address for people, for links to it"
        )
        verb.add_argument(
            "--server-name",
            metavar="NAME",
            help="a name that distinguishes its jobs from another server's",
        )
        verb.add_argument(
            "--tokens",
            action="store_true",
            help="on a cluster with Kerberos: the server (3.x, with Azkaban's Hadoop plugins)"
            " obtains tokens for each job's user",
        )
    _add_sweep(swept)


def _add_sweep(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--server-url", metavar="URL", help="ask this server which executions are over"
    )
    verb.add_argument("--login", metavar="USER", help="the user who asks it [azkaban]")
    verb.add_argument(
        "--password-file",
        metavar="FILE",
        help="its first line is the password [$AZKABAN_PASSWORD, or a prompt]",
    )
    verb.add_argument(
        "--ended",
        metavar="EXECIDS",
        help="do not ask: these executions are over (separated by commas, or all)",
    )
    verb.add_argument("--running", metavar="EXECIDS", help="do not ask: all but these are over")
    verb.add_argument(
        "--server-name",
        metavar="NAME",
        help="only applications of this server [the host of its URL]",
    )
    verb.add_argument("--dry-run", action="store_true", help="list them, and end none")
    add_scheduler(verb)
    add_json(verb)
    verb.set_defaults(azkaban_run=_sweep)


def run(args: argparse.Namespace) -> int:
    """The sub-verb's exit code."""
    return int(args.azkaban_run(args))


def _site(args: argparse.Namespace) -> Dict[str, str]:
    site: Dict[str, str] = {}
    if args.hadoop_conf_dir:
        site["hadoop.conf.dir"] = os.path.abspath(args.hadoop_conf_dir)
        site["tony.scheduler"] = "yarn"
    if args.server_url:
        site["server.url"] = args.server_url
    if args.server_name:
        site["server.name"] = args.server_name
    if args.tokens:
        site["login"] = "tokens"
    return site


def _install(args: argparse.Namespace) -> int:
    """For ``install`` and ``upgrade``."""
    from tony_azkaban.installation import find_notes, install, upgrade

    is_new = args.azkaban_verb == "install"
    done = (install if is_new else upgrade)(Path(args.plugin_dir), args.python, _site(args))
    made = ("installed", f"({done.version})") if is_new else ("upgraded", f"to {done.version}")
    line(f"{made[0]} {done.folder} {made[1]}")
    for text in done.kept:
        note(f"kept your value: {text}")
    for text in find_notes(done.folder):
        note(text)
    note(READS_AT_START)
    return 0


def _remove(args: argparse.Namespace) -> int:
    from tony_azkaban.installation import remove

    done = remove(Path(args.plugin_dir))
    line(f"removed {done.folder}")
    note("a running server still has it; restart the server when no job needs it any more")
    return 0


def _sweep(args: argparse.Namespace) -> int:
    from tony_azkaban.sweep import run  # requests takes 60 ms, which ``tony completion`` would pay

    return run(args)
