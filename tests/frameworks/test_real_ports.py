"""Each framework's server binds its port while we hold it: nothing need be released."""

import socket
import subprocess
from pathlib import Path
from typing import Callable, Iterator

import pytest

pytestmark = pytest.mark.frameworks

_STORE = (
    "import torch.distributed as d\n"
    "s = d.TCPStore('127.0.0.1', PORT, 1, True, use_libuv={})\n"
    "s.set('a', 'b'); assert s.get('a') == b'b'\n"
)
_PROGRAMS = {
    "tcpstore-libuv": ("torch", _STORE.format(True)),
    "tcpstore": ("torch", _STORE.format(False)),
    "jax": (
        "jax",
        "import jax\n"
        "jax.distributed.initialize(f'127.0.0.1:{PORT}', 1, 0)\n"
        "assert jax.process_count() == 1\n",
    ),
    "tensorflow": (
        "tensorflow",
        "import tensorflow as tf\n"
        "spec = tf.train.ClusterSpec({'worker': [f'127.0.0.1:{PORT}']})\n"
        "server = tf.distribute.Server(spec, job_name='worker', task_index=0)\n"
        "assert server.target.endswith(f':{PORT}')\n",
    ),
}


@pytest.fixture
def held() -> Iterator[int]:
    """A port held as the executor holds it: bound, shareable, never listening."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("", 0))
        yield sock.getsockname()[1]


@pytest.mark.parametrize("name", list(_PROGRAMS))
def test_it_binds_a_held_port(environment: Callable[[str], Path], held: int, name: str) -> None:
    env, program = _PROGRAMS[name]
    done = subprocess.run(
        [environment(env) / "bin" / "python", "-c", f"PORT = {held}\n{program}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_shares_nothing_cannot(held: int) -> None:
    """The probe can fail: a plain bind of a held port does."""
    with socket.socket() as plain, pytest.raises(OSError):
        plain.bind(("", held))
