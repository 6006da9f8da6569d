"""Watch a job that runs already; after Ctrl-C it keeps running.

The exit code is the job's, as of ``tony submit``.
"""

from __future__ import annotations

import argparse

from tony_core.cli.interrupts import Interrupts
from tony_core.cli.options import add_app, add_places, open_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_app(parser)
    add_places(parser)


def run(args: argparse.Namespace) -> int:
    from tony_core.cli.follow import Follow, presenter_for

    with Interrupts() as interrupts, open_job(args) as (scheduler, app_id, history):
        presenter = presenter_for(args.json, scheduler)
        presenter.started(app_id)
        return Follow(scheduler, app_id, presenter, interrupts, history=history).run()
