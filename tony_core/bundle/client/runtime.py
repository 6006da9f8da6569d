"""The runtime: our own code as an artifact, from wherever this installation has it.

One folder with the packages that nodes need, ``__main__.py`` and the files that a user's
program may import. Its name in the store is the digest of its sources and of the
Python versions it holds bytecode for. It is made once per version; after that a submit only
asks ``stat`` about some eighty files.

Bytecode is compiled "unchecked-hash": Python takes it as it is, whatever the files' times
became on their way. Each Python version finds its own in ``__pycache__``.

A job's plugins are in it too: a runtime that carries one is named by the plugin's files as well.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import tony_core
from tony_core.bundle.client.pythons import Python
from tony_core.bundle.client.tree import Entry, Type, listing_digest
from tony_core.bundle.digests import DigestCache, Stamp
from tony_core.bundle.local.copying import sealed_mode
from tony_core.plugins import INDEX, Plugin

NAME = "tony-runtime"
OLDEST = (3, 9)  # what the master needs

# What nodes run: packages of tony_core, with all that is in them...
PACKAGES = (
    "bundle",
    "files",
    "frameworks",
    "hadoop",
    "history",
    "job",
    "master",
    "protocol",
    "schedulers",
    "static",
)
# ...apart from what only a client does: files and folders (a test checks that nothing else
# imports them).
CLIENT_ONLY = (
    "bundle/client/",
    # Who reads logs that nodes have given away, and who lets users in.
    "hadoop/kerberos/acceptor.py",
    "hadoop/logs/",
    "schedulers/yarn/logs/",
    # What is made of a history; nodes write it.
    "history/compare.py",
    "history/configuration.py",
    "history/expiry.py",
    "history/figures.py",
    "history/job_phases.py",
    "history/last_seen.py",
    "history/lost_work.py",
    "history/metric_points.py",
    "history/retention.py",
    "history/story_lines.py",
    "history/task_bars.py",
    "history/timeline.py",
    "history/trends.py",
    # From job files to a Job; nodes get the finished Job.
    "job/build.py",
    "job/build_roles.py",
    "job/commands.py",
    "job/from_jvm.py",
    "job/keys/",
    "job/layers.py",
    "job/load.py",
    "job/settings.py",
    "job/tracking.py",
    "job/validate.py",
    "job/xml_edit.py",
    "job/xmlfile.py",
    "schedulers/yarn/client/",
)
# What programs may import.
PROGRAM = (
    "tony.py",
    "tony_boosting.py",
    "tony_hdfs.py",
    "tony_hdfs_client.py",
    "tony_notebook.py",
    "tony_objects.py",
    "tony_preemption.py",
    "tony_ray.py",
    "tony_reports.py",
    "tony_stacks.py",
)
# The package of ours that programs import under a name of its own.
PROGRAM_WEBHDFS = "tony_webhdfs"
_TOP = (
    "__init__.py",
    "charts.py",
    "durations.py",
    "exit_causes.py",
    "unexpected_errors.py",
    "jsontext.py",
    "loopback.py",
    "measures.py",
    "plugins.py",
    "printable.py",
    "prometheus.py",
    "version.py",
    "view.py",
)


class RuntimeMissing(Exception):
    """This installation lacks a part that nodes need."""


class PluginError(Exception):
    """A plugin's code cannot travel to the nodes; the message says why and what to do."""


class Runtime(NamedTuple):
    digest: str
    entries: Tuple[Entry, ...]
    sources: Dict[str, str]  # path in the artifact -> path here
    pythons: Tuple[Python, ...]
    size: int
    data: Mapping[str, bytes] = {}  # once loaded
    made: Mapping[str, bytes] = {}  # stands in no file here


def describe(
    cache_folder: Optional[str], pythons: Tuple[Python, ...], plugins: Sequence[Plugin] = ()
) -> Tuple[Runtime, DigestCache]:
    """List our code and that of a job's plugins, and name it; the caller saves the cache."""
    sources = source_files()
    for plugin in plugins:
        sources.update(list_plugin_files(plugin))
    core = os.path.dirname(os.path.abspath(tony_core.__file__))
    cache = DigestCache(core, cache_folder)
    entries = []
    for name in sorted(sources):
        stamp = Stamp.of(os.stat(sources[name]))
        known = cache.get(name, stamp)
        digest = known or ""
        if not known:
            digest, stamp = cache.compute(name, sources[name])
        entries.append(Entry(name, Type.FILE, digest=digest, stamp=stamp))
    made = {INDEX: build_plugin_index(plugins)} if plugins else {}
    for name, data in made.items():
        entries.append(Entry(name, Type.FILE, digest=hashlib.sha256(data).hexdigest()))
    return _named(tuple(entries), sources, pythons)._replace(made=made), cache


def load(runtime: Runtime) -> Runtime:
    """Read every file, and name the runtime by the bytes that were read.

    So what is built is what was named, even from a checkout that is being edited.
    """
    data = {}
    entries = []
    for entry in runtime.entries:
        if entry.path in runtime.made:
            data[entry.path] = runtime.made[entry.path]
        else:
            with open(runtime.sources[entry.path], "rb") as stream:
                data[entry.path] = stream.read()
        digest = hashlib.sha256(data[entry.path]).hexdigest()
        entries.append(Entry(entry.path, entry.type, digest=digest, stamp=entry.stamp))
    named = _named(tuple(entries), runtime.sources, runtime.pythons)
    return named._replace(data=data, made=runtime.made)


