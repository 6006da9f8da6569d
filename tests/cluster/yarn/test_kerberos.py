"""Jobs on a cluster with Kerberos: by a ticket, or by the tokens of a caller."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.yarn.jobs import Running, Tony, until
from tests.cluster.yarn.training import masters
from tests.key_material import KeySearch, keys_of_credentials
from tony_core.files.hdfs import WebHdfsFileSystem
from tony_core.hadoop.credentials import LOCATION, Credentials
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.hdfs.namenode_client import obtain_token
from tony_core.hadoop.identity import ClusterIdentity, cluster_identity, rm_token_service
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, RM_DELEGATION
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.schedulers.yarn.client.delegation_tokens import renewer_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TRAINS = """
import os, shutil, sys, time
import tony
folder, session = sys.argv[1], os.environ["SESSION_ID"]
me = os.environ["JOB_NAME"] + "-" + os.environ["TASK_INDEX"]
shutil.copy(os.environ["HADOOP_TOKEN_FILE_LOCATION"], f"{folder}/{me}.tokens")
checkpoints = tony.checkpoints(sys.argv[2] + "/" + me)
found = checkpoints.latest()
step = found[0] + 1 if found else 0
while not os.path.exists(folder + "/over"):
    if session == "0" and os.path.exists(folder + "/fail"):
        sys.exit(3)
    checkpoints.save(step, str(step).encode())
    with open(f"{folder}/{me}", "a") as file:
        file.write(f"{session} {os.getpid()} {step}\\n")
    step += 1
    time.sleep(0.2)
