"""A second file system beside the site's own, with Kerberos: jobs that name it have its token."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Callable, Iterator

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.fixture import GetHadoop
from tests.cluster.hadoop.site import read_site, write_site
from tests.cluster.yarn.jobs import Tony, until
from tests.cluster.yarn.test_kerberos import callers_tokens, without_kerberos
from tony_core.hadoop.credentials import LOCATION, Credentials
from tony_core.hadoop.errors import HadoopError
from tony_core.hadoop.hdfs.namenode_client import obtain_token
from tony_core.hadoop.identity import ClusterIdentity, cluster_identity
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]

OTHER = "hdfs://other"

LOOKS = """
import os, shutil, sys
import tony
shutil.copy(os.environ["HADOOP_TOKEN_FILE_LOCATION"], sys.argv[1])
try:
    found = str(tony.checkpoints("hdfs://other/none").latest())
except PermissionError as error:
    found = "refused: " + str(error)
with open(sys.argv[1] + ".seen", "w") as file:
    file.write(found)
"""


class SecondHdfs:
    """A NameNode alone, which the client's configuration calls ``other``."""

    def __init__(self, cluster: Hadoop, folder: Path) -> None:
        self.cluster = cluster
        self.rpc, self.web = free_address(), free_address()
        self.conf_dir = folder / "conf"
        self.own = folder / "own"
        self.log = folder / "log"
        shutil.copytree(cluster.conf_dir, self.conf_dir)
        shutil.copytree(cluster._distribution.formatted, folder / "name")
        self.own.mkdir()
        named = {
            "dfs.nameservices": "other",
            "dfs.namenode.rpc-address.other": self.rpc,
            "dfs.namenode.http-address.other": self.web,
        }
        write_site(self.conf_dir / "hdfs-site.xml", {**cluster.site("hdfs-site"), **named})
        write_site(
            self.own / "hdfs-site.xml",
            {
                **cluster.site("hdfs-site"),
                "dfs.namenode.rpc-address": self.rpc,
                "dfs.namenode.http-address": self.web,
                "dfs.namenode.name.dir": f"file://{folder / 'name'}",
            },
        )
        write_site(
            self.own / "core-site.xml",
            {**read_site(self.conf_dir / "core-site.xml"), "fs.defaultFS": f"hdfs://{self.rpc}"},
        )
        self.conf = SiteConfiguration.load({}, conf_dir=str(self.conf_dir))

    def command(self) -> list[str]:
        words: list[str] = self.cluster._cluster["daemons"]["nn0"]["argv"]
        first = str(self.cluster.folder / "conf.d" / "nn0")
        return [word.replace(first, str(self.own)) for word in words]

    def token(self, renewer: str) -> Token:
        """A token of the user's for it."""
        who = cluster_identity(self.conf, self.cluster.environment_of(self.cluster.user))
        return obtain_token(self.conf, who, endpoints.name_service(self.conf, OTHER), renewer)

    def is_up(self) -> bool:
        try:
            return bool(self.token("yarn"))
        except HadoopError:
            return False

    def believes(self, token: Token) -> bool:
        holder = ClusterIdentity(self.cluster.user, tokens=Credentials({"one": token}))
        try:
            obtain_token(self.conf, holder, endpoints.name_service(self.conf, OTHER), "yarn")
        except HadoopError as error:
            # By a token no token can be obtained: so says a NameNode that believes it.
            return "can be issued only with kerberos" in str(error)
        raise AssertionError("a token was obtained by a token")


def free_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"localhost:{one.getsockname()[1]}"


@pytest.fixture
def second(
    hadoop: GetHadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SecondHdfs]:
    cluster = hadoop("secure")
    monkeypatch.setenv("KRB5_CONFIG", cluster.environment_of(cluster.user)["KRB5_CONFIG"])
    folder = tmp_path / "second"
    folder.mkdir()
    made = SecondHdfs(cluster, folder)
    with made.log.open("wb") as log:
        process = subprocess.Popen(
            made.command(),
            env=cluster._cluster["environment"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until(made.is_up, "the second NameNode")
        yield made
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def tony(second: SecondHdfs, tony_on: Callable[..., Tony]) -> Tony:
    made = tony_on(second.cluster)
    made.env["HADOOP_CONF_DIR"] = str(second.conf_dir)
    return made


def look(tony: Tony, name: str, **conf: object) -> tuple[Credentials, str]:
    """The tokens that a program had, and what it saw of the second file system."""
    (tony.folder / "src").mkdir(exist_ok=True)
    (tony.folder / "src" / "look.py").write_text(LOOKS)
    path = tony.folder / name
    settings = {"tony.worker.instances": 1, "tony.worker.memory": "128m", **conf}
    words = ("--src_dir", str(tony.folder / "src"), "--executes", f"python3 look.py {path}")
    tony.submit(*words, conf=settings).ends(0)
    held = Credentials.decode(path.read_bytes())
    return held, path.with_name(f"{name}.seen").read_text()


def test_a_job_that_names_it_reads_it_and_no_other(second: SecondHdfs, tony: Tony) -> None:
    service = second.rpc.replace("localhost", "127.0.0.1")
    held, seen = look(tony, "with", **{"tony.other.namenodes": OTHER})
    assert seen == "None"  # there is nothing, and it was believed
    (token,) = (one for one in held.tokens.values() if one.service == service)
    assert token.kind == HDFS_DELEGATION
    until(lambda: not second.believes(token), "it refuses the token of the job that has ended")
    held, seen = look(tony, "without")
    assert seen.startswith("refused: "), seen
    assert service not in {one.service for one in held.tokens.values()}


def test_a_callers_token_that_the_resource_manager_cannot_renew_is_named(
    second: SecondHdfs, tony: Tony, tmp_path: Path
) -> None:
    """It travels for the program's sake, and YARN refuses a job with one that it cannot renew."""
    path = tmp_path / "tokens"
    held = callers_tokens(second.cluster, path)
    without_kerberos(tony, path)
    own = second.token("oozie")
    Credentials({**held.tokens, "the caller's": own}).write(str(path))
    assert tony.env[LOCATION] == str(path)
    words = ("--executes", "true", "--conf", "tony.worker.instances=1")
    done = tony("submit", *words, check=False)
    assert done.returncode != 0
    assert f"cannot renew the {HDFS_DELEGATION} for {own.service}" in done.stderr, done.stderr
    assert "whose renewer is oozie" in done.stderr, done.stderr