def _named(
    entries: Tuple[Entry, ...], sources: Dict[str, str], pythons: Tuple[Python, ...]
) -> Runtime:
    tags = sorted({python.tag for python in pythons if python.tag})
    marks = [Entry(f"bytecode of {tag}", Type.LINK, target="unchecked-hash") for tag in tags]
    size = sum(entry.stamp.size for entry in entries if entry.stamp)
    return Runtime(listing_digest([*entries, *marks]), entries, sources, pythons, size)


def build(runtime: Runtime, target: str) -> None:
    """Make the folder of a loaded runtime at ``target``."""
    os.mkdir(target, 0o755)
    for name, data in runtime.data.items():
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), sealed_mode(executable=False))
    done = set()
    for python in runtime.pythons:
        if python.tag in done or not python.tag:
            continue
        done.add(python.tag)
        if python.tag == sys.implementation.cache_tag:
            import compileall  # once for each version of ours
            import py_compile

            compileall.compile_dir(
                target,
                ddir=NAME,
                quiet=2,
                force=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        else:
            # Without bytecode it works as well, only slower: no failure of the submit.
            words = ["-I", "-S", "-m", "compileall", "-q", "-f"]
            words += ["--invalidation-mode", "unchecked-hash", "-d"]
            subprocess.run(
                [python.path, *words, NAME, target],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=120,
                check=False,
            )


def source_files() -> Dict[str, str]:
    """Where each file of the runtime is taken from."""
    core = os.path.dirname(os.path.abspath(tony_core.__file__))
    found = {f"tony_core/{name}": os.path.join(core, name) for name in _TOP}
    for package in PACKAGES:
        for name, path in _files(os.path.join(core, package)):
            if not f"{package}/{name}".startswith(CLIENT_ONLY):
                found[f"tony_core/{package}/{name}"] = path
    executor = importlib.util.find_spec("tony_executor")
    if executor is None or executor.origin is None:
        raise RuntimeMissing(
            "the package tony_executor, which runs the tasks, is not installed beside "
            "tony_core; install TonY again"
        )
    for name, path in _files(os.path.dirname(executor.origin)):
        found[f"tony_executor/{name}"] = path
    program = _program_file(core)
    for name in PROGRAM:
        found[f"program/{name}"] = os.path.join(os.path.dirname(program), name)
    for name, path in _files(os.path.join(core, "files", "webhdfs")):
        found[f"program/{PROGRAM_WEBHDFS}/{name}"] = path
    found["__main__.py"] = os.path.join(core, "bundle", "client", "runtime_main.py")
    return {name: path for name, path in found.items() if os.path.exists(path)}


def _files(folder: str) -> List[Tuple[str, str]]:
    found = []
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(os.path.join(folder, below)) as children:
            for child in children:
                name = f"{below}/{child.name}" if below else child.name
                if child.name == "__pycache__" or child.name.startswith("."):
                    continue
                if child.is_dir():
                    waiting.append(name)
                elif not child.name.endswith((".pyc", ".pyi", ".so")):
                    found.append((name, child.path))
    return found


def _program_file(core: str) -> str:
    """``tony.py``: beside us when installed, in ``program/`` of a checkout."""
    beside = os.path.dirname(core)
    for path in (os.path.join(beside, "program", "tony.py"), os.path.join(beside, "tony.py")):
        if os.path.isfile(path):
            return path
    spec = importlib.util.find_spec("tony")
    if spec is not None and spec.origin is not None and os.path.isfile(spec.origin):
        return spec.origin
    raise RuntimeMissing(
        "the module tony, which programs may import, is not installed beside tony_core; "
        "install TonY again"
    )


# ------------------------------------------------------------------ plugins


def list_plugin_files(plugin: Plugin) -> Dict[str, str]:
    """A plugin's own files: path in the runtime -> path here.

    The top-level package or module of its entry point, whole, and nothing that it imports from
    elsewhere: what nodes run needs the standard library only. Of a namespace package, which
    many distributions share, only the part that is the plugin's.
    """
    top = plugin.module.partition(".")[0]
    if top in ("tony_core", "tony_executor"):
        return {}
    if top in sys.stdlib_module_names or top in ("program", "__main__"):
        raise PluginError(_message(plugin, f"the name {top} is taken on nodes; call it otherwise"))
    name = ""
    for part in plugin.module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError) as error:
            raise PluginError(_message(plugin, f"{name} is not found: {error}")) from error
        if spec is None:
            raise PluginError(_message(plugin, f"{name} is not installed here"))
        path = name.replace(".", "/")
        if spec.origin is None or not os.path.isfile(spec.origin):
            continue  # a namespace: what is the plugin's stands further below
        if not spec.origin.endswith(".py"):
            raise PluginError(_message(plugin, f"{name} is no Python source ({spec.origin})"))
        if spec.submodule_search_locations is None:
            return {f"{path}.py": spec.origin}
        found = {}
        for folder in spec.submodule_search_locations:
            found.update({f"{path}/{below}": here for below, here in _files(folder)})
        return found
    raise PluginError(_message(plugin, f"{plugin.module} stands in no file"))


def build_plugin_index(plugins: Sequence[Plugin]) -> bytes:
    """The file by which a node finds plugins."""
    groups: Dict[str, Dict[str, str]] = {}
    for plugin in sorted(plugins):
        groups.setdefault(plugin.group, {})[plugin.name] = plugin.target
    return json.dumps(groups, sort_keys=True).encode("ascii")


def _message(plugin: Plugin, why: str) -> str:
    return (
        f"{plugin.name} ({plugin.target}, by the entry point group {plugin.group}) cannot be"
        f" sent to the nodes: {why}"
    )
