"""Plans what to stage of a job, without writing anything.

Every source is read, every digest computed and every problem reported before the first byte is
staged. A source that several roles name is read once.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from tony_core.bundle import archive
from tony_core.bundle.archive_streams import ArchiveLimits
from tony_core.bundle.client import contents
from tony_core.bundle.client import runtime as runtimes
from tony_core.bundle.client.contents import Content
from tony_core.bundle.client.destination import (
    Cache,
    Destination,
    ResolvedSource,
    Upload,
    open_destination,
)
from tony_core.bundle.client.login_files import LoginFiles
from tony_core.bundle.client.pythons import (
    Python,
    PythonCache,
    check_venv_archive,
    check_venv_folder,
)
from tony_core.bundle.client.sources import Source, list_program_files, list_sources
from tony_core.bundle.client.tree import (
    EXCLUDED,
    Entry,
    Tree,
    Type,
    file_digest_name,
    hash_tree,
    read_ignores,
    scan,
)
from tony_core.bundle.digests import DigestCache, Stamp
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.files.location import base_name, is_remote, local_path, masked
from tony_core.files.port import FileSystem
from tony_core.files.registry import filesystem
from tony_core.job.problems import Problem, Severity, did_you_mean, problem_at
from tony_core.job.spec import Job
from tony_core.plugins import INDEX, Plugin

_MOST_LINES = 20
_PYTHON = re.compile(r"python[0-9.]*")


class Plan:
    def __init__(self) -> None:
        self.artifacts: Tuple[Artifact, ...] = ()
        self.uploads: Tuple[Upload, ...] = ()
        self.problems: List[Problem] = []
        self.caches: List[Cache] = []

    @property
    def errors(self) -> List[Problem]:
        """The problems that refuse the job."""
        return [item for item in self.problems if item.severity is Severity.ERROR]

    @property
    def upload_bytes(self) -> int:
        """How much is not in the store yet."""
        return sum(item.size for item in self.uploads if not item.present)


def plan(
    job: Job,
    root: str,
    *,
    files: Optional[Callable[[str], FileSystem]] = None,
    plugins: Sequence[Plugin] = (),
    login_files: LoginFiles = LoginFiles(),
) -> Plan:
    """Plan everything that must be staged for the job.

    ``root`` is the scheduler's staging root, local or remote; :class:`StagingError` when a remote
    one cannot be reached. ``files`` opens remote sources (by default the registry). ``plugins``
    are those of other distributions that the job's master needs; ``login_files`` stay here.
    """
    files = files or filesystem
    return _Planner(job, open_destination(root, files), files, plugins, login_files).run()


class _Planner:
    def __init__(
        self,
        job: Job,
        destination: Destination,
        files: Callable[[str], FileSystem],
        plugins: Sequence[Plugin] = (),
        login_files: LoginFiles = LoginFiles(),
    ) -> None:
        self._job = job
        self._login_files = login_files
        self._plugins = plugins
        self._limits = ArchiveLimits.of(job.limits.archive_mb, job.limits.archive_members)
        self._destination = destination
        self._files = files
        self._plan = Plan()
        self._uploads: Dict[str, Upload] = {}
        self._seen: Dict[Tuple[str, bool, bool], Optional[ResolvedSource]] = {}
        self._src: Optional[Tree] = None  # the source folder, once it was scanned

    def run(self) -> Plan:
        artifacts: List[Artifact] = []
        runtime = self._plan_runtime()
        if runtime is not None:
            artifacts.append(runtime)
        for source in list_sources(self._job, self._report):
            found = self._resolve(source)
            if found is not None:
                artifacts.append(_artifact(source, found))
        self._plan.artifacts = _merged(artifacts)
        self._check_names()
        if not self._plan.errors:
            self._check_programs()
        self._plan.uploads = tuple(self._uploads.values())
        for upload in self._plan.uploads:
            if upload.damage:
                self._report(
                    "",
                    f"what was staged of {upload.name} {upload.damage}: it is staged again",
                    Severity.WARNING,
                )
        self._plan.caches.append(self._destination)
        self._destination.mark_staged(self._plan)
        return self._plan

    # ------------------------------------------------------------------ what is there

    def _resolve(self, source: Source) -> Optional[ResolvedSource]:
        """Where containers find a source; None when there is a problem, which is reported."""
        unpack = source.archive or source.use in (Use.SOURCE, Use.VENV)
        if is_remote(source.location):
            return self._resolve_remote(source, unpack)
        try:
            path = os.path.realpath(local_path(source.location))
        except ValueError as error:
            self._report(source.key, str(error))
            return None
        seen = (path, unpack, source.use is Use.SOURCE)
        if seen not in self._seen:
            self._seen[seen] = self._resolve_local(source, path, unpack)
        return self._seen[seen]

    def _resolve_local(self, source: Source, path: str, unpack: bool) -> Optional[ResolvedSource]:
        try:
            found = os.stat(path)
            if os.path.isdir(path):
                return self._resolve_folder(source, path)
            if not os.path.isfile(path):
                self._report(source.key, f"{source.location} is neither a file nor a folder")
                return None
            return self._resolve_file(source, path, unpack, bool(found.st_mode & 0o100))
        except FileNotFoundError:
            self._report(source.key, f"{source.location} does not exist")
        except OSError as error:
            self._report(
                source.key, f"{source.location} cannot be read ({error.strerror or error})"
            )
        return None

    def _resolve_folder(self, source: Source, path: str) -> Optional[ResolvedSource]:
        excluded: Tuple[str, ...] = ()
        if source.use is Use.SOURCE:
            excluded = EXCLUDED + read_ignores(path)
        tree = scan(path, excluded, never_enter=(self._destination.excluded,))
        cache = DigestCache(path, self._destination.digests)
        for entry in tree.entries:
            refused = entry.stamp and self._find_login_file(entry.path, tree.root, entry.stamp)
            if refused:
                tree.problems.append(refused)
        if not tree.problems:
            hash_tree(tree, cache)
            self._plan.caches.append(cache)
        if tree.problems:
            lines = [f"{source.location}: {problem}" for problem in tree.problems]
            for line in _first(lines):
                self._report(source.key, line)
            return None
        if source.use is Use.VENV:
            checked = check_venv_folder(tree.root, self._job.program.python)
            if self._report_python(source, checked.problems):
                return None
            for doubt in checked.warnings:
                self._report(source.key, f"{source.location}: {doubt}", Severity.WARNING)
        if source.use is Use.SOURCE:
            self._src = tree
        self._warn_of_tree(source, tree)
        return self._upload(contents.of_folder(tree), source.name)

    def _find_login_file(self, path: str, root: str, stamp: Stamp) -> str:
        """What is wrong with a file of a folder that may be one of a login; empty: nothing."""
        try:
            refused = self._login_files.find_problem(os.path.join(root, path), stamp)
        except OSError as error:
            refused = f"cannot be read ({error.strerror or error})"
        return f"{path} {refused}" if refused else ""

    def _warn_of_tree(self, source: Source, tree: Tree) -> None:
        doubts = []
        if source.use is not Use.VENV and tree.links_out:
            doubts.append(_links_out(tree.links_out))
        if source.use is Use.SOURCE and tree.venvs:
            doubts.append(
                f"holds a virtual environment ({tree.venvs[0]}), which every task copies into "
                "its working folder; name it in .tonyignore, or give it as --python_venv"
            )
        for doubt in doubts:
            self._report(source.key, f"{source.location}: {doubt}", Severity.WARNING)

    def _report_python(self, source: Source, problems: List[str]) -> bool:
        for problem in problems:
            self._report("tony.client.python-binary-path", f"{source.location} {problem}")
        return bool(problems)

    def _resolve_file(
        self, source: Source, path: str, unpack: bool, executable: bool
    ) -> Optional[ResolvedSource]:
        cache = DigestCache(path, self._destination.digests)
        stamp = Stamp.of(os.stat(path))
        refused = self._login_files.find_problem(path, stamp)
        if refused:
            self._report(source.key, f"{source.location} {refused}")
            return None
        digest = cache.get("", stamp)
        if digest is None:
            digest, stamp = cache.compute("", path)
        self._plan.caches.append(cache)
        if unpack:
            executable = False  # an archive's own exec bit means nothing
        name = file_digest_name(digest, executable)
        meta = self._check_archive(source, path, name) if unpack else {}
        if meta is None:
            return None
        entry = Entry("", Type.FILE, executable, digest=digest, stamp=stamp)
        if unpack:
            content = contents.of_archive(
                path, entry, name, str(meta.get("form", "tar")), self._limits
            )
        else:
            content = contents.of_file(path, entry, name)
        return self._upload(content, source.name, meta)

    def _check_archive(self, source: Source, path: str, digest: str) -> Optional[Dict[str, Any]]:
        """Check that an archive can be unpacked; None when it cannot.

        To read all of it takes a while, so the result is remembered with what is staged.
        """
        inputs = [source.use is Use.VENV, self._job.program.python]
        meta = self._destination.read_check(digest)
        if meta.get("asked") != inputs:
            try:
                found = archive.check(path, self._limits)
            except archive.ArchiveError as error:
                for problem in error.problems:
                    self._report(source.key, f"{source.location}: {problem}")
                return None
            doubts = []
            if source.use is Use.VENV:
                checked = check_venv_archive(found, self._job.program.python)
                if self._report_python(source, checked.problems):
                    return None
                doubts = checked.warnings
            elif found.links_out:
                doubts = [_links_out(found.links_out)]
            meta = {"asked": inputs, "doubts": doubts, "form": contents.form_of(path, found)}
            self._destination.save_check(digest, meta)
        for doubt in meta["doubts"]:
            self._report(source.key, f"{source.location}: {doubt}", Severity.WARNING)
        return meta

    def _resolve_remote(self, source: Source, unpack: bool) -> Optional[ResolvedSource]:
        shown = masked(source.location)
        try:
            name = base_name(source.location).lower()
            if source.use in (Use.SOURCE, Use.VENV) and not name.endswith(archive.SUFFIXES):
                self._report(
                    source.key,
                    f"{shown}: a remote source folder or environment must be an archive"
                    f" ({archive.SUPPORTED})",
                )
                return None
            found = self._files(source.location).stat(source.location)
        except FileNotFoundError as error:
            if source.use is Use.CLASSPATH:
                self._report(
                    source.key, f"{shown} does not exist and is left out", Severity.WARNING
                )
                return None
            self._report(source.key, f"{shown} does not exist ({error.strerror})")
            return None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            self._report(source.key, f"{shown}: {why}")
            return None
        kind = Kind.ARCHIVE if unpack else Kind.FOLDER if found.is_dir else Kind.FILE
        refused = self._destination.why_unusable(source, kind, found)
        if refused:
            self._report(source.key, f"{shown}: {refused}")
            return None
        doubt = self._destination.warning_of(source, kind)
        if doubt:
            self._report(source.key, f"{shown}: {doubt}", Severity.WARNING)
        if self._destination.must_fetch(source.location):
            if kind is Kind.FOLDER or found.is_dir:
                words = "is a folder there: name an archive or a file, or read it by tony.dataset"
                self._report(source.key, f"{shown} {words}")
                return None
            return self._upload(
                contents.of_download(source.location, kind, found, self._files), name
            )
        return ResolvedSource(kind, source.location, "", found.size, found.mtime_ms)

    # ------------------------------------------------------------------ our own code

    def _plan_runtime(self) -> Optional[Artifact]:
        job = self._job
        pythons = PythonCache(self._destination.digests)
        python = pythons.inspect(job.runtime.python)
        if job.scheduler == "local":
            key = "tony.runtime.python"
            if python is None:
                self._report(key, f"{job.runtime.python} is no Python that runs on this machine")
            elif python.version < runtimes.OLDEST:
                version = ".".join(map(str, python.version))
                oldest = ".".join(map(str, runtimes.OLDEST))
                self._report(
                    key, f"{job.runtime.python} is Python {version}; {oldest} or newer is needed"
                )
        self._plan.caches.append(pythons)
        if job.runtime.location:
            source = Source(
                job.runtime.location, runtimes.NAME, Use.RUNTIME, "tony.runtime.location", True
            )
            found = self._resolve(source)
            if found is None:
                return None
            for plugin in self._plugins:
                self._report(
                    source.key,
                    f"must hold {plugin.name} ({plugin.target}) and {INDEX}: a runtime that is"
                    " there already gets nothing from here",
                    Severity.WARNING,
                )
            return _artifact(source, found)
        inputs = (Python.running(), *((python,) if python else ()))
        try:
            runtime, cache = runtimes.describe(self._destination.digests, inputs, self._plugins)
            if not self._destination.has(runtime.digest):
                runtime = runtimes.load(runtime)
        except (OSError, runtimes.RuntimeMissing) as error:
            self._report("tony.runtime.location", str(error))
            return None
        except runtimes.PluginError as error:
            self._report("tony.application.framework", str(error))
            return None
        self._plan.caches.append(cache)
        found = self._upload(contents.of_runtime(runtime), runtimes.NAME)
        return Artifact(
            runtimes.NAME, Use.RUNTIME, found.kind, "tony", found.uri, found.digest, found.size
        )

    def _upload(
        self, content: Content, name: str, meta: Optional[Mapping[str, Any]] = None
    ) -> ResolvedSource:
        """Add an upload; returns where the content will be."""
        found, upload = self._destination.locate(content, name, meta or {})
        self._uploads.setdefault(upload.digest, upload)
        return found

    # ------------------------------------------------------------------ programs

    def _check_programs(self) -> None:
        """Check that each command's files are in the source folder or among the resources."""
        if self._job.program.src and self._src is None:
            return  # an archive, or remote: it was not scanned
        entries = self._src.entries if self._src else []
        there = [entry.path for entry in entries]
        links = {entry.path for entry in entries if entry.type is Type.LINK}
        for role in self._job.roles:
            resources = {
                x.name for x in self._plan.artifacts if not x.roles or role.name in x.roles
            }
            keys = (f"tony.{role.name}.command", "tony.containers.command")
            key = next((each for each in keys if self._job.setting(each)), "tony.client.executes")
            for path in list_program_files(role.command):
                above = {path[:at] for at, letter in enumerate(path) if letter == "/"}
                found = path in there or bool(above & links) or path.split("/")[0] in resources
                if not found:
                    self._report(key, self._missing_program(path, there))

    def _missing_program(self, path: str, there: Sequence[str]) -> str:
        """The message about a program that no task would find."""
        if self._src is None:
            where = "is nowhere in the job: there is no --src_dir, and"
            folder, slash, inside = path.partition("/")
            is_here = slash and path.endswith(".py") and os.path.isfile(path)
            meant = f" (did you mean {inside} and --src_dir {folder}?)" if is_here else ""
            return f"{path} {where} no resource has that name{meant}"
        if os.path.lexists(os.path.join(self._src.root, path)):
            return f"{path} is left out of {self._src.root} (--src_dir), by .tonyignore or always"
        near = [each for each in there if f"/{path}".endswith(f"/{each}")]
        near = near or [each for each in there if base_name(each) == base_name(path)]
        meant = f" (did you mean {near[0]}?)" if near else did_you_mean(path, there)
        if self._job.program.python and _PYTHON.fullmatch(base_name(path)):
            meant = " (beside --python_binary_path, --executes is the program's file alone)"
        where = f"is not in {self._src.root} (--src_dir) and"
        return f"{path} {where} no resource has that name{meant}"

    # ------------------------------------------------------------------ problems

    def _check_names(self) -> None:
        """Report two different things of one name in the same task's folder."""
        reported = set()
        items = self._plan.artifacts
        for number, one in enumerate(items):
            for other in items[:number]:
                if one.name != other.name or not _meet(one.roles, other.roles):
                    continue
                role = next(iter(one.roles or other.roles), "")
                pair = (other.source, one.source)
                if pair not in reported:
                    reported.add(pair)
                    key = f"tony.{role or 'containers'}.resources"
                    self._report(
                        key,
                        f"{one.source} and {other.source} would both be called {one.name}; "
                        "add ::name to one of them",
                    )

    def _report(self, key: str, message: str, severity: Severity = Severity.ERROR) -> None:
        problem = problem_at(self._job, key, message, severity)
        if problem not in self._plan.problems:
            self._plan.problems.append(problem)


