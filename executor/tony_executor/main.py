"""The verb ``executor``: ``PYTHON -I -S RUNTIME executor --master HOST:PORT``.

The environment holds TONY_CONTAINER_ID, TONY_LOG_DIR and TONY_SECRET_FILE, and may hold TONY_NODE
(the address by which peers reach this node), TONY_MASTER_FILE (a file with the newest master's
address) and TONY_SUCCESSOR (JSON: the command that starts the next master). With TONY_SHIM a shim
above the executor ends what the executor leaves; else :mod:`tony_executor.guard` does. The exit
codes are constants of the package.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, Optional, Sequence

from tony_executor import guard
from tony_executor.exit_codes import EXIT_INTERNAL, EXIT_USAGE

USAGE = "usage: executor --master HOST:PORT [--register-timeout SECONDS]"
REGISTER_S = 300.0


def main(argv: Sequence[str]) -> int:
    """Run an executor to its end; returns its exit code."""
    options = _options(argv)
    if options is None:
        sys.stderr.write(USAGE + "\n")
        return EXIT_USAGE
    if not os.environ.get("TONY_SHIM"):
        guard.fork_executor()
    # After the fork: the guard has no use for these.
    from tony_executor.context import WrongArguments, read_context
    from tony_executor.shell import Shell

    runtime = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        register_s = float(options.get("--register-timeout", REGISTER_S))
        shell = Shell(read_context(os.environ, options["--master"], runtime), register_s)
    except (WrongArguments, ValueError) as error:
        sys.stderr.write(f"executor: {error}\n")
        return EXIT_USAGE
    try:
        return shell.run()
    except Exception:
        import traceback

        traceback.print_exc()
        return EXIT_INTERNAL


def _options(argv: Sequence[str]) -> Optional[Dict[str, str]]:
    # Not argparse: 2 MB for two options.
    if len(argv) % 2:
        return None
    found = dict(zip(argv[::2], argv[1::2]))
    known = {"--master", "--register-timeout"}
    return found if "--master" in found and set(found) <= known else None
