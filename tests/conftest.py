"""What every test gets: a TonY home of its own, a time limit, and a look at what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Callable, Dict, Iterator, List

import pytest
from hypothesis import settings

from tests.leaks import Watch
from tony_core.files import registry

pytest_plugins = [
    "tests.browser",
    "tests.cluster.azkaban.fixture",
    "tests.cluster.hadoop.fixture",
    "tests.cluster.kdc",
    "tests.cluster.yarn.fixture",
    "tests.second_user",
]

CHECKOUT = Path(__file__).resolve().parent.parent

LONGER = {"frameworks": 300, "cluster": 300, "slow": 300, "airflow": 300}
"""Seconds that a test so marked gets, unless it says otherwise itself."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in a script's background. Tests and their programs have a Ctrl-C all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Time limits are pytest's; a loaded machine is no reason to fail an example of hypothesis.
settings.register_profile("tony", deadline=None)
# By night there are more, and others every night, which CI=true alone would not have.
settings.register_profile(
    "night", deadline=None, max_examples=1000, derandomize=False, print_blob=True
)
settings.load_profile("tony")


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """A longer time limit for what is known to take long; files with the longest ones come first.

    With several processes a file is one's own, and none should be left with a long one at the end.
    """
    longest: Dict[Path, float] = {}
    for item in items:
        limits = [limit for name, limit in LONGER.items() if item.get_closest_marker(name)]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))
        marker = item.get_closest_marker("timeout")
        limit = marker.args[0] if marker is not None and marker.args else 0
        longest[item.path] = max(limit, longest.get(item.path, 0))
    items.sort(key=lambda item: -longest[item.path])


@pytest.fixture(autouse=True)
def tony_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The test's own TonY home; what is left behind fails the test."""
    home = tmp_path / "tony-home"
    for name in list(os.environ):
        # A job, a site or a cluster around the test run is none of its business.
        if name.startswith("TONY_") and name not in ("TONY_ENVS", "TONY_VENV"):
            monkeypatch.delenv(name)
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TONY_HOME", str(home))
    watch = Watch(tmp_path)
    yield home
    registry.forget()  # it keeps connections, by this test's environment
    left = watch.left_behind()
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(scope="session")
def environment() -> Callable[[str], Path]:
    """``environment("jax")``: the folder of an environment of tests/envs, built if need be."""
    known: Dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in known:
            done = subprocess.run(
                [CHECKOUT / ".ci" / "envs", name],
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
            )
            if done.returncode:
                pytest.fail(f"the environment {name!r} could not be built", pytrace=False)
            known[name] = Path(done.stdout.strip())
        return known[name]

    return build