"""


class Saving:
    """Workers (two) that save each step to HDFS, and go on from the newest."""

    def __init__(self, tony: Tony, env: Mapping[str, str] = {}, **conf: Any) -> None:
        self.folder = tony.folder / "steps"
        self.folder.mkdir()
        src = tony.folder / "src"
        src.mkdir()
        (src / "train.py").write_text(TRAINS)
        assert tony.cluster is not None
        name = f"{tony.folder.parent.name}-{tony.folder.name}"
        self.url = f"hdfs:///user/{tony.cluster.user}/checkpoints/{name}"
        settings = {"tony.worker.instances": 2, "tony.worker.memory": "128m", **conf}
        words = f"python3 train.py {self.folder} {self.url}"
        self.job: Running = tony.submit("--src_dir", str(src), "--executes", words, conf=settings)

    def lines(self) -> Dict[str, List[List[str]]]:
        """What each worker has saved: session, pid, step."""
        return {
            f"worker-{index}": [
                line.split()
                for line in self._read(f"worker-{index}").splitlines(True)
                if line.endswith("\n")
            ]
            for index in range(2)
        }

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def saves(self, session: str = "0", least: int = 1) -> bool:
        """Both have saved so many steps in that session."""
        return all(
            sum(line[0] == session for line in lines) >= least for lines in self.lines().values()
        )

    def grows(self) -> Callable[[], bool]:
        """Whether each has saved more since now."""
        before = {name: len(lines) for name, lines in self.lines().items()}
        return lambda: all(len(lines) > before[name] + 2 for name, lines in self.lines().items())

    def tell(self, what: str) -> None:
        (self.folder / what).touch()

    def tokens(self) -> Credentials:
        """What a program was given."""
        return Credentials.decode((self.folder / "worker-0.tokens").read_bytes())


@pytest.fixture
def secure(hadoop: GetHadoop, monkeypatch: pytest.MonkeyPatch) -> Hadoop:
    # Where logs are aggregated, tokens are cancelled ten minutes after a job's end.
    cluster = hadoop("secure")
    monkeypatch.setenv("KRB5_CONFIG", cluster.environment_of(cluster.user)["KRB5_CONFIG"])
    return cluster


def conf_of(cluster: Hadoop) -> SiteConfiguration:
    return SiteConfiguration.load({}, conf_dir=str(cluster.conf_dir))


def is_believed(cluster: Hadoop, tokens: Credentials) -> bool:
    """Whether the NameNode believes the holder of these tokens."""
    conf = conf_of(cluster)
    holder = ClusterIdentity(cluster.user, tokens=tokens)
    try:
        obtain_token(conf, holder, endpoints.name_service(conf), "yarn")
    except HadoopError as error:
        # By a token no token can be obtained: so says a NameNode that believes it.
        return "can be issued only with kerberos" in str(error)
    raise AssertionError("a token was obtained by a token")


def callers_tokens(cluster: Hadoop, path: Path, renewer: str = "") -> Credentials:
    """What a caller of TonY obtains for its user."""
    conf = conf_of(cluster)
    who = cluster_identity(conf, cluster.environment_of(cluster.user))
    rm = RmClient.open(conf, identity=who)
    renewer = renewer or renewer_of(conf)
    try:
        found = [
            obtain_token(conf, who, endpoints.name_service(conf), renewer),
            rm.delegation_token(renewer)._replace(service=rm_token_service(conf)),
        ]
    finally:
        rm.close()
    held = Credentials({one.service: one for one in found})
    held.write(str(path))
    return held


def without_kerberos(tony: Tony, tokens: Path) -> None:
    """Its commands find neither a ticket nor a KDC."""
    for name in ("KRB5CCNAME", "KRB5_CONFIG"):
        tony.env.pop(name, None)
    tony.env["KRB5_CONFIG"] = os.devnull
    tony.env[LOCATION] = str(tokens)


def test_a_gang_saves_to_hdfs_fails_and_goes_on(
    secure: Hadoop, tony_on: Callable[..., Tony]
) -> None:
    one = tony_on(secure)
    saving = Saving(one, **{"tony.am.retry-count": 1})
    job = saving.job
    job.until(lambda: saving.saves(), "both have saved")
    held = saving.tokens()
    kinds = sorted(token.kind for token in held.tokens.values())
    assert kinds == [HDFS_DELEGATION, RM_DELEGATION]
    assert held.secrets == {}
    assert is_believed(secure, held)
    caches = nodes_folders(secure, "local/usercache/*/appcache", job.app_id)
    files = [path for path in caches if path.name == ".tony-tokens"]
    assert len(files) == 3  # of the master, too
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    saving.tell("fail")
    job.until(lambda: saving.saves("1"), "the next session saves")
    for lines in saving.lines().values():
        before = [int(line[2]) for line in lines if line[0] == "0"]
        after = [int(line[2]) for line in lines if line[0] == "1"]
        assert after[0] == before[-1] + 1
    saving.tell("over")
    shown = job.ends(0)
    until(one.nothing_runs, "no process is left")
    until(lambda: not is_believed(secure, held), "the NameNode refuses the job's token", 60)
    events = job.events()
    assert [event["kind"] for event in events].count("root-cause") == 1
    search = KeySearch(keys_of_credentials(held.encode()))
    logs = [path for path in nodes_folders(secure, "logs", job.app_id) if path.is_file()]
    assert {path.name for path in logs} >= {"stdout", "executor.stderr", "launch_container.sh"}
    texts = [shown.encode(), repr(events).encode(), *(path.read_bytes() for path in logs)]
    assert [search.find(text) for text in texts] == [[]] * len(texts)


def nodes_folders(cluster: Hadoop, below: str, app_id: str) -> List[Path]:
    """What is below the folders of an application on the nodes."""
    folders = (cluster.folder / "data").glob(f"nm*/{below}/{app_id}")
    return [path for folder in folders for path in folder.rglob("*")]


def test_a_next_master_and_a_restarted_name_node(
    secure: Hadoop, tony_on: Callable[..., Tony]
) -> None:
    """Both read HDFS by the tokens that the first master had."""
    one = tony_on(secure)
    saving = Saving(one, **{"tony.am.retry-count": 0})
    job = saving.job
    job.until(lambda: saving.saves(least=20), "both have saved, and YARN knows")
    (first,) = masters(job.app_id)
    os.kill(first, signal.SIGKILL)
    job.until(lambda: masters(job.app_id) not in ([], [first]), "the next master")
    job.until(lambda: one.json("status", job.app_id)["attempt"] == 2, "it has taken over")
    job.until(saving.grows(), "they save on")
    secure.stop_nn()
    secure.start("nn0")
    job.until(saving.grows(), "they save on after the NameNode's restart")
    saving.tell("over")
    job.ends(0)
    for lines in saving.lines().values():
        assert len({line[1] for line in lines}) == 1, job.events()
    logs = nodes_folders(secure, "logs", job.app_id)
    errors = [path.read_text() for path in logs if path.name == "executor.stderr"]
    assert errors and "yarn-find-master:" not in "".join(errors)  # it looked on HDFS
    assert one.json("status", job.app_id)["attempt"] == 2


def test_a_callers_tokens_suffice_and_stay_the_callers(
    secure: Hadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    one = tony_on(secure)
    held = callers_tokens(secure, tmp_path / "tokens")
    without_kerberos(one, tmp_path / "tokens")
    saving = Saving(one)
    job = saving.job
    job.until(lambda: saving.saves(), "both have saved")
    assert saving.tokens() == held
    assert one.json("status", job.app_id)["state"] == "RUNNING"
    saving.tell("over")
    job.ends(0)
    assert one.json("list")
    assert is_believed(secure, held)


def test_tokens_that_lack_one_or_have_another_renewer(
    secure: Hadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    one = tony_on(secure)
    held = callers_tokens(secure, tmp_path / "tokens", renewer="oozie")
    without_kerberos(one, tmp_path / "tokens")
    words = ["--executes", "true", "--conf", "tony.worker.instances=1"]
    done = one("submit", *words, check=False)
    assert "cannot renew the" in done.stderr and "whose renewer is oozie" in done.stderr
    (hdfs,) = (token for token in held.tokens.values() if token.kind == HDFS_DELEGATION)
    Credentials({"one": hdfs}).write(str(tmp_path / "tokens"))
    done = one("submit", *words, check=False)
    assert "there is no token for the ResourceManager" in done.stderr
    assert f"{HDFS_DELEGATION} for {hdfs.service}" in done.stderr


@pytest.mark.nightly
def test_pairs_of_name_nodes_and_resource_managers(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tokens are for the pairs: a job goes on when the other one of each takes over."""
    cluster = hadoop("secure", "nn_ha", "rm_ha")
    monkeypatch.setenv("KRB5_CONFIG", cluster.environment_of(cluster.user)["KRB5_CONFIG"])
    one = tony_on(cluster)
    saving = Saving(one, **{"tony.am.retry-count": 0})
    job = saving.job
    job.until(lambda: saving.saves(), "both have saved")
    services = {token.kind: token.service for token in saving.tokens().tokens.values()}
    name = cluster.site("hdfs-site")["dfs.nameservices"]
    assert services[HDFS_DELEGATION] == f"ha-hdfs:{name}"
    assert services[RM_DELEGATION].count(",") == 1
    cluster.fail_over_hdfs()
    job.until(saving.grows(), "they save at the other NameNode")
    cluster.kill_active_rm()
    job.until(saving.grows(), "they save without the first ResourceManager")
    saving.tell("over")
    job.ends(0)


