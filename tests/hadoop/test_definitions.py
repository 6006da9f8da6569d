"""Our definitions against those in the jars of real Hadoops."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import pytest
from google.protobuf import descriptor_pb2

from tests.cluster.hadoop.jars import VERSIONS, cache_root, distribution
from tests.hadoop.schema import MESSAGES
from tony_core.hadoop.hdfs import namenode_client
from tony_core.hadoop.rpc.protobuf import ENUM, SCALARS, Field
from tony_core.hadoop.rpc.service import Method
from tony_core.hadoop.yarn import node_manager, rm_client, rm_master

pytestmark = pytest.mark.cluster

_CLASSES = [
    *(
        f"org.apache.hadoop.{name}"
        for name in (
            "ipc.protobuf.RpcHeaderProtos",
            "ipc.protobuf.IpcConnectionContextProtos",
            "ipc.protobuf.ProtobufRpcEngine2Protos",
            "security.proto.SecurityProtos",
            "yarn.proto.YarnProtos",
            "yarn.proto.YarnServiceProtos",
            "yarn.proto.YarnSecurityTokenProtos",
            "yarn.proto.ApplicationClientProtocol",
            "yarn.proto.ApplicationMasterProtocol",
            "yarn.proto.ContainerManagementProtocol",
            "hdfs.protocol.proto.ClientNamenodeProtocolProtos",
        )
    )
]

_TYPES = {
    "int32": 5,
    "int64": 3,
    "uint32": 13,
    "uint64": 4,
    "sint32": 17,
    "enum": 14,
    "bool": 8,
    "float": 2,
    "string": 9,
    "bytes": 12,
}


class Definitions:
    """What the jars of one version define."""

    def __init__(self, data: bytes) -> None:
        self.messages: Dict[str, descriptor_pb2.DescriptorProto] = {}
        self.enums: Dict[str, Dict[str, int]] = {}
        self.methods: Dict[str, Tuple[str, str]] = {}
        for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
            for message in file.message_type:
                self._add(message)
            self._add_enums(file.enum_type)
            for service in file.service:
                for method in service.method:
                    ends = (method.input_type, method.output_type)
                    self.methods[method.name] = (ours(ends[0]), ours(ends[1]))

    def _add(self, message: descriptor_pb2.DescriptorProto) -> None:
        self.messages[ours(message.name)] = message
        self._add_enums(message.enum_type)
        for inner in message.nested_type:
            self._add(inner)

    def _add_enums(self, enums: Any) -> None:
        for enum in enums:
            self.enums[enum.name] = {value.name: value.number for value in enum.value}

    def default(self, field: descriptor_pb2.FieldDescriptorProto) -> Any:
        """A default as we write it; ``None`` when there is none."""
        if not field.HasField("default_value"):
            return None
        if field.type == 14:
            return self.enums[field.type_name.rpartition(".")[2]][field.default_value]
        if field.type == 9:
            return field.default_value
        if field.type == 8:
            return field.default_value == "true"
        return int(field.default_value)


def ours(name: str) -> str:
    return name.rpartition(".")[2].removesuffix("Proto")


def plain(name: str) -> str:
    return name.replace("_", "").lower()


@pytest.fixture(scope="module")
def cache() -> Path:
    return cache_root().absolute()


@pytest.fixture(scope="module", params=VERSIONS)
def theirs(
    request: pytest.FixtureRequest, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tuple[str, Definitions]]:
    jars = distribution(request.param, cache)
    source = Path(__file__).with_name("Descriptors.java")
    java = jars.java_home / "bin" / "java"
    done = subprocess.run(
        [java, "-Xmx128m", "-cp", f"{jars.lib}/*", source, *_CLASSES],
        capture_output=True,
        check=True,
        timeout=120,
    )
    yield request.param, Definitions(done.stdout)


def wrong(field: Field, real: descriptor_pb2.FieldDescriptorProto, known: Definitions) -> str:
    """What does not fit; empty when all does."""
    if plain(field.name) != plain(real.name):
        return f"is called {real.name}"
    if field.repeated != (real.label == 3) or field.required != (real.label == 2):
        return "is repeated or required where the other is not"
    if field.kind in SCALARS:
        if real.type != _TYPES[str(field.kind)]:
            return f"has the type {real.type}"
        default = known.default(real)
        if default is not None and default != field.default:
            return f"has the default {default!r}"
        if default is None and not field.repeated and field.kind != ENUM and field.default:
            return "has no default"
    elif real.type != 11 or field.message().__name__ != ours(real.type_name):
        return f"is a {real.type_name}"
    return ""


def test_our_fields_are_theirs(theirs: Tuple[str, Definitions]) -> None:
    version, known = theirs
    newest = version == VERSIONS[0]
    differences = []
    for name, kind in sorted(MESSAGES.items()):
        if name not in known.messages:
            differences.append(f"{name} does not exist")
            continue
        numbers = {field.number: field for field in known.messages[name].field}
        for field in kind.FIELDS:
            if field.number not in numbers:
                if newest:
                    differences.append(f"{name}.{field.name} does not exist")
                continue
            problem = wrong(field, numbers[field.number], known)
            # In 3.3 this default was another: we always say which one we mean.
            if problem and (newest or not problem.startswith("has the default")):
                differences.append(f"{name}.{field.name} {problem}")
    assert differences == []


def test_our_calls_are_theirs(theirs: Tuple[str, Definitions]) -> None:
    _, known = theirs
    found = [
        value
        for module in (rm_client, rm_master, node_manager, namenode_client)
        for value in vars(module).values()
        if isinstance(value, Method)
    ]
    assert len(found) > 20
    for method in found:
        ends = (method.request.__name__, method.response.__name__)
        assert known.methods[method.name] == ends
