"""What nodes import of this room works there: old Pythons, nothing but the standard library."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.bundle.client.test_runtime import other_python
from tests.bundle.jobs import job, ref
from tony_core.bundle.client import planning, staging

PROGRAM = """
import json, os, sys
runtime, root, app_id = sys.argv[1:]
sys.path.insert(0, runtime)
from tony_core.bundle import jobfolder, localization
from tony_core.bundle.local import garbage
from tony_core.files.artifact import Artifact
from tony_core.files.registry import filesystem
folder = jobfolder.path(root, app_id)
files = filesystem(folder)
items = [Artifact.from_json(i) for i in json.loads(files.get(folder + "/artifacts.json"))]
paths = {item.name: localization.localize(item, root) for item in items}
assert sorted(os.listdir(paths["d"])) == ["x"], paths
jobfolder.remove(root, app_id)
files.put(root + "/written", b"x")
print(len(list(garbage.collect(root, 0, settle_s=0))))
alien = [m for m in sys.modules if "site-packages" in str(getattr(sys.modules[m], "__file__", ""))]
assert not alien, alien
"""


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
def test_localize_and_clean_up(tmp_path: Path, version: str) -> None:
    python = other_python(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    (tmp_path / "x").write_text("x")
    with tarfile.open(tmp_path / "d.tar", "w") as out:
        out.add(tmp_path / "x", "x")
    root = str(tmp_path / "root")
    what = job(files=(ref(tmp_path / "d.tar", "d", archive=True),))
    artifacts = staging.stage(planning.plan(what, root), root, "app-1", what, b"")
    runtime = str(tmp_path / "runtime")  # what it runs from is collected under its feet
    Path(runtime).symlink_to(artifacts[0].uri)
    done = subprocess.run(
        [python, "-I", "-S", "-W", "error", "-c", PROGRAM, runtime, root, "app-1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2\n"
