"""What a job brings, found and named without writing anything.

Every source is looked at, every digest known and every problem told before the first byte
is staged. A source that several roles name is looked at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from tony_core.bundle import archive, contents, venv
from tony_core.bundle import runtime as runtimes
from tony_core.bundle.bounded import Limits
from tony_core.bundle.contents import Content
from tony_core.bundle.digests import DigestCache, Stamp
from tony_core.bundle.place import Cache, Found, Place, Upload, place_of
from tony_core.bundle.plugin_files import INDEX, CannotBring
from tony_core.bundle.requested import Want, program_files, wants
from tony_core.bundle.runtime import PythonCache
from tony_core.bundle.tree import (
    EXCLUDED,
    Entry,
    Tree,
    Type,
    file_digest_name,
    hash_tree,
    read_ignores,
    scan,
)
from tony_core.files.artifact import Artifact, Kind, Use
from tony_core.files.location import base_name, is_remote, local_path, masked
from tony_core.files.port import FileSystem
from tony_core.files.registry import filesystem
from tony_core.job.problems import Problem, Severity, did_you_mean
from tony_core.job.spec import Job
from tony_core.plugins import Plugin

_SAID_AT_ONCE = 20


@dataclass
class Plan:
    """What travels with a job."""

    artifacts: Tuple[Artifact, ...] = ()
    uploads: Tuple[Upload, ...] = ()
    problems: List[Problem] = field(default_factory=list)
    caches: List[Cache] = field(default_factory=list, repr=False)

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
) -> Plan:
    """Find everything the job brings. ``root``: the scheduler's staging root, local or remote;
    :class:`StagingError` when a remote one cannot be asked.

    ``files`` opens remote sources; the registry does unless told otherwise. ``plugins`` are
    those of other distributions that the job's master needs.
    """
    files = files or filesystem
    return _Planner(job, place_of(root, files), files, plugins).run()


class _Planner:
    def __init__(
        self,
        job: Job,
        place: Place,
        files: Callable[[str], FileSystem],
        plugins: Sequence[Plugin] = (),
    ) -> None:
        self._job = job
        self._plugins = plugins
        self._limits = Limits.of(job.limits.archive_mb, job.limits.archive_members)
        self._place = place
        self._files = files
        self._plan = Plan()
        self._uploads: Dict[str, Upload] = {}
        self._seen: Dict[Tuple[str, bool, bool], Optional[Found]] = {}
        self._source: Optional[Tree] = None  # once it was looked into

    def run(self) -> Plan:
        artifacts: List[Artifact] = []
        runtime = self._runtime()
        if runtime is not None:
            artifacts.append(runtime)
        for want in wants(self._job, self._say):
            found = self._find(want)
            if found is not None:
                artifacts.append(
                    Artifact(
                        name=want.name,
                        use=want.use,
                        kind=found.kind,
                        source=masked(want.source),
                        uri=found.uri,
                        digest=found.digest,
                        size=found.size,
                        mtime_ms=found.mtime_ms,
                        roles=want.roles,
                    )
                )
        self._plan.artifacts = _merged(artifacts)
        self._clashes()
        if not self._plan.errors:
            self._programs()
        self._plan.uploads = tuple(self._uploads.values())
        for upload in self._plan.uploads:
            if upload.damage:
                self._say(
                    "",
                    f"what was staged of {upload.name} {upload.damage}: it is staged again",
                    Severity.WARNING,
                )
        self._plan.caches.append(self._place)
        self._place.look(self._plan)
        return self._plan

    # ------------------------------------------------------------------ what is there

    def _find(self, want: Want) -> Optional[Found]:
        """The source behind a want; None when there is a problem, which has been told."""
        unpack = want.archive or want.use in (Use.SOURCE, Use.VENV)
        if is_remote(want.source):
            return self._remote(want, unpack)
        try:
            path = os.path.realpath(local_path(want.source))
        except ValueError as error:
            self._say(want.key, str(error))
            return None
        seen = (path, unpack, want.use is Use.SOURCE)
        if seen not in self._seen:
            self._seen[seen] = self._local(want, path, unpack)
        return self._seen[seen]

    def _local(self, want: Want, path: str, unpack: bool) -> Optional[Found]:
        try:
            found = os.stat(path)
            if os.path.isdir(path):
                return self._folder(want, path)
            if not os.path.isfile(path):
                self._say(want.key, f"{want.source} is neither a file nor a folder")
                return None
            return self._file(want, path, unpack, bool(found.st_mode & 0o100))
        except FileNotFoundError:
            self._say(want.key, f"{want.source} does not exist")
        except OSError as error:
            self._say(want.key, f"{want.source} cannot be read ({error.strerror or error})")
        return None

    def _folder(self, want: Want, path: str) -> Optional[Found]:
        excluded: Tuple[str, ...] = ()
        if want.use is Use.SOURCE:
            excluded = EXCLUDED + read_ignores(path)
        tree = scan(path, excluded, apart_from=(self._place.apart,))
        cache = DigestCache(path, self._place.digests)
        if not tree.problems:
            hash_tree(tree, cache)
            self._plan.caches.append(cache)
        if tree.problems:
            said = [f"{want.source}: {problem}" for problem in tree.problems]
            for line in _some(said):
                self._say(want.key, line)
            return None
        if want.use is Use.VENV:
            verdict = venv.check_folder(tree.root, self._job.program.python)
            if self._no_python(want, verdict.problems):
                return None
            for doubt in verdict.doubts:
                self._say(want.key, f"{want.source}: {doubt}", Severity.WARNING)
        if want.use is Use.SOURCE:
            self._source = tree
        self._doubts(want, tree)
        return self._bring(contents.of_folder(tree), want.name)

    def _doubts(self, want: Want, tree: Tree) -> None:
        doubts = []
        if want.use is not Use.VENV and tree.links_out:
            doubts.append(_links_out(tree.links_out))
        if want.use is Use.SOURCE and tree.venvs:
            doubts.append(
                f"holds a virtual environment ({tree.venvs[0]}), which every task copies into "
                "its working folder; name it in .tonyignore, or give it as --python_venv"
            )
        for doubt in doubts:
            self._say(want.key, f"{want.source}: {doubt}", Severity.WARNING)

    def _no_python(self, want: Want, problems: List[str]) -> bool:
        for problem in problems:
            self._say("tony.client.python-binary-path", f"{want.source} {problem}")
        return bool(problems)

    def _file(self, want: Want, path: str, unpack: bool, executable: bool) -> Optional[Found]:
        cache = DigestCache(path, self._place.digests)
        stamp = Stamp.of(os.stat(path))
        digest = cache.get("", stamp)
        if digest is None:
            digest, stamp = cache.compute("", path)
        self._plan.caches.append(cache)
        if unpack:
            executable = False  # of an archive's own exec bit nobody takes notice
        name = file_digest_name(digest, executable)
        meta = self._archive(want, path, name) if unpack else {}
        if meta is None:
            return None
        entry = Entry("", Type.FILE, executable, digest=digest, stamp=stamp)
        if unpack:
            content = contents.of_archive(
                path, entry, name, str(meta.get("form", "tar")), self._limits
            )
        else:
            content = contents.of_file(path, entry, name)
        return self._bring(content, want.name, meta)

    def _archive(self, want: Want, path: str, digest: str) -> Optional[Dict[str, Any]]:
        """What to remember of an archive that can be unpacked; None when it cannot.

        Reading all of it takes a while, so that what is in the store already (and so was
        read whole once) is judged from what was remembered then.
        """
        asked = [want.use is Use.VENV, self._job.program.python]
        meta = self._place.judgement(digest)
        if meta.get("asked") != asked:
            try:
                found = archive.check(path, self._limits)
            except archive.ArchiveError as error:
                for problem in error.problems:
                    self._say(want.key, f"{want.source}: {problem}")
                return None
            doubts = []
            if want.use is Use.VENV:
                verdict = venv.check_archive(found, self._job.program.python)
                if self._no_python(want, verdict.problems):
                    return None
                doubts = verdict.doubts
            elif found.links_out:
                doubts = [_links_out(found.links_out)]
            meta = {"asked": asked, "doubts": doubts, "form": contents.form_of(path, found)}
            self._place.judge(digest, meta)
        for doubt in meta["doubts"]:
            self._say(want.key, f"{want.source}: {doubt}", Severity.WARNING)
        return meta

    def _remote(self, want: Want, unpack: bool) -> Optional[Found]:
        shown = masked(want.source)
        try:
            name = base_name(want.source).lower()
            if want.use in (Use.SOURCE, Use.VENV) and not name.endswith(archive.SUFFIXES):
                self._say(
                    want.key,
                    f"{shown}: what stands elsewhere must be an archive ({archive.SUPPORTED})",
                )
                return None
            found = self._files(want.source).stat(want.source)
        except FileNotFoundError as error:
            if want.use is Use.CLASSPATH:
                self._say(want.key, f"{shown} does not exist and is left out", Severity.WARNING)
                return None
            self._say(want.key, f"{shown} does not exist ({error.strerror})")
            return None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            self._say(want.key, f"{shown}: {why}")
            return None
        kind = Kind.ARCHIVE if unpack else Kind.FOLDER if found.is_dir else Kind.FILE
        refused = self._place.cannot_use(want, kind, found)
        if refused:
            self._say(want.key, f"{shown}: {refused}")
            return None
        doubt = self._place.doubt(want, kind)
        if doubt:
            self._say(want.key, f"{shown}: {doubt}", Severity.WARNING)
        if self._place.must_fetch(want.source):
            if kind is Kind.FOLDER or found.is_dir:
                words = "is a folder there: name an archive or a file, or read it by tony.dataset"
                self._say(want.key, f"{shown} {words}")
                return None
            return self._bring(contents.of_download(want.source, kind, found, self._files), name)
        return Found(kind, want.source, "", found.size, found.mtime_ms)

    # ------------------------------------------------------------------ our own code

    def _runtime(self) -> Optional[Artifact]:
        job = self._job
        pythons = PythonCache(self._place.digests)
        python = pythons.ask(job.runtime.python)
        if job.scheduler == "local":
            key = "tony.runtime.python"
            if python is None:
                self._say(key, f"{job.runtime.python} is no Python that runs on this machine")
            elif python.version < runtimes.OLDEST:
                version = ".".join(map(str, python.version))
                oldest = ".".join(map(str, runtimes.OLDEST))
                self._say(
                    key, f"{job.runtime.python} is Python {version}; {oldest} or newer is needed"
                )
        self._plan.caches.append(pythons)
        if job.runtime.location:
            want = Want(
                job.runtime.location, runtimes.NAME, Use.RUNTIME, "tony.runtime.location", True
            )
            found = self._find(want)
            if found is None:
                return None
            for plugin in self._plugins:
                self._say(
                    want.key,
                    f"must hold {plugin.name} ({plugin.target}) and {INDEX}: a runtime that is"
                    " there already gets nothing from here",
                    Severity.WARNING,
                )
            return Artifact(
                want.name,
                want.use,
                found.kind,
                masked(want.source),
                found.uri,
                found.digest,
                found.size,
                found.mtime_ms,
            )
        asked = (runtimes.Python.running(), *((python,) if python else ()))
        try:
            runtime, cache = runtimes.describe(self._place.digests, asked, self._plugins)
            if not self._place.has(runtime.digest):
                runtime = runtimes.load(runtime)
        except (OSError, runtimes.RuntimeMissing) as error:
            self._say("tony.runtime.location", str(error))
            return None
        except CannotBring as error:
            self._say("tony.application.framework", str(error))
            return None
        self._plan.caches.append(cache)
        found = self._bring(contents.of_runtime(runtime), runtimes.NAME)
        return Artifact(
            runtimes.NAME, Use.RUNTIME, found.kind, "tony", found.uri, found.digest, found.size
        )

    def _bring(
        self, content: Content, name: str, meta: Optional[Mapping[str, Any]] = None
    ) -> Found:
        """It must be staged; where it will be."""
        found, upload = self._place.found(content, name, meta or {})
        self._uploads.setdefault(upload.digest, upload)
        return found

    # ------------------------------------------------------------------ programs

    def _programs(self) -> None:
        """What a command needs must be in the source folder, or brought for its role."""
        if self._job.program.src and self._source is None:
            return  # an archive, or elsewhere: it was not looked into
        entries = self._source.entries if self._source else []
        there = [entry.path for entry in entries]
        links = {entry.path for entry in entries if entry.type is Type.LINK}
        for role in self._job.roles:
            brought = {x.name for x in self._plan.artifacts if not x.roles or role.name in x.roles}
            keys = (f"tony.{role.name}.command", "tony.containers.command")
            key = next((each for each in keys if self._job.setting(each)), "tony.client.executes")
            for path in program_files(role.command):
                above = {path[:at] for at, letter in enumerate(path) if letter == "/"}
                found = path in there or bool(above & links) or path.split("/")[0] in brought
                if not found:
                    self._say(key, self._missing(path, there))

    def _missing(self, path: str, there: Sequence[str]) -> str:
        """What to say of a program that no task would find."""
        if self._source is None:
            where = "is nowhere in the job: there is no --src_dir, and"
            folder, slash, inside = path.partition("/")
            is_here = slash and path.endswith(".py") and os.path.isfile(path)
            meant = f" (did you mean {inside} and --src_dir {folder}?)" if is_here else ""
            return f"{path} {where} no resource has that name{meant}"
        if os.path.lexists(os.path.join(self._source.root, path)):
            return (
                f"{path} is left out of {self._source.root} (--src_dir), by .tonyignore or always"
            )
        near = [each for each in there if f"/{path}".endswith(f"/{each}")]
        near = near or [each for each in there if base_name(each) == base_name(path)]
        meant = f" (did you mean {near[0]}?)" if near else did_you_mean(path, there)
        where = f"is not in {self._source.root} (--src_dir) and"
        return f"{path} {where} no resource has that name{meant}"

    # ------------------------------------------------------------------ telling

    def _clashes(self) -> None:
        """Two different things of one name before the same task."""
        said = set()
        items = self._plan.artifacts
        for number, one in enumerate(items):
            for other in items[:number]:
                if one.name != other.name or not _meet(one.roles, other.roles):
                    continue
                role = next(iter(one.roles or other.roles), "")
                pair = (other.source, one.source)
                if pair not in said:
                    said.add(pair)
                    key = f"tony.{role or 'containers'}.resources"
                    self._say(
                        key,
                        f"{one.source} and {other.source} would both be called {one.name}; "
                        "add ::name to one of them",
                    )

    def _say(self, key: str, message: str, severity: Severity = Severity.ERROR) -> None:
        file, line = _where(self._job, key)
        problem = Problem(message, key, file, line, severity)
        if problem not in self._plan.problems:
            self._plan.problems.append(problem)


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


def _some(lines: List[str]) -> List[str]:
    more = len(lines) - _SAID_AT_ONCE
    if more <= 0:
        return lines
    return [*lines[:_SAID_AT_ONCE], f"and {more} more like these"]


def _where(job: Job, key: str) -> Tuple[Optional[str], Optional[int]]:
    """The file and line a key was set in, as far as the job knows."""
    for item in job.settings:
        if item.key == key and item.source != "default":
            file, _, line = item.source.rpartition(":")
            return (file, int(line)) if file and line.isdigit() else (item.source, None)
    return None, None
