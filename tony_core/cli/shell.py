"""Open a terminal beside a running task's program, or run one command there.

    tony shell ID -t worker:1
    tony shell ID -t worker:0 -- nvidia-smi

In the task's container, as its user, with the program's environment and working folder. All that
it starts ends with it, with the connection, and with the task. Only the job's owner can. The exit
code is the command's; 3: nothing could be run.
"""

from __future__ import annotations

import argparse
import os
from typing import List

from tony_core.cli.interrupts import Interrupts
from tony_core.cli.options import add_app, add_scheduler, hinting, scheduler_of
from tony_core.cli.output import note, safe
from tony_core.cli.parser import Parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_app(parser)
    parser.add_argument(
        "-t",
        "--task",
        default="",
        metavar="TASK",
        help="the task (worker:1), or a role of one task; without: the job's only task",
    )
    add_scheduler(parser)
    if isinstance(parser, Parser):
        parser.command_follows()


def run(args: argparse.Namespace) -> int:
    """Return the exit code of the shell or command."""
    from tony_core.client.lookup import resolve
    from tony_core.client.shell import ShellStream
    from tony_core.client.tunnel import open_tunnel
    from tony_core.protocol.reactor import Reactor

    command: List[str] = args.command
    with Interrupts("interrupted") as interrupts:
        scheduler = scheduler_of(args, args.app)
        reactor = Reactor(note)
        try:
            with hinting(args, scheduler):
                found = resolve(
                    scheduler, args.app, lambda status: not status.state.ended, "running job"
                )
            if found.how:
                note(found.how)
            terminal = os.isatty(0) and (os.isatty(1) if command else True)
            shell = ShellStream(reactor, args.task, command, terminal)
            tunnel = open_tunnel(scheduler, found.app_id, reactor, shell.lost)
            try:
                interrupts.defer(
                    lambda: reactor.call_soon_threadsafe(shell.interrupted, interrupts.received[0])
                )
                code = shell.run(tunnel)
            finally:
                tunnel.close()
            if shell.message:
                note(safe(shell.message))
            return code
        finally:
            reactor.close()
            scheduler.close()
