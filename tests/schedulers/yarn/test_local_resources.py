"""Which files a container gets, and who may see them on the node."""

from __future__ import annotations

from typing import Dict, List

import pytest

from tests.schedulers.yarn.clusters import ROOT, RUNTIME, artifact
from tony_core.files.artifact import Kind
from tony_core.files.port import FileSystem, Stat
from tony_core.hadoop.yarn.launch import PRIVATE, PUBLIC
from tony_core.schedulers.yarn.local_resources import (
    Visibility,
    local_file,
    local_files,
    split_links,
    visibility_by_uri,
)


class Modes(FileSystem):
    """Knows permission bits, and counts who asks."""

    def __init__(self, modes: Dict[str, int]) -> None:
        self.modes = modes
        self.requested: List[str] = []

    def stat(self, location: str) -> Stat:
        self.requested.append(location)
        if location not in self.modes:
            raise PermissionError(13, "Permission denied", location)
        return Stat(location, False, 1, 1, self.modes[location])


# Only stat is ever called.
Modes.__abstractmethods__ = frozenset()


def visibility(modes: Dict[str, int], uri: str, kind: Kind = Kind.FILE) -> str:
    found = Visibility(ROOT, lambda location: Modes(modes))
    return found.of(artifact("x", uri=uri, kind=kind))


def test_what_we_staged_is_the_users_own() -> None:
    assert visibility({}, f"{ROOT}/store/objects/a/b") == PRIVATE
    assert visibility({}, f"{ROOT}-of-all/b") == PRIVATE  # other users may not look


@pytest.mark.parametrize(
    ("modes", "kind", "means"),
    [
        ((0o755, 0o755, 0o644), Kind.FILE, PUBLIC),
        ((0o755, 0o711, 0o644), Kind.ARCHIVE, PUBLIC),
        ((0o755, 0o750, 0o644), Kind.FILE, PRIVATE),
        ((0o755, 0o755, 0o640), Kind.FILE, PRIVATE),
        ((0o755, 0o755, 0o644), Kind.FOLDER, PRIVATE),
        ((0o755, 0o755, 0o755), Kind.FOLDER, PUBLIC),
    ],
)
def test_public_is_what_is_open_to_everybody_all_the_way(
    modes: tuple[int, ...], kind: Kind, means: str
) -> None:
    places = ("hdfs://lake/", "hdfs://lake/pub", "hdfs://lake/pub/f.zip")
    assert visibility(dict(zip(places, modes, strict=True)), places[-1], kind) == means


def test_every_place_is_asked_once() -> None:
    places = Modes({"hdfs://lake/": 0o755, "hdfs://lake/a": 0o644, "hdfs://lake/b": 0o644})
    found = Visibility(ROOT, lambda location: places)
    both = [artifact(name, uri=f"hdfs://lake/{name}") for name in "ab"]
    assert found(both) == found(both) == {one.uri: PUBLIC for one in both}
    assert sorted(places.requested) == ["hdfs://lake/", "hdfs://lake/a", "hdfs://lake/b"]


def test_where_it_is_not_known_it_is_private() -> None:
    assert visibility({}, "hdfs://lake/gone") == PRIVATE
    assert visibility({}, "s3a://bucket/x") == PRIVATE


def test_a_web_server_has_no_times() -> None:
    assert local_file(artifact("x", uri="https://example.org/x.zip")).timestamp_ms == 0
    assert local_file(artifact("x")).timestamp_ms == 1000


def test_by_name_as_yarn_brings_them() -> None:
    public = artifact("data", uri="hdfs://lake/pub/data.zip", kind=Kind.ARCHIVE)
    files = local_files([RUNTIME, public], {public.uri: PUBLIC})
    assert {name: (file.archive, file.visibility) for name, file in files.items()} == {
        "tony-runtime": (True, PRIVATE),
        "data": (True, PUBLIC),
    }


def test_a_file_is_asked_for_under_one_name() -> None:
    same = {"uri": f"{ROOT}/store/objects/same/content"}
    artifacts = [
        artifact("a.txt", **same),
        artifact("other.txt"),
        artifact("b.txt", **same),
        artifact("data", kind=Kind.ARCHIVE, **same),  # unpacked, it is another
        artifact("c.txt", **same),
    ]
    files, links = split_links(local_files(artifacts, {}))
    assert list(files) == ["a.txt", "other.txt", "data"]
    assert links == {"b.txt": "a.txt", "c.txt": "a.txt"}


def test_credentials_carry_what_the_client_found_out() -> None:
    entries = [{**RUNTIME.to_json(), "visibility": PRIVATE}, artifact("x").to_json()]
    assert visibility_by_uri(entries) == {RUNTIME.uri: PRIVATE}
