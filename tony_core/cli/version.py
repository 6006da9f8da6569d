"""Which version this is, and of what."""

from __future__ import annotations

import argparse
import platform

from tony_core.cli.options import add_json
from tony_core.cli.output import line, print_json
from tony_core.version import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from tony_core.frameworks import framework_names
    from tony_core.schedulers import scheduler_names

    data = {
        "tony": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "schedulers": scheduler_names(),
        "frameworks": framework_names(),
    }
    if args.json:
        print_json(data)
        return 0
    line(f"tony {__version__}")
    for name, value in list(data.items())[1:]:
        line(f"  {name}: {', '.join(value) if isinstance(value, list) else value}")
    return 0