BY_WEB = """
import sys
import tony
assert open("given").read() == "content"
tony.checkpoints(sys.argv[1]).save(1, b"saved")
"""


def test_locations_by_the_name_nodes_web_server(
    secure: Hadoop, tony_on: Callable[..., Tony], tmp_path: Path
) -> None:
    """For client, nodes, master and program it is the same file system, with its token."""
    one = tony_on(secure)
    home = f"{secure.webhdfs_url.replace('http', 'webhdfs', 1)}/user/{secure.user}"
    who = cluster_identity(conf_of(secure), secure.environment_of(secure.user))
    files = WebHdfsFileSystem(conf_of(secure), who)
    files.put(f"{home}/given", b"content")
    callers_tokens(secure, tmp_path / "tokens")
    without_kerberos(one, tmp_path / "tokens")
    (one.folder / "train.py").write_text(BY_WEB)
    conf = {
        "tony.yarn.staging-dir": f"{home}/by-web",
        "tony.history.location": f"{home}/by-web-history",
        "tony.containers.resources": f"{home}/given,{one.folder / 'train.py'}",
        "tony.worker.instances": 1,
        "tony.worker.memory": "128m",
    }
    one.submit("--executes", f"python3 train.py {home}/points", conf=conf).ends(0)
    assert files.get(f"hdfs:///user/{secure.user}/points/step-0000000001") == b"saved"
    assert files.list(f"{home}/by-web-history")
    files.close()


@pytest.mark.nightly
def test_a_name_node_that_is_none_is_named_before_anything_is_staged(
    secure: Hadoop, tony_on: Callable[..., Tony]
) -> None:
    one = tony_on(secure)
    for host, words in (
        ("nn.invalid:8020", "the host nn.invalid is not known"),
        (secure.rm_address, "has not proved to be a NameNode"),
        (secure.webhdfs_url.partition("//")[2], "has not proved to be a NameNode"),
    ):
        named = ("--conf", f"tony.other.namenodes={host}")
        done = one("submit", "--executes", "true", *named, check=False)
        assert done.returncode in (2, 3)
        assert f"tony.other.namenodes names hdfs://{host}" in done.stderr
        assert words in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.nightly
def test_a_java_child_reads_hdfs_by_the_programs_tokens(
    hadoop: GetHadoop, tony_on: Callable[..., Tony], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = hadoop("secure", "mapreduce")
    env = cluster.environment_of(cluster.user)
    monkeypatch.setenv("KRB5_CONFIG", env["KRB5_CONFIG"])
    one = tony_on(cluster)
    files = WebHdfsFileSystem(conf_of(cluster), cluster_identity(conf_of(cluster), env))
    files.put("hdfs:///user/ann/for-java", b"read by a Java child")
    files.close()
    found = one.folder / "found"
    reads = f"{env['HADOOP_HOME']}/bin/hadoop fs -cat hdfs:///user/ann/for-java > {found}"
    conf = {
        "tony.worker.instances": 1,
        "tony.worker.memory": "600m",
        "tony.execution.envs": f"HADOOP_CONF_DIR={cluster.conf_dir},KRB5CCNAME=/nowhere",
    }
    one.submit("--executes", reads, conf=conf).ends(0)
    assert found.read_text() == "read by a Java child"


def test_the_command_that_runs_first(secure: Hadoop, tony_on: Callable[..., Tony]) -> None:
    """It has the job's tokens, and neither its secret nor what makes a process its master."""
    one = tony_on(secure)
    seen = one.folder / "seen"
    conf = {
        "tony.application.enable-preprocess": "true",
        "tony.am.command": f"cp ${LOCATION} {seen}",
        "tony.worker.instances": 1,
        "tony.worker.memory": "128m",
    }
    one.submit("--executes", "true", conf=conf).ends(0)
    held = Credentials.decode(seen.read_bytes())
    assert sorted(token.kind for token in held.tokens.values()) == [HDFS_DELEGATION, RM_DELEGATION]
    assert held.secrets == {}
