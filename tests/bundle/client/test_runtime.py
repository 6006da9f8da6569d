"""Our own code as an artifact."""

from __future__ import annotations

import ast
import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Optional, Set

import pytest

import tony_core
from tests.bundle.jobs import job
from tests.importgraph import Graph
from tony_core.bundle.client import planning, staging
from tony_core.bundle.client import runtime as runtimes
from tony_core.bundle.client.pythons import Python, PythonCache
from tony_core.bundle.client.runtime_main import VERBS
from tony_core.files.artifact import Use, find

CORE = Path(tony_core.__file__).parent


def other_python(version: str) -> Optional[str]:
    """A Python of that version that really runs here."""
    places = [shutil.which(f"python{version}")]
    places += glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python"))
    for path in filter(None, places):
        if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("runtime") / "tony-runtime"
    description, _ = runtimes.describe(None, (Python.running(),))
    runtimes.build(runtimes.load(description), str(target))
    return target


def run(
    built: Path, *words: str, python: str = sys.executable, cwd: str = "/"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", "-S", os.path.relpath(built, cwd), *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
    )


def test_it_holds_every_module_that_its_verbs_import() -> None:
    graph, held = Graph(), set(runtimes.source_files().values())
    needed = graph.closure([module for module, _ in VERBS.values()])
    assert [module for module in needed if str(graph.files[module]) not in held] == []


def test_what_it_holds(built: Path) -> None:
    assert sorted(path.name for path in built.iterdir() if path.name != "__pycache__") == [
        "__main__.py",
        "program",
        "tony_core",
        "tony_executor",
    ]
    names = {path.name for path in (built / "tony_core").iterdir()}
    assert {"protocol", "master", "schedulers"} <= names
    assert not names & {"client", "cli", "portal"}
    assert not (built / "tony_core" / "bundle" / "planning.py").exists()


def test_every_module_has_bytecode_that_is_taken_unchecked(built: Path) -> None:
    for path in built.rglob("*.py"):
        pyc = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
        assert int.from_bytes(pyc.read_bytes()[4:8], "little") == 0b01, path


def test_an_unknown_verb(built: Path) -> None:
    for words in ((), ("dance",)):
        done = run(built, *words)
        assert done.returncode == 2
        assert f"is not one of {', '.join(sorted(VERBS))}" in done.stderr
        assert {"master", "executor", "shim", "yarn-start", "yarn-find-master"} <= set(VERBS)


def test_a_verb_runs_its_module_wherever_it_was_started(tmp_path: Path, built: Path) -> None:
    copy = tmp_path / "runtime"
    shutil.copytree(built, copy)
    shutil.rmtree(copy / "tony_executor" / "__pycache__")
    (copy / "tony_executor" / "main.py").write_text(
        "def main(argv):\n"
        "    import os, sys\n"
        "    os.chdir('/')\n"
        "    import tony_core.protocol.messages as m\n"
        "    print(argv, m.__file__, 'site' in sys.modules)\n"
        "    return 7\n"
    )
    (tmp_path / "link").symlink_to(copy)
    done = run(tmp_path / "link", "executor", "--master", "h:1", cwd=str(tmp_path))
    assert done.returncode == 7, done.stderr
    assert done.stdout.split() == [
        "['--master',",
        "'h:1']",
        str(copy / "tony_core" / "protocol" / "messages.py"),
        "False",
    ]


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8"])
def test_a_python_that_is_too_old_is_refused(built: Path, version: str) -> None:
    python = other_python(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    done = run(built, "master", python=python)
    assert done.returncode == 2
    assert f"is Python {version}, but the master needs 3.9" in done.stderr
    assert "tony.runtime.python" in done.stderr


def test_the_nodes_python_gets_its_own_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "3.9" if sys.version_info[:2] != (3, 9) else "3.10"
    path = other_python(version)
    if path is None:
        pytest.skip(f"no Python {version} here")
    cache = PythonCache(str(tmp_path))
    python = cache.inspect(path)
    assert python is not None and python.tag == "cpython-" + version.replace(".", "")
    cache.save()
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", None)  # it is cached: no Python is asked again
        assert PythonCache(str(tmp_path)).inspect(path) == python
    both, _ = runtimes.describe(None, (Python.running(), python))
    ours, _ = runtimes.describe(None, (Python.running(),))
    assert both.digest != ours.digest
    runtimes.build(runtimes.load(both), str(tmp_path / "r"))
    found = {pyc.name for pyc in (tmp_path / "r" / "tony_core" / "__pycache__").iterdir()}
    assert {f"__init__.{python.tag}.pyc", f"__init__.{sys.implementation.cache_tag}.pyc"} <= found


def test_it_is_built_once(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    first = planning.plan(job(), root)
    staging.stage(first, root, "app-1", job(), b"")
    item = find(first.artifacts, Use.RUNTIME)
    assert item is not None
    inode = os.stat(item.uri).st_ino
    second = planning.plan(job(), root)
    staging.stage(second, root, "app-2", job(), b"")
    assert second.artifacts == first.artifacts and second.upload_bytes == 0
    assert os.stat(item.uri).st_ino == inode


def test_an_edit_while_submitting_cannot_mix_two_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = tmp_path / "edited.py"
    edited.write_text("one = 1\n")
    files = {"tony_core/version.py": str(edited)}
    monkeypatch.setattr(runtimes, "source_files", lambda: files)
    described, _ = runtimes.describe(None, ())
    edited.write_text("two = 2\n")
    loaded = runtimes.load(described)
    edited.write_text("three\n")
    runtimes.build(loaded, str(tmp_path / "r"))
    assert (tmp_path / "r" / "tony_core" / "version.py").read_text() == "two = 2\n"
    assert loaded.digest != described.digest


def test_a_changed_file_is_another_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = runtimes.describe(None, ())
    changed = tmp_path / "changed.py"
    changed.write_text("x = 1\n")
    files = {**runtimes.source_files(), "tony_core/version.py": str(changed)}
    monkeypatch.setattr(runtimes, "source_files", lambda: files)
    after, _ = runtimes.describe(None, ())
    assert after.digest != before.digest


def imports(path: Path) -> Set[str]:
    """What a module imports, at its top or when it runs; not what only a type checker reads."""
    found: Set[str] = set()
    waiting: List[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)
    return found


def test_nothing_on_the_nodes_imports_what_only_clients_have() -> None:
    files = runtimes.source_files()
    held = {name for name in files if name.endswith(".py")}
    problems = []
    for name in sorted(held - {"__main__.py"}):
        for imported in imports(Path(files[name])):
            if not imported.startswith("tony_core."):
                continue
            parts = imported.split(".")
            options = ["/".join(parts), "/".join(parts[:-1])]
            real = [
                o
                for o in options
                if (CORE.parent / f"{o}.py").exists() or (CORE.parent / o / "__init__.py").exists()
            ]
            if real and f"{real[0]}.py" not in held and f"{real[0]}/__init__.py" not in held:
                problems.append(f"{name} imports {imported}")
    assert problems == []
