"""Horovod and MXNet themselves: too long to build, or too old, for every change."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from tests.frameworks.submitting import Submitted

pytestmark = [pytest.mark.frameworks, pytest.mark.nightly, pytest.mark.timeout(1800)]

_EVERY = 20  # steps between two checkpoints


@pytest.fixture(autouse=True)
def _a_python_for_mxnet(request: pytest.FixtureRequest) -> None:
    """Its environment has the Python that ``.ci/envs`` takes."""
    if "mxnet" in request.node.name:
        asked = "import sys; sys.exit(sys.version_info >= (3, 12))"
        if subprocess.run([os.environ.get("PYTHON", "python3"), "-c", asked]).returncode:
            pytest.skip("MXNet 1.9.1 needs a numpy that Python 3.12 and newer have no wheel of")


@pytest.mark.parametrize("name", ["horovod", "mxnet"])
def test_it_trains(submit: Callable[..., Submitted], name: str) -> None:
    job = submit(name, name)
    job.ends(0)
    result = job.result()
    assert result["last_loss"] < result["first_loss"] / 2
    assert (result["processes"], result["sessions"]) == (2, 1)
    assert [line["step"] for line in job.steps()] == list(range(result["steps"]))


@pytest.mark.parametrize(
    ("name", "role", "index"),
    [
        *(("horovod", "worker", 0), ("horovod", "worker", 1)),
        *(("mxnet", "worker", 1), ("mxnet", "server", 0)),
    ],
)
def test_it_goes_on_from_its_checkpoint_when_a_process_is_killed(
    submit: Callable[..., Submitted], name: str, role: str, index: int
) -> None:
    job = submit(name, name, params="--steps 150 --step-sleep 0.03")
    job.until("step 45", lambda: len(job.steps()) > 45)
    os.kill(job.program_of(role, index), signal.SIGKILL)
    job.ends(0)
    first, second = ([x["step"] for x in job.steps() if x["session"] == at] for at in (0, 1))
    assert first == list(range(len(first)))
    assert second == list(range(second[0], 150)) and second[0] % _EVERY == 0
    assert 0 < second[0] <= len(first)
    assert job.result()["sessions"] == 2
    causes = [line for line in job.story() if line["kind"] == "root-cause"]
    assert [line["task"] for line in causes] == [f"{role}:{index}"], causes


def test_horovod_may_begin_again(submit: Callable[..., Submitted], tmp_path: Path) -> None:
    """The store forgets a world in which all ranks have met."""
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(
        "import horovod.torch as hvd, torch\n"
        "for _ in range(3):\n"
        "    hvd.init()\n"
        "    total = hvd.allreduce(torch.tensor([float(10**hvd.rank())]), op=hvd.Sum)\n"
        "    assert total.item() == 11, total\n"
        "    hvd.shutdown()\n"
    )
    submit("horovod", "horovod", arguments=["--src_dir", str(source)]).ends(0)


def test_horovod_may_have_a_process_set_later(
    submit: Callable[..., Submitted], tmp_path: Path
) -> None:
    """Its ranks meet by the store once more, long after all have met."""
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(
        "import horovod.torch as hvd, torch\n"
        "hvd.init(process_sets='dynamic')\n"
        "mine = torch.tensor([float(10**hvd.rank())])\n"
        "assert hvd.allreduce(mine, op=hvd.Sum).item() == 111\n"
        "outer = hvd.add_process_set([0, 2])\n"
        "if outer.included():\n"
        "    total = hvd.allreduce(mine, op=hvd.Sum, process_set=outer)\n"
        "    assert total.item() == 101, total\n"
        "hvd.barrier()\n"  # one that ends early ends the others' work
        "hvd.shutdown()\n"
    )
    three = ["tony.worker.instances=3"]
    submit("horovod", "horovod", conf=three, arguments=["--src_dir", str(source)]).ends(0)


def test_mxnet_listens_at_its_tasks_ports_while_they_are_held(
    environment: Callable[[str], Path],
) -> None:
    python = environment("mxnet") / "bin" / "python"
    held = []
    for _ in range(3):
        sock = socket.socket()
        sock.bind(("", 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.append(sock)
    ports = [sock.getsockname()[1] for sock in held]
    shared = {
        "DMLC_PS_ROOT_URI": socket.gethostname(),
        "DMLC_PS_ROOT_PORT": str(ports[0]),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "1",
        "DMLC_INTERFACE": "lo",
    }
    roles = {
        "scheduler": {"DMLC_USE_KUBERNETES": "1"},
        "server": {"PORT": str(ports[1])},
        "worker": {"PORT": str(ports[2])},
    }
    program = (
        "import mxnet as mx, os\n"
        "store = mx.kv.create('dist_sync')\n"
        "listening = open('/proc/net/tcp').read().split('\\n')[1:-1]\n"
        "listening = [line.split()[1:4] for line in listening]\n"
        "at = {int(a.split(':')[1], 16) for a, _, state in listening if state == '0A'}\n"
        f"assert {set(ports)} <= at, at\n"
    )
    made = [
        subprocess.Popen(
            [python, "-c", program],
            env={**os.environ, **shared, **env, "DMLC_ROLE": role},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for role, env in roles.items()
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in reversed(made)]
        assert [process.returncode for process in made] == [0, 0, 0], outputs
    finally:
        for process in made:
            process.kill()
            process.communicate()
        for sock in held:
            sock.close()
