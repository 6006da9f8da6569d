"""Fresh tokens in a master's process: launches, calls, files, and its own programs' token file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.program.fakehdfs import FakeHdfs
from tests.schedulers.yarn.node.test_start import CONTAINER
from tony_core.files import registry
from tony_core.files.location import join
from tony_core.hadoop.credentials import Credentials, url_string
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import AM_RM, HDFS_DELEGATION, RM_DELEGATION, Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId
from tony_core.hadoop.yarn.messages import yarn
from tony_core.job.jsonfile import job_to_json
from tony_core.job.spec import Job
from tony_core.schedulers import container_pool
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.master import nodes, pool_factory
from tony_core.schedulers.yarn.master.user_tokens import UserTokens
from tony_core.schedulers.yarn.node import find_master, start

RM = "127.0.0.1:8032"
HIVE = Token(b"hive", b"p", "HIVE_DELEGATION_TOKEN", "hive")


def of_user(generation: str) -> Credentials:
    """What a fetch gives; the master's own token is none of it."""
    hdfs = Token(f"hdfs {generation}".encode(), b"p", HDFS_DELEGATION, "127.0.0.1:8020")
    rm = Token(f"rm {generation}".encode(), b"p", RM_DELEGATION, RM)
    return Credentials({hdfs.service: hdfs, f"{generation} of the RM": rm})


class OpenedMaster:
    """A master's parts, opened from the credentials that YARN gives its container."""

    def __init__(self, folder: Path, hdfs: FakeHdfs) -> None:
        self.hdfs = hdfs
        site = {
            "fs.defaultFS": "hdfs://127.0.0.1:8020",
            "dfs.namenode.http-address": hdfs.urls[0].partition("//")[2],
            "hadoop.security.authentication": "kerberos",
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.address": RM,
            "yarn.resourcemanager.scheduler.address": "127.0.0.1:8030",
        }
        self.conf = SiteConfiguration.of(site)
        root = "hdfs://127.0.0.1:8020/user/ann/.tony"
        sent = job_credentials.MasterCredentials(
            job_to_json(Job("long", ())), (), "", site, "ann", root, join(root, "history")
        )
        attempt = AttemptId(ApplicationId(1700000000000, 42), 1)
        identifier = yarn.AMRMTokenIdentifier(app_attempt_id=attempt.to_message()).encode()
        token = Token(identifier, b"p", AM_RM, "")
        first = of_user("1").with_token("hive", HIVE)
        credentials = Credentials(
            {**first.tokens, "am": token}, {job_credentials.SECRET: b"s" * 32}
        )
        self.own_file = folder / "program-tokens"
        self.own_file.write_bytes(first.encode())
        env = {start.TOKEN_FILE_VARIABLE: str(self.own_file), "CONTAINER_ID": CONTAINER}
        tokens = UserTokens()
        tokens.on_renewal(pool_factory.register_hdfs(sent, credentials).renew_tokens)
        self.context, self.pool = pool_factory.create_master(
            sent, credentials, token, env, str(folder), tokens
        )

    def launched(self) -> Credentials:
        """The credentials of the next container."""
        wanted = container_pool.Launch(("python3", "x"), {}, (), b"key")
        return self.pool._contexts.launch("worker", wanted).credentials


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenedMaster]:
    monkeypatch.setenv("TONY_HDFS", "restored at the end: create_master sets it")
    hdfs = FakeHdfs()
    made = OpenedMaster(tmp_path, hdfs)
    hdfs.token = url_string(of_user("1").tokens["127.0.0.1:8020"])
    yield made
    made.pool.close()
    registry.forget()
    hdfs.close()


