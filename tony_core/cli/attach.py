"""Watch a job that runs already; after Ctrl-C it keeps running.

The exit code is the job's, as of ``tony submit``.
"""

from __future__ import annotations

import argparse

from tony_core.cli.interrupts import Interrupts
from tony_core.cli.options import (
    add_app,
    add_history,
    add_json,
    add_scheduler,
    app_of,
    history_of,
    scheduler_of,
)

NAME = "attach"
HELP = "watch a job that runs already"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    add_app(parser)
    add_scheduler(parser)
    add_history(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Watch to the end."""
    from tony_core.cli.follow import Follow, presenter_for

    with Interrupts() as interrupts:
        scheduler = scheduler_of(args, args.app)
        try:
            app_id = app_of(args, scheduler)
            presenter = presenter_for(args.json, scheduler)
            presenter.started(app_id)
            follow = Follow(scheduler, app_id, presenter, interrupts, history=history_of(args))
            return follow.run()
        finally:
            scheduler.close()
