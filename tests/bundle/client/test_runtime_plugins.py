"""Plugins of other distributions: their code travels, and is found where nothing is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

from tests.bundle.jobs import job, messages_of
from tony_core import schedulers
from tony_core.bundle.client import planning
from tony_core.bundle.client import runtime as runtimes
from tony_core.bundle.client.pythons import Python
from tony_core.bundle.client.runtime import PluginError, list_plugin_files
from tony_core.plugins import Plugin, installed
from tony_core.schedulers.port import SchedulerError

FRAMEWORK = """
from tony_core.frameworks.base import Framework
from {near} import WORD
class Mine(Framework):
    name = "mine"
    def environment(self, gang, peer):
        return {{"MINE": WORD}}
"""


def distribution(folder: Path, files: Dict[str, str], points: str) -> None:
    """What pip would have made of it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    info = folder / "minefw-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: minefw\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


def runtime_with(plugins: List[Plugin], target: Path) -> Path:
    description, _ = runtimes.describe(None, (Python.running(),), plugins)
    loaded = runtimes.load(description)
    assert loaded.digest == description.digest
    runtimes.build(loaded, str(target))
    return target


@pytest.mark.parametrize(
    ("module", "files", "near"),
    [
        ("mine_a.deep.code", {"mine_a/__init__.py": "", "mine_a/deep/__init__.py": ""}, "mine_a.w"),
        ("mine_b", {}, "os"),
        ("shared_c.mine.code", {"shared_c/mine/__init__.py": ""}, "shared_c.mine.w"),
    ],
    ids=["package", "module", "namespace"],
)
def test_a_framework_is_found_where_nothing_is_installed(
    module: str,
    files: Dict[str, str],
    near: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "site"
    near_file = {f"{near.replace('.', '/')}.py": "WORD = 'hello'\n"} if near != "os" else {}
    code = FRAMEWORK.format(near=near).replace("os import WORD", "os import sep as WORD")
    distribution(
        place,
        {**files, **near_file, f"{module.replace('.', '/')}.py": code, "shared_c/others.py": ""},
        f"[tony.frameworks]\nMine = {module}:Mine\n",
    )
    monkeypatch.syspath_prepend(str(place))
    plugin = installed("tony.frameworks")["mine"]
    target = runtime_with([plugin], tmp_path / "runtime")
    assert not (target / "shared_c" / "others.py").exists()
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        "from tony_core import frameworks\n"
        "assert frameworks.find_framework('MINE').environment(None, None)['MINE']\n"
        "assert 'mine' in frameworks.framework_names()\n"
        "assert 'importlib.metadata' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=60)


def test_a_plugin_makes_another_runtime_and_its_change_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, {"mine_d.py": "A = 1\n"}, "[tony.frameworks]\nmine = mine_d:A\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = Plugin("tony.frameworks", "mine", "mine_d:A")
    digests = set()
    for plugins in ([], [plugin], [plugin._replace(name="other")]):
        digests.add(runtimes.describe(None, (), plugins)[0].digest)
    (tmp_path / "mine_d.py").write_text("A = 23\n")
    digests.add(runtimes.describe(None, (), [plugin])[0].digest)
    assert len(digests) == 4


@pytest.mark.parametrize("target", ["no_such_mine:A", "math:A", "json:A", "program.x:A"])
def test_a_plugin_that_cannot_be_shipped_is_reported(target: str, tmp_path: Path) -> None:
    plugin = Plugin("tony.frameworks", "mine", target)
    with pytest.raises(PluginError, match=r"mine .* cannot be sent to the nodes: "):
        list_plugin_files(plugin)
    (words,) = messages_of(planning.plan(job(), str(tmp_path / "root"), plugins=[plugin]))
    assert words.startswith("tony.application.framework: mine ")


def test_a_scheduler_brings_its_masters_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(
        tmp_path / "site",
        {
            "mine_s/__init__.py": "def make(env): pass\n",
            "mine_s/pool.py": "def open_master(args):\n    raise KeyError('it was ' + args.word)\n",
        },
        "[tony.schedulers]\nmine = mine_s:make\nhalf = mine_s:make\n"
        "[tony.pools]\nmine = mine_s.pool:open_master\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    plugin = schedulers.plugin_of("mine")
    assert plugin is not None and plugin.target == "mine_s.pool:open_master"
    assert schedulers.plugin_of("local") is None
    assert schedulers.plugin_of("unknown") is None
    with pytest.raises(SchedulerError, match=r"has no master's side.*group tony\.pools"):
        schedulers.plugin_of("half")
    target = runtime_with([plugin], tmp_path / "runtime")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(target), "master", "--scheduler", "mine", "--word", "x"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "KeyError: 'it was x'" in done.stderr
