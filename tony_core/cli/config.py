"""``tony config``: the configuration as it comes together, the keys there are, a job file's
problems."""

from __future__ import annotations

import argparse
from typing import Any, Dict, List

from tony_core.cli.output import line, note, print_error, print_json
from tony_core.client.submission import Frameworks
from tony_core.files.registry import filesystem
from tony_core.job.keys.key import Status
from tony_core.job.keys.reference import as_dict, kind_of
from tony_core.job.keys.table import table
from tony_core.job.load import JobArguments, Loaded, load_job
from tony_core.job.mask import mask_settings, mask_text
from tony_core.job.problems import JobError, Problem, errors
from tony_core.job.validate import missing_sources

BAD_JOB = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="config_verb", metavar="VERB", required=True)
    show = verbs.add_parser("show", help="every value, with the file and line it came from")
    show.add_argument("--conf_file", "--conf-file", metavar="FILE", help="the job file")
    show.add_argument("--conf", action="append", default=[], metavar="K=V", help="one value")
    show.add_argument("--set", action="store_true", help="leave the defaults out")
    show.set_defaults(config_run=_show)
    keys = verbs.add_parser("keys", help="every key a job file may hold")
    keys.add_argument("pattern", nargs="?", default="", help="only keys that hold this text")
    keys.set_defaults(config_run=_keys)
    check = verbs.add_parser("check", help="everything that is wrong with a job file")
    check.add_argument("file", metavar="FILE")
    check.add_argument(
        "--from-jvm",
        action="store_true",
        help="it is a job file of the JVM TonY: name every difference that touches it",
    )
    check.set_defaults(config_run=_check)
    for verb in (show, keys, check):
        verb.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Return 0, or 2 for a bad job."""
    return int(args.config_run(args))


def _show(args: argparse.Namespace) -> int:
    arguments = JobArguments(conf_file=args.conf_file, conf=args.conf)
    try:
        loaded = _load(arguments)
    except JobError as error:
        return _refuse(args, error.problems)
    settings = [
        item
        for item in mask_settings(loaded.job.settings)
        if not (args.set and item.source == "default")
    ]
    settings.sort(key=lambda item: item.key)
    if args.json:
        rows = [
            {"key": s.key, "value": s.value, "source": s.source, "final": s.final} for s in settings
        ]
        print_json({"settings": rows})
        return 0
    for item in settings:
        final = ", final" if item.final else ""
        line(f"{item.key} = {item.value}  ({item.source}{final})")
    return 0


def _keys(args: argparse.Namespace) -> int:
    keys = [key for key in table().keys if args.pattern in key.name]
    if args.json:
        print_json({"keys": [as_dict(key) for key in keys]})
        return 0
    if not keys:
        note(f"no key has {args.pattern!r} in its name; tony config keys shows all")
    for key in keys:
        default = f" [{key.default}]" if key.default is not None else ""
        status = "" if key.status is Status.LIVE else f" ({key.status.value})"
        line(f"{key.name}{default}{status}\n    {kind_of(key)}: {key.doc}")
    return 0


def _check(args: argparse.Namespace) -> int:
    arguments = JobArguments(conf_file=args.file, from_jvm=args.from_jvm)
    try:
        loaded = _load(arguments)
        problems = [*missing_sources(loaded.job), *loaded.warnings]
    except JobError as error:
        problems = error.problems
    if args.json:
        _print_json(args.file, problems)
    else:
        for problem in problems:
            mark = "" if problem in errors(problems) else "warning: "
            line(mark + mask_text(str(problem)))
        if not problems:
            line(f"{args.file}: no problems")
    return BAD_JOB if errors(problems) else 0


def _refuse(args: argparse.Namespace, problems: List[Problem]) -> int:
    if args.json:
        _print_json(args.conf_file, problems)
    else:
        for problem in errors(problems):
            print_error(mask_text(str(problem)) + "\n")
    return BAD_JOB


def _print_json(file: str | None, problems: List[Problem]) -> None:
    rows: List[Dict[str, Any]] = [
        {
            "severity": problem.severity.value,
            "file": problem.file,
            "line": problem.line,
            "key": problem.key,
            "message": mask_text(problem.message),
        }
        for problem in problems
    ]
    print_json({"file": file, "ok": not errors(problems), "problems": rows})


def _load(arguments: JobArguments) -> Loaded:
    # The command often stands on the command line: a file without one is not wrong.
    return load_job(
        arguments,
        frameworks=Frameworks(),
        read_bytes=lambda location: filesystem(location).get(location),
        needs_command=False,
    )
