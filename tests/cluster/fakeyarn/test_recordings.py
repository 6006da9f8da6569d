"""The fake against a real cluster's answers: bytes that were recorded, and shapes of answers."""

from __future__ import annotations

import getpass
import json
import re
from pathlib import Path
from typing import Dict, List

import pytest

from tests.cluster.fakeyarn.cluster import FakeYarn
from tests.cluster.fakeyarn.conversation import SHAPES, Conversation, Shapes
from tests.cluster.fakeyarn.manager import Limits
from tests.cluster.fakeyarn.tokens import Tokens
from tests.cluster.fakeyarn.wire import NoSuchSecret, ServerWire
from tests.cluster.hadoop.fixture import GetHadoop
from tests.hadoop.recorded import NAMES, Recording, load
from tony_core.hadoop.errors import AuthenticationError
from tony_core.hadoop.rpc.messages import Token
from tony_core.hadoop.rpc.wire import CallFailed, CallResult
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.records import Capability


def server_of(recording: Recording) -> ServerWire:
    """A server in the state that the real one was in."""
    identity = recording.identity
    nonce = re.search(rb'nonce="(.*?)"', recording.came)
    qop = re.search(rb'qop="(.*?)"', recording.came)

    def secret_of(identifier: bytes) -> bytes:
        if recording.name == "refused":
            raise NoSuchSecret("appattempt_1_0001_000001 not found in AMRMTokenSecretManager.")
        if recording.name == "malformed":
            Tokens.master_of(identifier)
        assert isinstance(identity, Token)
        assert identifier == identity.identifier
        return b"another one" if recording.name == "forged" else identity.password

    return ServerWire(
        None if recording.name == "simple" else secret_of,
        qop=qop.group(1).decode() if qop else "auth",
        nonce=nonce.group(1).decode() if nonce else "",
    )


def answers_of(recording: Recording) -> Dict[int, object]:
    """What was answered to each call, with Java's stacks."""
    wire = recording.wire()
    for index in range(len(recording.calls)):
        recording.send(wire, index)
    found: Dict[int, object] = {}
    wire.outgoing()
    for what, data in recording.log:
        try:
            events = wire.receive(data) if what == "came" else []
        except AuthenticationError:
            break  # it refused the handshake: no call was answered
        for event in events:
            if isinstance(event, (CallResult, CallFailed)):
                found[event.call_id] = event
    return found


@pytest.mark.parametrize("name", NAMES)
def test_its_answers_equal_the_recording_byte_by_byte(name: str) -> None:
    recording = load(name)
    answers = answers_of(recording)
    server = server_of(recording)
    answered = b""
    closed = False
    for what, data in recording.log:
        if what == "sent":
            for call in server.receive(data):
                answer = answers[call.call_id]
                if isinstance(answer, CallResult):
                    server.answer(call, answer.body)
                elif isinstance(answer, CallFailed):
                    server.refuse(call, answer.remote_class, answer.message)
            answered += server.outgoing()
        closed = closed or what == "closed"
    assert answered == recording.came
    if closed:
        assert server.over


def differences(shapes: Shapes) -> Dict[str, List[str]]:
    """From the real cluster's answers."""
    wanted: Shapes = json.loads(SHAPES.read_text())
    return {
        name: [
            *(f"- {one}" for one in wanted.get(name, ["nothing"]) if one not in shapes[name]),
            *(f"+ {one}" for one in shapes.get(name, ["nothing"]) if one not in wanted[name]),
        ]
        or ["other order"]
        for name in {*wanted, *shapes}
        if wanted.get(name) != shapes.get(name)
    }


@pytest.mark.parametrize("qop", ["auth", "auth-int", "auth-conf"])
def test_its_answers_have_the_shape_of_the_real_ones(tmp_path: Path, qop: str) -> None:
    gpus = {"yarn.io/gpu": 4}
    limits = Limits(maximum=Capability(8192, 32, gpus), others=("yarn.io/gpu",))
    node = Capability(16384, 256, gpus)
    with FakeYarn(tmp_path, real=True, qop=qop, limits=limits, node=node) as yarn:
        shapes = Conversation(yarn.configuration, getpass.getuser()).run()
    assert differences(shapes) == {}


@pytest.mark.cluster
def test_the_shapes_are_those_of_a_real_cluster(hadoop: GetHadoop) -> None:
    cluster = hadoop("two_nodes", "gpu")
    conf = SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))
    assert differences(Conversation(conf, cluster.user).run()) == {}
