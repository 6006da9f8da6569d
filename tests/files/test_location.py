"""Taking paths and URLs apart."""

from __future__ import annotations

import pytest

from tony_core.files import location


@pytest.mark.parametrize(
    ("text", "scheme", "name"),
    [
        ("/data/a.zip", "", "a.zip"),
        ("/data/folder/", "", "folder"),
        ("file:///data/a%20b.zip", "file", "a b.zip"),
        ("file:/data/a", "file", "a"),
        ("HTTPS://host/x/y.tar.gz?token=1#z", "https", "y.tar.gz"),
        ("hdfs://nn:8020/user/me/v.zip", "hdfs", "v.zip"),
        ("/odd:name/x://y", "", "y"),
    ],
)
def test_scheme_and_name(text: str, scheme: str, name: str) -> None:
    assert location.scheme_of(text) == scheme
    assert location.base_name(text) == name
    assert location.is_remote(text) == (scheme not in ("", "file"))


def test_user_info_is_masked() -> None:
    assert location.masked("https://me:pw@host/a@b") == "https://****@host/a@b"
    assert location.masked("https://host/a@b") == "https://host/a@b"
    assert location.masked("/home/me@host/x") == "/home/me@host/x"


def test_a_file_url_of_another_host_is_refused() -> None:
    with pytest.raises(ValueError, match="three slashes"):
        location.local_path("file://data/x")


def test_join() -> None:
    assert location.join("/", "a") == "/a"
    assert location.join("hdfs://nn/x/", "a", "b") == "hdfs://nn/x/a/b"
    assert location.join("hdfs:///", "a") == "hdfs:///a"
    assert location.join("file:///", "a") == "file:///a"


@pytest.mark.parametrize(
    ("text", "above"),
    [
        ("hdfs://nn/user/me/.tony/", "hdfs://nn/user/me"),
        ("hdfs:///user", "hdfs:///"),
        ("hdfs://nn", "hdfs://nn/"),
        ("/a/b", "/a"),
        ("/", "/"),
    ],
)
def test_what_stands_above(text: str, above: str) -> None:
    assert location.parent(text) == above


def test_names_are_quoted_where_they_become_part_of_a_url() -> None:
    name = "50% of a b?#c.tar"
    assert location.join("/x", name) == f"/x/{name}"
    for root in ("hdfs://nn/x", "file:///x"):
        assert location.base_name(location.join(root, name)) == name
    assert location.local_path(location.join("file:///x", name)) == f"/x/{name}"
