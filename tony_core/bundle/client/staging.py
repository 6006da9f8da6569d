"""Stages what was planned where containers find it; publishes a runtime for all users.

In this order: lease, content, and on this machine the job folder. Whatever fails, what this
call wrote goes again, apart from content that is whole: the next submit will find it, or
``tony gc`` take it.
"""

from __future__ import annotations

import contextlib
import errno
import json
from typing import Callable, Dict, Optional, Sequence, Tuple

from tony_core.bundle import jobfolder
from tony_core.bundle.client import contents
from tony_core.bundle.client import runtime as runtimes
from tony_core.bundle.client.destination import home_store, with_staged_times
from tony_core.bundle.client.planning import Plan
from tony_core.bundle.client.pythons import Python
from tony_core.bundle.client.staging_errors import StagingError, staging_error
from tony_core.bundle.client.tree import Changed
from tony_core.bundle.local.store import Store
from tony_core.bundle.localization import remote_digest
from tony_core.bundle.remote.store import RemoteStore, Staged
from tony_core.files.artifact import Artifact
from tony_core.files.location import is_remote, local_path, masked, scheme_of
from tony_core.files.port import FileSystem
from tony_core.files.registry import filesystem
from tony_core.job.jsonfile import job_to_json
from tony_core.job.problems import JobError, Problem
from tony_core.job.spec import Job
from tony_core.job.xmlfile import job_to_xml
from tony_core.plugins import Plugin


def stage(
    plan: Plan,
    root: str,
    app_id: str,
    job: Job,
    secret: bytes,
    *,
    files: Optional[Callable[[str], FileSystem]] = None,
) -> Tuple[Artifact, ...]:
    """Stage everything for one application; the artifacts as they stand now.

    :class:`JobError` when the plan has errors or a source changed meanwhile,
    :class:`StagingError` when the staging place failed. Nothing of the job is left then.

    Below a remote root there is no job folder: what the master reads travels with the
    submission, and the secret with it. ``files`` opens that root (by default
    the registry).
    """
    if plan.errors:
        raise JobError(plan.problems)
    try:
        if is_remote(root):
            with staging_error(root):
                return _stage_remotely(plan, RemoteStore(root, files), app_id)
        return _stage_locally(plan, local_path(root), app_id, job, secret)
    except Changed as error:
        raise JobError([Problem(f"{error.filename} {error.strerror}; submit again")]) from error


def _stage_remotely(plan: Plan, store: RemoteStore, app_id: str) -> Tuple[Artifact, ...]:
    """One round trip each for lease and lookup where everything is there already.

    Objects are uploaded one after the other: one fills the network, and an interrupt ends it.
    """
    staged: Dict[str, Staged] = {}
    try:
        store.prepare()
        store.take_lease(app_id, (upload.digest for upload in plan.uploads))
        found = store.look_all({upload.digest: upload.file for upload in plan.uploads})
        for upload in plan.uploads:
            assert upload.write is not None
            there = found[upload.digest]
            staged[upload.digest] = there or store.put(upload.digest, upload.file, upload.write)
    except BaseException:
        # An error of the cleaning would hide the one that matters; gc takes an old lease.
        with contextlib.suppress(OSError):
            store.drop_lease(app_id)
        raise
    with contextlib.suppress(OSError):  # a cache saves time, no more
        home_store().prepare()
        for cache in plan.caches:
            cache.save()
    return with_staged_times(plan.artifacts, staged)


def _stage_locally(
    plan: Plan, root: str, app_id: str, job: Job, secret: bytes
) -> Tuple[Artifact, ...]:
    store = Store(root)
    leased = {upload.digest for upload in plan.uploads}
    leased |= {remote_digest(item) for item in plan.artifacts if is_remote(item.uri)}
    try:
        store.take_lease(app_id, leased)
        try:
            for upload in plan.uploads:
                if not (upload.present and store.is_there(upload.digest)):
                    store.put(upload.digest, upload.make, upload.meta)
            for cache in plan.caches:
                cache.save()
            artifacts = [item.to_json() for item in plan.artifacts]
            jobfolder.write(
                root,
                app_id,
                {
                    "job.json": job_to_json(job).encode(),
                    "tony-final.xml": job_to_xml(job, masked=True).encode(),
                    "artifacts.json": json.dumps(artifacts, indent=1).encode(),
                    jobfolder.SECRET: secret,
                },
            )
        except BaseException:
            jobfolder.remove(root, app_id)
            raise
    except Changed:
        raise
    except OSError as error:
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "; make room there (tony gc), or set TONY_HOME to a larger disk"
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            advice = "; set TONY_HOME to a folder that you can write"
        why = error.strerror or str(error)
        where = f" [{error.filename}]" if error.filename else ""
        raise StagingError(
            f"the job's files cannot be staged below {root}: {why}{where}{advice}"
        ) from error
    return plan.artifacts


# ------------------------------------------------------------------ a runtime for all users


def publish_runtime(
    location: str, pythons: Sequence[Python] = (), plugins: Sequence[Plugin] = ()
) -> int:
    """Write the runtime's archive to where ``tony.runtime.location`` names it; returns its size.

    Nodes then fetch our code once for all users (YARN's visibility PUBLIC), and users upload
    none. ``pythons``: the versions that it holds bytecode for (ours by default). YARN refuses a
    file in a folder that is closed to others; so does this, before it writes anything.
    """
    if not location.endswith(".tar"):
        raise ValueError(f"{masked(location)} must end in .tar: nodes unpack it by its name")
    files = filesystem(location)
    described, _ = runtimes.describe(None, tuple(pythons) or (Python.running(),), tuple(plugins))
    folder = location.rpartition("/")[0]
    files.mkdir(folder, 0o755)
    for above in _folders(folder):
        mode = files.stat(above).mode
        if mode is not None and not mode & 0o001:
            raise PermissionError(
                errno.EACCES,
                "is closed to others (it needs the mode o+x), so nodes would refuse what is in it",
                masked(above),
            )
    write = contents.of_runtime(runtimes.load(described)).packed().write
    files.write(location, write, 0o644)
    return files.stat(location).size


def _folders(folder: str) -> Sequence[str]:
    """The folder and all above it, as far as names go."""
    found = []
    bottom = len(scheme_of(folder)) + 3 if scheme_of(folder) else 0
    while "/" in folder[bottom:]:
        found.append(folder)
        folder = folder.rpartition("/")[0]
    return found