def _artifact(source: Source, found: ResolvedSource) -> Artifact:
    return Artifact(
        name=source.name,
        use=source.use,
        kind=found.kind,
        source=masked(source.location),
        uri=found.uri,
        digest=found.digest,
        size=found.size,
        mtime_ms=found.mtime_ms,
        roles=source.roles,
    )


def _merged(artifacts: Iterable[Artifact]) -> Tuple[Artifact, ...]:
    """The same thing for several roles is one artifact."""
    merged: Dict[Artifact, Tuple[str, ...]] = {}
    for item in artifacts:
        bare = item._replace(roles=(), source="")
        before = merged.get(bare)
        if before is None:
            merged[bare] = item.roles
        elif before and item.roles:
            merged[bare] = tuple(dict.fromkeys(before + item.roles))
        else:
            merged[bare] = ()
    sources = {item._replace(roles=(), source=""): item.source for item in artifacts}
    return tuple(bare._replace(roles=roles, source=sources[bare]) for bare, roles in merged.items())


def _meet(one: Tuple[str, ...], other: Tuple[str, ...]) -> bool:
    return not one or not other or bool(set(one) & set(other))


def _links_out(links: List[str]) -> str:
    more = f" and {len(links) - 3} more" if len(links) > 3 else ""
    return (
        f"links lead out of it ({', '.join(links[:3])}{more}): they are kept, and work only "
        "on machines that have those paths"
    )


def _first(lines: List[str]) -> List[str]:
    more = len(lines) - _MOST_LINES
    if more <= 0:
        return lines
    return [*lines[:_MOST_LINES], f"and {more} more like these"]
