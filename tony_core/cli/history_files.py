"""Jobs of history as files for other programs and people, and other programs' files as history."""

from __future__ import annotations

import argparse
import os
from typing import Any, Dict, Optional, Tuple

from tony_core.advice.report import report_on
from tony_core.cli.options import history_of
from tony_core.cli.output import line, note, print_json, raw, safe, warn
from tony_core.client.errors import ClientError, UsageError
from tony_core.client.exit_codes import ExitCode
from tony_core.files.location import is_remote, join, local_path, masked
from tony_core.files.registry import filesystem
from tony_core.history.configuration import ConfigEntry, parse_config
from tony_core.history.reader import JobHistory
from tony_core.jsontext import write_value
from tony_core.view import JobView

FORMATS = ("html", "json", "jhist")


class MissingExtra(ClientError):
    """A library of the extra ``portal`` is missing."""


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "app", nargs="?", metavar="ID", help="its id, or enough of it; without: the newest"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="html",
        help="html: one file that any browser opens, without a network [html]; json: all that is"
        " known; jhist: the JVM TonY's files",
    )
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="a file, - for standard output [ID.html, ID.json]; with jhist the folder in which"
        " the job's folder is made [.]",
    )


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="PATH",
        help="the JVM TonY's history folder (with intermediate and finished in it), or the folder"
        " of one of its jobs; a path or a URL",
    )


def export(
    args: argparse.Namespace, record: JobHistory, view: JobView, config: Optional[bytes]
) -> int:
    """Write one job as a file, or a folder, of the format that the options name."""
    if args.format == "jhist":
        return _export_jhist(args, record, config)
    if args.format == "json":
        data = encode_document(record, view, config)
    else:
        data = _page(record, view, config)
    target = args.output or f"{record.app_id}.{args.format}"
    if target == "-":
        raw(data)
        return 0
    _write(target, data.encode("utf-8", "replace"))
    note(f"written: {masked(target)}")
    return 0


def _write(target: str, data: bytes) -> None:
    """Write a file whole, or into what stands there already: a pipe, a device, a link's target."""
    if is_remote(target):
        filesystem(target).put(target, data, 0o600)
        return
    path = os.path.realpath(local_path(target))
    if os.path.isdir(path):
        raise UsageError(f"{target} is a folder; name a file in it by --output")
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as stream:
                stream.write(data)
        else:
            filesystem(path).put(path, data, 0o600)
    except OSError as error:
        # Not the name of the file beside it that was to become the target.
        raise type(error)(error.errno, error.strerror or str(error), target) from None


def document(record: JobHistory, view: JobView, config: Optional[bytes]) -> Dict[str, Any]:
    """All that history has of a job."""
    entries, problems = read_entries(config)
    return {
        "job": view.to_json(),
        "events": [dict(event) for event in record.events],
        "metrics": dict(record.metrics),
        "config": [entry._asdict() for entry in entries],
        "advice": [each.to_json() for each in report_on(record, config or b"").advice],
        "problems": [*record.problems, *problems],
    }


def encode_document(record: JobHistory, view: JobView, config: Optional[bytes]) -> str:
    """The :func:`document` as JSON."""
    return write_value(document(record, view, config), indent=2) + "\n"


def read_entries(
    config: Optional[bytes],
) -> Tuple[Tuple[ConfigEntry, ...], Tuple[str, ...]]:
    """The configuration, and why there is none."""
    if config is None:
        return (), ()
    try:
        return parse_config(config), ()
    except ValueError as error:
        return (), (str(error),)


def _page(record: JobHistory, view: JobView, config: Optional[bytes]) -> str:
    try:
        from tony_core.portal.export import export_page
    except ImportError as error:
        raise _missing("a page", error) from None
    entries, problems = read_entries(config)
    report = report_on(record, config or b"")
    return export_page(record, view, entries, problems, report=report)


def _export_jhist(args: argparse.Namespace, record: JobHistory, config: Optional[bytes]) -> int:
    from tony_core.portal.jvm.avro import MissingLibrary
    from tony_core.portal.jvm.names import UnusableRoot, check_root
    from tony_core.portal.jvm.publication import write_folder
    from tony_core.portal.jvm.writing import NotEnded, jvm_files

    target = args.output or "."
    if target == "-":
        raise UsageError("--format jhist writes a folder with two files; name one by --output")
    try:
        made = jvm_files(record, config)
    except MissingLibrary as error:
        raise MissingExtra(str(error)) from None
    except NotEnded as error:
        raise UsageError(str(error)) from None
    folder = write_folder(filesystem(target), join(target, record.app_id), made, 0o700, 0o600)
    note(f"written: {masked(folder)}")
    try:
        check_root(target if is_remote(target) else os.path.abspath(target))
    except UnusableRoot as error:
        warn(str(error))
    return 0


def import_history(args: argparse.Namespace, root: str) -> int:
    """Import jobs of the JVM TonY into the history at ``root``."""
    from tony_core.portal.jvm.avro import MissingLibrary, library
    from tony_core.portal.jvm.importing import NotThere, import_jobs

    try:
        library()
        found = list(import_jobs(args.source, root, history_of(args) or ""))
    except MissingLibrary as error:
        raise MissingExtra(str(error)) from None
    except NotThere as error:
        raise UsageError(str(error)) from None
    done = [job for job in found if job.folder]
    if args.json:
        print_json(
            {
                "history": root,
                "imported": [
                    {"app_id": job.app_id, "problems": list(job.problems)} for job in done
                ],
                "left_out": [
                    {"app_id": job.app_id, "why": job.why} for job in found if not job.folder
                ],
            }
        )
    else:
        for job in found:
            if job.folder:
                line(f"{job.app_id}  imported")
            else:
                line(f"{job.app_id}  left out: {safe(job.why)}")
            for problem in job.problems:
                warn(problem)
        note(f"{len(done)} of {len(found)} jobs imported into {masked(root)}")
    return int(ExitCode.FAILED) if any(job.failed for job in found) else 0


def _missing(what: str, error: ImportError) -> MissingExtra:
    return MissingExtra(
        f"{what} needs {error.name or error}: in TonY's checkout, pip install '.[portal]'"
    )
