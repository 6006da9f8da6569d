"""What is installed is what the checkout holds, by an ordinary and by an editable install."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, List, Set

import pytest

from tests.importgraph import CHECKOUT, PACKAGES, Graph


def declared() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(CHECKOUT / "setup.cfg", encoding="utf-8")
    return parser


def requirements(text: str) -> List[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def package_files() -> Set[str]:
    """Every file that our packages hold, by the name it has once installed."""
    return {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


def test_every_package_is_declared() -> None:
    listed = set(declared()["options"]["packages"].split())
    found = {name for name, path in Graph().files.items() if path.name == "__init__.py"}
    assert listed == found | {"tony_webhdfs"}  # tony_core.files.webhdfs, for programs


def test_what_a_program_may_import_is_declared() -> None:
    listed = declared()["options"].get("py_modules", "").split()
    assert listed == sorted(path.stem for path in (CHECKOUT / "program").glob("*.py"))


def test_a_folder_with_code_is_a_package() -> None:
    bare = {
        path.parent.relative_to(CHECKOUT).as_posix()
        for path in Graph().files.values()
        if not (path.parent / "__init__.py").exists()
    }
    assert bare == set()


def test_every_data_file_matches_a_declared_pattern() -> None:
    line = declared()["options.package_data"]["*"]
    patterns = [pattern.strip() for pattern in line.split(",")]
    missed = [
        name
        for name in package_files()
        if not name.endswith(".py") and not any(Path(name).match(pattern) for pattern in patterns)
    ]
    assert missed == []


def test_every_requirement_has_a_lower_and_an_upper_bound() -> None:
    config = declared()
    lists = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    lists += [path.read_text() for path in sorted((CHECKOUT / "tests" / "envs").glob("*.txt"))]
    own = re.compile(r"tony-py\[")
    loose = [
        line
        for text in lists
        for line in requirements(text)
        if not own.match(line) and "==" not in line and not re.search(r">=.+,<", line)
    ]
    assert loose == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build leaves its traces where it runs."""
    copy = tmp_path_factory.mktemp("checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
    ).stdout
    for name in os.fsdecode(names).split("\0"):
        if name and (CHECKOUT / name).is_file():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((CHECKOUT / name).read_bytes())
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", str(out), str(copy))
    (built,) = out.glob("*.whl")
    return built


def pip(*arguments: str, python: str = sys.executable) -> None:
    done = subprocess.run(
        [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def answers(python: Path, cwd: Path) -> Dict[str, str]:
    """Where an interpreter, run far from the checkout, finds each package."""
    program = (
        "import importlib, sys\nfor n in sys.argv[1:]: print(importlib.import_module(n).__file__)"
    )
    done = subprocess.run(
        [python, "-c", program, *PACKAGES],
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(PACKAGES, done.stdout.splitlines(), strict=True))


@pytest.mark.slow
def test_the_wheel_holds_every_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        words = archive.read(metadata).decode()
        licensed = any(name.endswith("/LICENSE") for name in archive.namelist())
    assert {name for name in held if name.partition("/")[0] in PACKAGES} == package_files()
    shared = {name.rpartition("/")[2] for name in held if name.startswith("tony_webhdfs/")}
    assert shared == {path.name for path in (CHECKOUT / "program/tony_webhdfs").glob("*.py")}
    assert "\nName: tony-py\n" in words
    assert licensed


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ordinary", "editable"])
def test_every_package_is_importable_once_installed(how: str, wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    python = venv / "bin" / "python"
    if how == "ordinary":
        pip("install", "--no-deps", "--force-reinstall", str(wheel), python=str(python))
    else:
        pip("install", "--no-deps", "--editable", str(CHECKOUT), python=str(python))
    for name, file in answers(python, tmp_path).items():
        folder = Path(file).parent
        if how == "ordinary":
            assert venv in folder.parents
        else:
            assert folder == PACKAGES[name]
    version = subprocess.run(
        [python, "-c", "from importlib.metadata import version; print(version('tony-py'))"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    words = (CHECKOUT / "tony_core" / "version.py").read_text()
    assert f'__version__ = "{version.stdout.strip()}"' in words
    assert (venv / "bin" / "tony").exists()
