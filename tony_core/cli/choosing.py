"""Which of the applications that a scheduler knows a verb is about: by state, tag, name, user.

Names and users are shell patterns; tags are compared without regard to case, since YARN keeps
them in lower case.
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from typing import List

from tony_core.schedulers.port import AppState, AppStatus


def add_choice(parser: argparse.ArgumentParser, states: bool = True) -> None:
    """The words that choose."""
    if states:
        known = [state.value for state in AppState]
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
    """Whether any of the words was said."""
    return bool(args.tag or args.name or args.user or getattr(args, "state", None))


def chosen(found: List[AppStatus], args: argparse.Namespace) -> List[AppStatus]:
    """Those that every word lets through."""
    return [status for status in found if _meant(status, args)]


def _meant(status: AppStatus, args: argparse.Namespace) -> bool:
    tags = {tag.casefold() for tag in status.tags}
    states = getattr(args, "state", None)
    return (
        all(tag.casefold() in tags for tag in args.tag or ())
        and (not args.name or fnmatchcase(status.name, args.name))
        and (not args.user or fnmatchcase(status.user, args.user))
        and (not states or status.state.value in states)
    )