def test_later_containers_and_the_masters_own_programs_have_them(opened: OpenedMaster) -> None:
    before = opened.launched()
    for generation in ("2", "3"):
        content = opened.pool.renew_tokens(of_user(generation).encode())
    wanted = of_user("3").with_token("hive", HIVE)
    after = opened.launched()
    assert set(after.tokens.values()) == set(wanted.tokens.values())
    assert after.secrets == before.secrets
    assert set(Credentials.decode(content).tokens.values()) == set(wanted.tokens.values())
    assert Credentials.decode(content).secrets == {}, "executors get no secret of the job"
    assert opened.own_file.read_bytes() == content
    assert opened.own_file.stat().st_mode & 0o777 == 0o600


def test_a_masters_own_token_goes_nowhere(opened: OpenedMaster) -> None:
    fresh = of_user("2").with_token("am", Token(b"other", b"p", AM_RM, ""))
    content = opened.pool.renew_tokens(fresh.encode())
    assert not Credentials.decode(content).find(AM_RM) and not opened.launched().find(AM_RM)


def test_journal_and_history_have_them(opened: OpenedMaster) -> None:
    """These keep the file system that they have found at their begin."""
    state = opened.context.state_dir
    files = registry.filesystem(state)
    files.mkdir(state)
    opened.hdfs.token = url_string(of_user("2").tokens["127.0.0.1:8020"])
    with pytest.raises(PermissionError, match="has expired"):
        files.exists(state)
    opened.pool.renew_tokens(of_user("2").encode())
    assert files.exists(state)
    assert registry.filesystem(state) is files


def test_what_is_no_credentials_file_changes_nothing(opened: OpenedMaster) -> None:
    before = opened.launched()
    with pytest.raises(ValueError, match="HDTS"):
        opened.pool.renew_tokens(b"no file of tokens")
    assert opened.launched() == before


def test_calls_to_the_resource_manager_open_a_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: List[ClusterIdentity] = []
    closed: List[ClusterIdentity] = []

    class Client:
        def __init__(self, identity: ClusterIdentity) -> None:
            self.identity = identity
            opened.append(identity)

        def nodes(self) -> List[Any]:
            return []

        def close(self) -> None:
            closed.append(self.identity)

    def open_client(conf: SiteConfiguration, **words: Any) -> Client:
        return Client(words["identity"])

    monkeypatch.setattr(nodes.RmClient, "open", open_client)
    old, new = (ClusterIdentity("ann", tokens=of_user(each)) for each in "12")
    client = nodes.UserClient(SiteConfiguration.of({}), old)
    client.nodes()
    client.nodes()
    client.renew(new)
    client.nodes()
    client.nodes()
    assert (opened, closed) == ([old, new], [old])
    client.close()


class TestFindMaster:
    """The executor's search for the next master."""

    def environment(self, folder: Path) -> Dict[str, str]:
        secrets = {job_credentials.SITE: b"site"}
        container = Credentials({**of_user("1").tokens}, secrets)
        container.write(str(folder / "container_tokens"))
        return {"HADOOP_TOKEN_FILE_LOCATION": str(folder / "container_tokens")}

    def test_it_uses_the_newest_tokens(self, tmp_path: Path) -> None:
        env = self.environment(tmp_path)
        of_user("2").write(str(tmp_path / "newest"))
        env[start.TOKEN_FILE_VARIABLE] = str(tmp_path / "newest")
        held = find_master.read_credentials(env)
        assert set(held.tokens.values()) == set(of_user("2").tokens.values())
        assert held.secrets == {job_credentials.SITE: b"site"}

    @pytest.mark.parametrize("more", [{}, {start.TOKEN_FILE_VARIABLE: ""}])
    def test_without_a_file_of_its_own(self, more: Dict[str, str], tmp_path: Path) -> None:
        held = find_master.read_credentials({**self.environment(tmp_path), **more})
        assert held.tokens == of_user("1").tokens


def test_a_file_system_without_a_token_among_the_fresh_keeps_its_own(
    opened: OpenedMaster,
) -> None:
    rm_only = Credentials({"rm": Token(b"rm 2", b"p", RM_DELEGATION, RM)})
    opened.pool.renew_tokens(rm_only.encode())
    assert not registry.filesystem(opened.context.state_dir).exists(opened.context.state_dir)
