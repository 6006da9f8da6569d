"""user.to.proxy: honoured, ignored or refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict

import pytest

from tony_azkaban import users
from tony_azkaban.site import Site
from tony_azkaban.users import apply_user, choose_user, explain_error
from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import user_name
from tony_core.job.problems import JobError
from tony_core.job.spec import Job
from tony_core.schedulers.port import SchedulerError

ON_YARN = Job("train", (), scheduler="yarn", user="azkaban")


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a cluster that believes its clients."""
    monkeypatch.setenv("HADOOP_USER_NAME", "azkaban")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    configure(tmp_path, "simple")
    return tmp_path


def configure(folder: Path, authentication: str) -> None:
    (folder / "core-site.xml").write_text(
        "<configuration><property><name>hadoop.security.authentication</name>"
        f"<value>{authentication}</value></property></configuration>"
    )


def test_no_other_user_is_named() -> None:
    for props in ({}, {"user.to.proxy": "azkaban"}, {"user.to.proxy": " "}):
        assert apply_user(ON_YARN, choose_user(props, Site()), Site()) == (ON_YARN, [])
    assert user_name() == "azkaban"


@pytest.mark.parametrize("key", ["user.to.proxy", "env.HADOOP_USER_NAME"])
def test_honoured(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    props = {key: "alice"}
    job, notes = apply_user(ON_YARN, choose_user(props, Site()), Site())
    assert (job.user, notes, user_name()) == ("alice", [], "alice")


def test_a_proxy_is_stronger_than_a_variable() -> None:
    props = {"user.to.proxy": "alice", "env.HADOOP_USER_NAME": "hdfs"}
    assert apply_user(ON_YARN, choose_user(props, Site()), Site())[0].user == "alice"


def test_ignored() -> None:
    props = {"env.HADOOP_USER_NAME": "alice"}
    job, (note,) = apply_user(
        ON_YARN, choose_user(props, Site(proxy="ignore")), Site(proxy="ignore")
    )
    assert "alice" in note
    assert (job.user, user_name()) == ("azkaban", "azkaban")


@pytest.mark.parametrize("proxy", ["honour", "ignore", "refuse"])
def test_the_administrators_own_variable_is_not_the_jobs_to_drop(proxy: str) -> None:
    os.environ["HADOOP_USER_NAME"] = "service"  # of the server, or of site.properties
    message = Site(proxy=proxy)
    for name in ("service", "alice"):
        who = choose_user({"env.HADOOP_USER_NAME": name}, message)
        assert who.own == "service"
    assert user_name() == ("alice" if proxy == "honour" else "service")


@pytest.mark.parametrize(
    ("props", "site", "message"),
    [
        ({"user.to.proxy": "alice"}, Site(proxy="refuse"), "lets none run as another user"),
        ({"env.HADOOP_USER_NAME": "alice"}, Site(proxy="refuse"), "jobs run as azkaban here"),
        ({"user.to.proxy": "hdfs"}, Site(), "no job may run as hdfs"),
        ({"user.to.proxy": "bob"}, Site(denied=("bob",)), "no job may run as bob"),
        ({"user.to.proxy": "a b"}, Site(), "is not a user name"),
        ({"user.to.proxy": "../x"}, Site(), "is not a user name"),
        # Clusters take what stands before these for the name.
        ({"user.to.proxy": "hdfs@x"}, Site(), "is not a user name"),
        ({"env.HADOOP_USER_NAME": "hdfs@x"}, Site(), "is not a user name"),
        ({"user.to.proxy": "hdfs/x"}, Site(), "is not a user name"),
    ],
)
def test_refused(props: Dict[str, str], site: Site, message: str) -> None:
    who = choose_user(props, site)
    with pytest.raises(JobError, match=message) as caught:
        apply_user(ON_YARN, who, site)
    ((key, user),) = props.items()
    assert str(caught.value).startswith(f"{key}: ") and user in str(caught.value)
    assert os.environ.get("HADOOP_USER_NAME") != who.user


def test_a_cluster_with_kerberos_refuses(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def identify(conf: object, env: object) -> ClusterIdentity:
        return ClusterIdentity("azkaban", tokens=Credentials())

    configure(cluster, "kerberos")
    monkeypatch.setattr(users, "cluster_identity", identify)
    with pytest.raises(
        JobError, match=r"user.to.proxy: cannot run as alice: .* run as azkaban, whose"
    ):
        apply_user(ON_YARN, choose_user({"user.to.proxy": "alice"}, Site()), Site())
    _, notes = apply_user(ON_YARN, choose_user({"user.to.proxy": "azkaban"}, Site()), Site())
    assert notes == []
    who = choose_user({"user.to.proxy": "alice"}, Site(proxy="ignore"))
    _, (note,) = apply_user(ON_YARN, who, Site())
    assert note.startswith("runs as azkaban: ")


def test_a_cluster_with_kerberos_and_no_ticket_is_reported_later(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(cluster, "kerberos")
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere/cache")
    assert apply_user(ON_YARN, choose_user({"user.to.proxy": "alice"}, Site()), Site()) == (
        ON_YARN,
        [],
    )


def test_the_embedded_scheduler_has_no_other_users() -> None:
    local = ON_YARN.replace(scheduler="local")
    for site in (Site(), Site(proxy="refuse")):
        job, (note,) = apply_user(local, choose_user({"user.to.proxy": "alice"}, site), site)
        assert job == local
        assert "local knows no other users" in note
        os.environ["HADOOP_USER_NAME"] = "azkaban"


def test_a_refusal_names_who_set_it() -> None:
    """Servers of 3.x set it in every job: its author may not have heard of it."""
    props = {"user.to.proxy": "alice", "azkaban.flow.submituser": "alice"}
    with pytest.raises(JobError, match="alice, who submitted the flow"):
        apply_user(ON_YARN, choose_user(props, Site(proxy="refuse")), Site(proxy="refuse"))


@pytest.mark.parametrize("site", [Site(), Site(proxy="ignore"), Site(proxy="refuse")])
def test_what_a_server_sets_in_every_job_is_no_warning(site: Site) -> None:
    props = {"user.to.proxy": "alice", "azkaban.flow.submituser": "alice"}
    local = ON_YARN.replace(scheduler="local")
    assert apply_user(local, choose_user(props, site), site) == (local, [])
    os.environ["HADOOP_USER_NAME"] = "azkaban"
    if site.proxy == "ignore":
        assert apply_user(ON_YARN, choose_user(props, site), site) == (ON_YARN, [])


def test_a_clusters_refusal_of_that_user_is_explained() -> None:
    who = choose_user({"user.to.proxy": "alice"}, Site())
    denied = SchedulerError("User alice does not have permission to submit to queue root.ml")
    assert explain_error(who, denied) == "the job runs as alice: user.to.proxy"
    assert explain_error(who, SchedulerError("no malices here")) == ""
    assert explain_error(choose_user({}, Site()), denied) == ""
    assert (
        explain_error(choose_user({"user.to.proxy": "alice"}, Site(proxy="ignore")), denied) == ""
    )
