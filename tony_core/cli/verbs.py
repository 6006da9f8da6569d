"""The table of the verbs. Each is a module of its own, imported only when it is used.

A verb imports what it works with inside its ``run`` where that is much: ``tony completion``, which
runs when a shell starts, imports all verbs.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Dict, Protocol, cast

from tony_core.cli.parser import Parser

#: The module below tony_core.cli -> one line of help.
VERBS: Dict[str, str] = {
    "submit": "start a job and watch it to its end",
    "attach": "watch a job that runs already",
    "list": "all jobs the scheduler knows",
    "status": "the state of a job, in a few lines",
    "describe": "everything known of a job",
    "logs": "what a job's tasks wrote",
    "shell": "open a terminal, or run a command, beside a running task's program",
    "notebook": "Jupyter in a container, at a port of this machine",
    "kill": "end jobs",
    "history": "jobs that have ended",
    "compare": "jobs side by side: configuration, time, cost, results, metrics",
    "advise": "what a job could change to cost less, and its job file with these changes",
    "portal": "a web site over every job, also after its end",
    "config": "show the merged configuration, list all keys, check a job file",
    "doctor": "check whether jobs can run here, and what prevents it",
    "gc": "remove what ended jobs left behind",
    "runtime": "our own code on the nodes: put it where all users share it",
    "version": "which version this is, and of what",
    "azkaban": "install the job type of an Azkaban server, and end applications that its jobs left",
    "completion": "a shell's completion of this command",
}
#: Verbs of the plugins, by their modules' names: the command line imports no plugin.
OF_PLUGINS: Dict[str, str] = {"azkaban": "tony_azkaban.verb"}


class Verb(Protocol):
    """What a verb's module holds; its docstring is the head of the verb's ``--help``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's options."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the verb; return the exit code."""


def module_of(name: str) -> Verb:
    return cast(Verb, import_module(OF_PLUGINS.get(name, f"tony_core.cli.{name}")))


def parser_of(name: str) -> Parser:
    """A verb's parser, with all its options."""
    verb = module_of(name)
    parser = Parser(prog=f"tony {name}", description=(verb.__doc__ or "").strip())
    verb.add_arguments(parser)
    _add_debug(parser)
    return parser


def _add_debug(parser: argparse.ArgumentParser) -> None:
    """Let a verb, and each verb below it, take ``--debug``."""
    if "--debug" not in parser._option_string_actions:
        parser.add_argument(
            "--debug", action="store_true", help="show where an error comes from (a traceback)"
        )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _add_debug(below)
