"""What an executor reads from programs, tools and strangers, in any damaged form."""

from __future__ import annotations

import json
import math
import socket
import tempfile

from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations, pieces
from tony_core.protocol.codec import decode, encode
from tony_core.protocol.messages import Measured
from tony_executor.monitoring import nvidia_smi
from tony_executor.monitoring.telemetry import ReportFile
from tony_executor.network import pmi_relay
from tony_executor.network.master_discovery import read_address

REPORTS = [
    b'{"progress": 0.5, "step": 12, "metrics": {"loss": 1.5e-3, "a": true}}\n',
    b'{"result": {"a": [1, null, "\\ud800"], "b": {"c": 1e308}}}\n{"metrics": {"\\ud83d": 1}}\n',
    b'{"step": 9223372036854775807, "progress": -1}\n{"metrics": [1]}\n{"result": NaN}\n',
    b"[" * 2000 + b"\n",
    b'{"metrics": {"\\u0000": 1, "": 2}}\n',
]
SMI = [
    b"35, 1024, 40960\n[N/A], 0, 40960\nnan, inf, 1e999\n",
    b"GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa0000-1111)\n"
    b"  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef/1/0)\n",
]
PMI = [
    b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=barrier_in\n",
    b"cmd=put kvsname=kvs key=P0 value=abc\ncmd=get kvsname=kvs key=P1\ncmd=finalize\n",
    b"cmd=abort exitcode=1\n\n \ncmd=\n",
]


@fuzz(data=mutations(*REPORTS), cuts=st.lists(st.integers(0, 500), max_size=4))
def test_reports(data, cuts):
    """What comes of them is a message that the master takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/report"
        reports = ReportFile(path, 3)
        for piece in pieces(data, cuts):
            with open(path, "ab") as file:
                file.write(piece)
            news = reports.read_new()
            if news is not None:
                assert decode(encode(news)) == news
                assert not news.result or json.dumps(json.loads(news.result))


@fuzz(data=mutations(*SMI))
def test_what_nvidia_smi_prints(data):
    text = data.decode("utf-8", "replace")
    values = nvidia_smi.parse(text)
    assert all(math.isfinite(value) for value in values.values())
    assert decode(encode(Measured(0, values))) == Measured(0, values)
    nvidia_smi.parse_all_devices(text)
    nvidia_smi.select(text, nvidia_smi.parse_devices(text))


@fuzz(data=mutations(b'{"host": "10.0.0.1", "port": 40000}', b'{"host": "fe80::1", "port": "1"}'))
def test_the_file_with_the_masters_address(data):
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        found = read_address(file.name)
    if found is not None:
        host, _, port = found.rpartition(":")
        assert host.isascii() and 0 < int(port) < 65536


class _Watcher:
    """Of a reactor what the relay needs; the test reads in its place."""

    def watch(self, sock, reader, writer=None):
        pass

    def unwatch(self, sock):
        pass


@fuzz(
    rank=mutations(*PMI),
    server=mutations(b"cmd=response_to_init rc=0\n", b"cmd=barrier_out\n"),
    cuts=st.lists(st.integers(0, 200), max_size=4),
    gone_after=st.integers(0, 5),
)
def test_lines_of_a_rank_and_of_its_server(rank, server, cuts, gone_after):
    """Whatever both say, and whenever the server goes: the pair works or hangs up."""
    ours, theirs = socket.socketpair()
    master, far = socket.socketpair()
    closed = []
    pair = pmi_relay._Pair(_Watcher(), ours, lambda text: None, closed.append)
    with theirs, far:
        theirs.setblocking(False)
        for number, piece in enumerate(pieces(rank, cuts)):
            if number == 1:
                pair.connected(master)
            if 1 <= number == gone_after:
                far.shutdown(socket.SHUT_RDWR)
                pair._from_master()
            elif number > 1 and pair._master is not None:
                far.send(server)
                pair._from_master()
            if pair._rank is None:
                break
            theirs.send(piece)
            pair._from_rank()
        pair.close()
        pair.close()
    assert closed
    master.close()
