"""Takes jobs of the JVM TonY over into a history of ours: once, from its folders.

What is written is what a master of ours would have left: the story, the summary, the configuration
(masked). It belongs to the user who imports it, as every history belongs to the owner of its files;
to keep the owners, a portal reads that TonY's folders where they are.
"""

from __future__ import annotations

import os
from typing import Any, Iterator, NamedTuple, Optional, Tuple

from tony_core.files.location import (
    base_name,
    is_app_id,
    is_remote,
    join,
    local_path,
    masked,
    parent,
)
from tony_core.files.registry import filesystem
from tony_core.history.access import file_mode, prepare
from tony_core.history.layout import CONFIG, ENDED, SUMMARY, segment_name
from tony_core.history.reader import JobHistory
from tony_core.jsontext import write_value
from tony_core.portal.job_folders import JobFolder, open_local, open_remote
from tony_core.portal.jvm.location import FINISHED, INTERMEDIATE, JvmFolder, JvmLocation


class NotThere(LookupError):
    """The source is no folder of the JVM TonY; the message says what it should be."""


class Imported(NamedTuple):
    """What became of one job."""

    app_id: str
    folder: str = ""  # where it is now; empty: it was left out
    why: str = ""  # it was left out
    problems: Tuple[str, ...] = ()  # what could not be read of it
    failed: bool = False  # it was left out for a fault


def import_jobs(source: str, root: str, location: str = "") -> Iterator[Imported]:
    """Import every job below a folder, or the one job whose folder it is; the oldest id first.

    ``location``: the place that the site names, where history may be shared. Raises
    :class:`NotThere`, OSError.
    """
    for app_id, folder in _folders(source):
        try:
            with folder() as opened:
                yield _import(opened, root, location)
        except (OSError, LookupError) as error:
            yield Imported(app_id, why=str(error), failed=True)


def _folders(source: str) -> Iterator[Tuple[str, Any]]:
    source = source.rstrip("/") or source
    files = filesystem(source)
    try:
        names = {base_name(item.location) for item in files.list(source)}
    except (FileNotFoundError, NotADirectoryError):
        raise NotThere(f"{masked(source)} is no folder") from None
    if names & {INTERMEDIATE, FINISHED}:
        location = JvmLocation(source)
        for app_id in sorted(location.names()):
            yield app_id, lambda app_id=app_id: location.open(app_id)
        return
    name, above = base_name(source), parent(source)
    if not is_app_id(name) or not any(each.endswith((".jhist", ".inprogress")) for each in names):
        raise NotThere(
            f"{masked(source)} is neither the history folder of the JVM TonY (with"
            f" {INTERMEDIATE!r} and {FINISHED!r} in it) nor the folder of one of its jobs"
        )
    yield name, lambda: _open(above, name)


def _open(above: str, name: str) -> JobFolder:
    if is_remote(above):
        return open_remote(filesystem(above), above, name, JvmFolder)
    return open_local(os.path.abspath(local_path(above)), name, JvmFolder)


def _import(opened: JobFolder, root: str, location: str) -> Imported:
    app_id = opened.app_id
    record = opened.record()
    if record.job.get("state") not in ENDED:
        return Imported(app_id, why="it has not ended")
    folder = join(root, app_id)
    files = filesystem(folder)
    if any(files.exists(join(folder, name)) for name in (SUMMARY, segment_name(1))):
        return Imported(app_id, why="it is in that history already")
    prepare(files, folder, location)
    for name, data in _written(record, opened.config()):
        files.put(join(folder, name), data, file_mode(files, folder))
    return Imported(app_id, folder, problems=record.problems)


def _written(record: JobHistory, config: Optional[bytes]) -> Iterator[Tuple[str, bytes]]:
    """The files of a history, the summary last: with it the job is there."""
    if config is not None:
        yield CONFIG, config
    lines = b"".join(write_value(event).encode() + b"\n" for event in record.events)
    yield segment_name(1), lines
    summary = {"job": record.job, "tasks": record.tasks, "metrics": record.metrics}
    yield SUMMARY, write_value(summary).encode()
