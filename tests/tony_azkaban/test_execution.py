"""Tags, by which an application is found again, and links back."""

from __future__ import annotations

from typing import Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz, mutations
from tony_azkaban.execution import (
    LONGEST_TAG,
    MOST_TAGS,
    Execution,
    host_of,
    merge_tags,
    read,
    tag,
    tag_value,
)
from tony_azkaban.java_properties import PropertiesError, dump, load

ON_3 = {
    "azkaban.flow.execid": "12",
    "azkaban.flow.flowid": "nightly",
    "azkaban.flow.projectid": "3",
    "azkaban.flow.projectname": "vision",
    "azkaban.flow.submituser": "alice",
    "azkaban.job.attempt": "2",
    "azkaban.url": "https://az.example:8443",
    "azkaban.link.execution.url": "https://az.example:8443/executor?execid=12",
    "azkaban.link.attempt.url": "https://az.example:8443/executor?execid=12&job=train&attempt=2",
}
ON_25 = {key: ON_3[key] for key in list(ON_3)[:3]}


def test_everything_that_a_later_server_answers() -> None:
    this = read(ON_3, {"JOB_NAME": "train"}, "", "")
    assert list(this.tags().values()) == [
        "azkaban.server:az.example:8443",
        "azkaban.flow.execid:12",
        "azkaban.job:train",
        "azkaban.job.attempt:2",
        "azkaban.flow.flowid:nightly",
        "azkaban.flow.projectname:vision",
        "azkaban.flow.submituser:alice",
    ]
    assert dict(this.links) == {
        "azkaban": ON_3["azkaban.link.execution.url"],
        "azkaban_log": ON_3["azkaban.link.attempt.url"],
    }


def test_what_an_older_server_omits_comes_from_the_site() -> None:
    this = read(ON_25, {"JOB_NAME": "train"}, "", "http://old.example:8081")
    assert this.project == "3"
    assert this.server == "old.example:8081"
    assert dict(this.links) == {
        "azkaban": "http://old.example:8081/executor?execid=12",
        "azkaban_log": "http://old.example:8081/executor?execid=12&job=train&attempt=0",
    }
    bare = read(ON_25, {"JOB_NAME": "train"}, "", "")
    assert bare.links == ()
    assert bare.server


def test_a_job_in_a_flow_within_a_flow_is_another_one() -> None:
    within = {**ON_25, "azkaban.flow.nested.path": "a"}
    assert read(within, {"JOB_NAME": "train"}, "s", "").job == "a:train"
    one = read({**ON_25, "azkaban.flow.nested.path": "a:train"}, {"JOB_NAME": "train"}, "s", "")
    other = read({**ON_25, "azkaban.flow.nested.path": "b:train"}, {"JOB_NAME": "train"}, "s", "")
    assert not one.is_same_job(tuple(other.tags().values()))


@given(
    st.sampled_from(["azkaban.job", "azkaban.server"]),
    st.text(max_size=150),
    st.text(max_size=150),
)
def test_yarn_takes_a_tag_and_distinguishes_it(name: str, one: str, other: str) -> None:
    made = tag(name, one)
    assert made.isascii() and len(made) <= LONGEST_TAG and "," not in made
    # YARN makes small letters of them.
    assert (made.lower() == tag(name, other).lower()) == (one == other)


URLS = [b"https://az.example:8443", b"http://[::1]:8081/a?b=c#d", b"http://u:p@az/", b"http://["]


@fuzz(data=mutations(*URLS))
def test_a_damaged_address_is_one_error(data: bytes) -> None:
    url = data.decode("utf-8", "surrogateescape")
    try:
        assert host_of(url).isprintable()
    except ValueError:
        pass


PROPERTIES = [dump(ON_3), dump({**ON_3, "azkaban.url": "http://[", "azkaban.job.attempt": "²"})]


@fuzz(data=mutations(*PROPERTIES))
def test_any_name_of_a_job(data: bytes) -> None:
    """Its properties may be anything that a properties file can hold."""
    try:
        props = load(data)
    except PropertiesError:
        return
    this = read(props, {"JOB_NAME": props.get("azkaban.flow.flowid", "")}, "", "")
    assert all(len(each) <= LONGEST_TAG for each in this.tags().values())
    assert all(url.isascii() and url.isprintable() for _, url in this.links)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("azkaban.url", "http://["),
        ("azkaban.url", "http://az:port"),
        ("azkaban.link.execution.url", "http://az/\nSUCCEEDED all is well"),
        ("azkaban.flow.execid", "\ud800"),
        ("azkaban.job.attempt", "9" * 5000),
        ("azkaban.job.attempt", "-1"),
    ],
)
def test_wrong_properties_of_a_job(key: str, text: str) -> None:
    this = read({**ON_25, "azkaban.url": "http://az:1", key: text}, {"JOB_NAME": "train"}, "", "")
    assert this.attempt == 0
    assert all(url.isascii() and url.isprintable() for _, url in this.links)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Execution("train", "12", server="s"), Execution("train", "12", server="s"), True),
        (Execution("train", "12", server="s"), Execution("train", "13", server="s"), False),
        (Execution("train", "12", server="s"), Execution("Train", "12", server="s"), False),
        (Execution("train", "12", server="s"), Execution("train", "12", server="t"), False),
        (Execution("train", "", server="s"), Execution("train", "", server="s"), False),
    ],
)
def test_the_same_job(one: Execution, other: Execution, same: bool) -> None:
    tags = tuple(each.lower() for each in other.tags().values())
    assert one.is_same_job((*tags, "of-the-user")) is same


@given(st.lists(st.text("abc", min_size=1), max_size=12).map(tuple))
def test_the_users_tags_stay(own: Tuple[str, ...]) -> None:
    ours = read(ON_3, {"JOB_NAME": "train"}, "", "").tags()
    tags, left_out = merge_tags(own, ours)
    kept = tuple(dict.fromkeys(own))[: MOST_TAGS - 3]
    assert tags[: len(kept)] == kept
    assert len(tags) <= MOST_TAGS
    assert len(tags) + len(left_out) == len(dict.fromkeys(own)) + len(ours)
    # By these it is found again, however many the job has.
    assert tag_value(tags, "azkaban.flow.execid") == "12"
    assert tag_value(tags, "azkaban.job") == "train"
    assert tag_value(tags, "azkaban.server")
