"""Our own code on the nodes: put it where all users of a cluster share it."""

from __future__ import annotations

import argparse

from tony_core.cli.options import add_json, add_login, site_value, use_login
from tony_core.cli.output import line, print_json
from tony_core.client.errors import UsageError
from tony_core.files.location import masked

KEY = "tony.runtime.location"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="runtime_verb", metavar="VERB", required=True)
    publish = verbs.add_parser(
        "publish",
        help="write this version's code to one place for all users, as an administrator does",
    )
    publish.add_argument(
        "location",
        nargs="?",
        metavar="URL",
        help=f"a .tar on the cluster's file system; without: {KEY} of the site's file",
    )
    add_login(publish)
    add_json(publish)


def run(args: argparse.Namespace) -> int:
    from tony_core.bundle.client.staging import publish_runtime

    use_login(args)
    location = args.location or site_value(KEY)
    if not location:
        raise UsageError(f"expected a URL, or {KEY} in the site's file ($TONY_CONF_DIR)")
    try:
        size = publish_runtime(location)
    except ValueError as error:  # no name for it
        raise UsageError(str(error)) from None
    if args.json:
        print_json({"location": masked(location), "size": size})
        return 0
    line(f"published {masked(location)} ({size} bytes)")
    if location != site_value(KEY):
        line(f"to use it, set {KEY}={masked(location)}, best in the site's file")
    return 0
