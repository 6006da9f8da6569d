"""``tony``: finds the verb, runs it, and turns an error into a message and an exit code."""

from __future__ import annotations

import os
import sys
from typing import List, Optional, Sequence

from tony_core.version import __version__

DEBUG = "--debug"
#: Verbs that only show, and how long they wait for a cluster's file system that does not answer.
LOOKS = ("list", "status", "describe", "history", "compare", "advise")
LOOK_S = 18.0


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The exit code of one command line (docs/cli.md has the table)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"tony {__version__}\n")  # before anything is imported
        return 0
    try:
        _prepare_streams()
        return _run_reporting(arguments)
    except KeyboardInterrupt:  # before or after the verb, which handles it otherwise
        sys.stderr.write("tony: interrupted\n")
        return 130


def _run_reporting(arguments: List[str]) -> int:
    debug = DEBUG in arguments or bool(os.environ.get("TONY_DEBUG"))
    from tony_core.cli import errors

    try:
        return _run(arguments)
    except BaseException as error:
        code = errors.report_error(error, debug)
        if code is None:
            raise
        return code
    finally:
        errors.flush()


def _prepare_streams() -> None:
    """Make standard output and error take any message, even if closed or unable to show it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell (>&-)
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: List[str]) -> int:
    from tony_core.cli.parser import describe_unknown, nearest
    from tony_core.cli.verbs import VERBS, module_of, parser_of
    from tony_core.client.errors import UsageError

    while arguments and arguments[0] == DEBUG:
        arguments = arguments[1:]
    if not arguments:
        sys.stderr.write(overview())
        return 2
    verb, rest = arguments[0], arguments[1:]
    if verb in ("-h", "--help", "help"):
        if rest and rest[0] in VERBS:
            verb, rest = rest[0], ["--help"]
        else:
            sys.stdout.write(overview())
            return 0
    if verb.startswith("-"):
        raise UsageError(
            f"{describe_unknown(verb, ['--help', '--version', DEBUG])}; a verb's options follow"
            " it, as in: tony submit --help"
        )
    if verb not in VERBS:
        raise UsageError(f"there is no verb {verb!r}{nearest(verb, list(VERBS))} (tony --help)")
    args = parser_of(verb).parse_args(rest)
    if verb not in LOOKS:
        return module_of(verb).run(args)
    from tony_core.files.port import limited_wait

    with limited_wait(LOOK_S):
        return module_of(verb).run(args)


def overview() -> str:
    from tony_core.cli.verbs import VERBS

    lines = [
        "usage: tony VERB ...",
        "",
        "Runs distributed machine-learning jobs on whatever scheduler there is.",
        "",
        *(f"  {name:<12} {text}" for name, text in VERBS.items()),
        "",
        "  tony VERB --help shows a verb's options. tony --version shows the version.",
        "",
        '  tony submit --executes "python train.py" --src_dir src --conf_file tony.xml',
        "",
    ]
    return "\n".join(lines)


def entry() -> None:
    """Run ``tony`` (also ``python -m tony_core.cli.main``) and exit with its code."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
