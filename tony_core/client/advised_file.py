"""The job file of a run, and beside it the one with the advice: found, checked, written."""

from __future__ import annotations

import os
import stat
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.advice.advice import Advice
from tony_core.advice.apply import (
    Applied,
    apply,
    find_difference,
    job_files,
    overrides,
    read_settings,
)
from tony_core.client.errors import UsageError
from tony_core.client.submission import Frameworks
from tony_core.files.location import is_remote
from tony_core.job.limits import check_limits
from tony_core.job.load import JobArguments, load_job
from tony_core.job.problems import JobError, Problem, errors
from tony_core.job.validate import missing_sources
from tony_core.job.xml_edit import CannotEdit
from tony_core.job.xmlfile import MOST_BYTES, Entry, read_xml


class AdvisedFile(NamedTuple):
    """A job file, and what advice makes of it."""

    path: str
    old: bytes
    applied: Applied
    warnings: Tuple[Problem, ...] = ()

    @property
    def is_changed(self) -> bool:
        return self.applied.data != self.old


def apply_to_file(
    path: str, advice: Sequence[Advice], config: bytes, data: Optional[bytes] = None
) -> AdvisedFile:
    """Apply advice to a job file and check the result as a submit does; nothing is written.

    ``path`` empty: the file that ``config``, the run's configuration, names. ``data`` is what the
    file holds, where it was read already.
    """
    settings = read_settings(config)
    path = path or find_job_file(settings)
    old = read_job_file(path) if data is None else data
    try:
        applied = apply(old, path, advice, settings, _final_keys())
    except CannotEdit as error:
        raise UsageError(str(error)) from None
    above = overrides(settings)
    for change in applied.changes:
        above.pop(change.key, None)
    found = _check(applied.data, path, above)
    return AdvisedFile(path, old, applied, tuple(_only_new(found, old, path, above)))


def find_job_file(settings: Mapping[str, Entry]) -> str:
    """The job file of a run, if this machine has it and it is still the same."""
    found = job_files(settings)
    if len(found) != 1:
        named = ", ".join(found) if found else "none"
        raise UsageError(f"name the job file: --apply FILE (the job's history names {named})")
    (path,) = found
    if is_remote(path):
        raise UsageError(f"the job file was {path}: copy it to this machine, then --apply FILE")
    if not os.path.isfile(_plain(path)):
        raise UsageError(
            f"the job file was {path}, which is not on this machine, or not in this folder; name"
            " it: --apply FILE"
        )
    try:
        key = find_difference(read_job_file(path), path, settings)
    except CannotEdit as error:
        raise UsageError(str(error)) from None
    if key:
        raise UsageError(
            f"{path} is not the job file of that run any more ({key} differs); name the file to"
            " change: --apply FILE"
        )
    return path


def advised_name(path: str) -> str:
    """``tony.advised.xml`` for ``tony.xml``."""
    root, extension = os.path.splitext(_plain(path))
    return f"{root}.advised{extension}"


def write_new(target: str, data: bytes, like: str) -> None:
    """Write a file that does not exist yet, with the permissions of ``like``."""
    if is_remote(target):
        raise UsageError(f"{target} is not on this machine: name a file here by --output")
    try:
        mode = stat.S_IMODE(os.stat(_plain(like)).st_mode) & 0o777
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise UsageError(
            f"{target} exists already and is not overwritten; remove it, or name another file by"
            " --output"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror}; name another file by --output"
        ) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
    except OSError:
        os.unlink(target)
        raise


def read_job_file(path: str) -> bytes:
    """The bytes of a job file of this machine; UsageError where there is none."""
    if is_remote(path):
        raise UsageError(f"{path} is not on this machine: copy it here, then --apply FILE")
    try:
        with open(_plain(path), "rb") as file:
            return file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot be read: {reason}") from None


def _plain(path: str) -> str:
    return path.removeprefix("file://")


def _final_keys() -> Dict[str, str]:
    """The keys that this machine's site file seals, with their places."""
    if not os.environ.get("TONY_CONF_DIR"):
        return {}
    try:
        job = load_job(JobArguments(), needs_command=False, program=()).job
    except JobError:
        return {}  # what is wrong with it is reported with the check of the result
    return {item.key: item.source for item in job.settings if item.final}


def _check(data: bytes, path: str, above: Mapping[str, str]) -> List[Problem]:
    """Check a job file as a submit does; its warnings. JobError where it would be refused."""
    entries, problems = read_xml(data, path)
    if errors(problems):
        raise JobError(problems)
    # The command, too, often stands on the command line.
    arguments = JobArguments(conf=dict(above))
    loaded = load_job(arguments, program=entries, frameworks=Frameworks(), needs_command=False)
    wrong = check_limits(loaded.job)
    if wrong:
        raise JobError(wrong)
    return [*missing_sources(loaded.job), *loaded.warnings]


def _only_new(
    found: Sequence[Problem], old: bytes, path: str, above: Mapping[str, str]
) -> List[Problem]:
    """Those that the file did not have before, as a file of the job that this machine lacks."""
    try:
        known = {(each.key, each.message) for each in _check(old, path, above)}
    except JobError:
        known = set()
    return [each for each in found if (each.key, each.message) not in known]
