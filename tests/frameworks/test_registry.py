"""Frameworks by name."""

import subprocess
import sys
from pathlib import Path

import pytest

from tony_core import frameworks
from tony_core.frameworks.base import Framework

_ROOT = Path(frameworks.__file__).parents[2]
_OURS = [
    *("horovod", "jax", "lightgbm", "mpi", "mxnet", "pytorch"),
    *("ray", "standalone", "tensorflow", "xgboost"),
]


@pytest.mark.parametrize("name", _OURS)
def test_ours_are_found_by_name_in_any_case(name: str) -> None:
    assert frameworks.find_framework(name).name == name
    assert frameworks.find_framework(name.upper()).name == name
    assert name in frameworks.framework_names()


def test_a_mistyped_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(frameworks.UnknownFramework, match=r"'tensorflw' \(did you mean tensorfl"):
        frameworks.find_framework("tensorflw")
    with pytest.raises(frameworks.UnknownFramework) as caught:
        frameworks.find_framework("cobol")
    assert "did you mean" not in str(caught.value)
    assert "mpi, mxnet, pytorch" in str(caught.value)


def _distribution(folder: Path, entry: str) -> None:
    info = folder / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tony.frameworks]\n{entry}\n")


def test_others_come_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_framework.py").write_text(
        "from tony_core.frameworks.base import Framework\n"
        "class Other(Framework):\n    name = 'other'\n"
    )
    _distribution(tmp_path, "Other = other_framework:Other")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(frameworks.find_framework("other"), Framework)
    assert "other" in frameworks.framework_names()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("broken = no_such_module:Thing", "cannot be loaded: ModuleNotFoundError"),
        ("broken = json:dumps", "cannot be loaded: TypeError"),
        ("broken = collections:OrderedDict", "is not a tony_core.frameworks.base.Framework"),
    ],
)
def test_a_broken_distribution_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, words: str
) -> None:
    _distribution(tmp_path, entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(frameworks.UnknownFramework, match=words):
        frameworks.find_framework("broken")


def test_ours_need_no_site_packages() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r})\n"
        "from tony_core import frameworks\n"
        f"for name in {_OURS}: assert frameworks.find_framework(name).name == name\n"
        "assert 'importlib.metadata' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=30)
