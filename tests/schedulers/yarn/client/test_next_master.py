"""What of a master travels in its credentials, and what a job loses when its first tokens end."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, NamedTuple, Optional

import pytest

from tests.hadoop.kerberos.handshakes import ScriptedLogin
from tests.schedulers.yarn.client.test_scheduler import APP, Rm, opened_in, write
from tests.schedulers.yarn.clusters import RUNTIME, artifact, job
from tony_core.bundle.client import contents
from tony_core.bundle.client import runtime as runtimes
from tony_core.bundle.client.pythons import Python
from tony_core.files import registry
from tony_core.files.local import LocalFileSystem
from tony_core.files.port import Stat
from tony_core.hadoop.credentials import LOCATION, Credentials
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token
from tony_core.hadoop.yarn.launch import PRIVATE, PUBLIC, LocalFile
from tony_core.job.spec import Hadoop
from tony_core.schedulers.yarn.client import next_master, submission
from tony_core.schedulers.yarn.client.carried_runtime import (
    MARK,
    SECRET,
    PackedRuntimes,
    pack_runtime,
)
from tony_core.schedulers.yarn.client.next_master import (
    MOST_CARRIED,
    PRIVILEGES,
    MasterStart,
    find_warnings,
    plan_start,
)
from tony_core.schedulers.yarn.client.resource_manager import RpcResourceManager
from tony_core.schedulers.yarn.client.scheduler import YarnScheduler
from tony_core.schedulers.yarn.client.submitter import PlannedSubmission
from tony_core.schedulers.yarn.job_credentials import JOB, JOB_FILE, LARGEST, MasterCredentials

KB = 1024
CODE = "tony-runtime"
LONG = job(hadoop=Hadoop(ship_keytab=True))


def files(**visibility: str) -> Dict[str, LocalFile]:
    """The master's files with these names; TonY's own code is among them."""
    named = {CODE: PRIVATE, **{name.replace("_", "-"): how for name, how in visibility.items()}}
    return {
        name: LocalFile(f"hdfs://lake/{name}", 1, 1, visibility=how) for name, how in named.items()
    }


@pytest.mark.parametrize(
    ("named", "packed", "of_job", "expected"),
    [
        # The runtime of the user's own travels with the request; a public one does not.
        ({}, 600 * KB, 90 * KB, MasterStart(True, 300 * KB, ())),
        ({"tony_runtime": PUBLIC}, 600 * KB, 90 * KB, MasterStart(False, MOST_CARRIED, ())),
        # Too large for it, or no archive that can be packed.
        ({}, 701 * KB, 90 * KB, MasterStart(False, MOST_CARRIED, (CODE,))),
        ({}, None, 90 * KB, MasterStart(False, MOST_CARRIED, (CODE,))),
        # A large job.
        ({}, 600 * KB, 300 * KB, MasterStart(True, 300 * KB, ())),
        ({}, 600 * KB, 300 * KB + 1, MasterStart(True, 300 * KB, (JOB_FILE,))),
        # Files of the master's own, or of the preprocessing command.
        ({"a": PRIVATE, "b": PUBLIC}, 600 * KB, 1, MasterStart(True, 300 * KB, ("a",))),
    ],
)
def test_what_travels_in_the_credentials(
    named: Dict[str, str], packed: Optional[int], of_job: int, expected: MasterStart
) -> None:
    expected = expected._replace(outlives_tokens=True)
    assert plan_start(files(**named), CODE, packed, of_job) == expected


class TestWarnings:
    CLOSED = MasterStart(True, LARGEST, ("weights", JOB_FILE), outlives_tokens=True)
    CARRIED = MasterStart(True, outlives_tokens=True)

    @staticmethod
    def conf(**values: str) -> SiteConfiguration:
        return SiteConfiguration.of({name.replace("_", "."): text for name, text in values.items()})

    def test_none_where_nothing_is_lost(self) -> None:
        assert find_warnings(self.CARRIED, self.conf()) == []
        assert find_warnings(self.CARRIED, SiteConfiguration.of({PRIVILEGES: "false"})) == []

    def test_the_master_is_not_replaced(self) -> None:
        (text,) = find_warnings(self.CLOSED, self.conf())
        assert text.startswith(
            "a master that dies after the first 7 days cannot be replaced, and the job"
        )
        assert f"localizes weights, {JOB_FILE} by" in text
        assert f"{PRIVILEGES}=true" in text

    @pytest.mark.parametrize(
        ("lifetime_ms", "words"),
        [(604_800_000, "7 days"), (129_600_000, "1 day 12 h"), (150_000, "2 min 30 s")],
    )
    def test_until_when(self, lifetime_ms: int, words: str) -> None:
        conf = SiteConfiguration.of({next_master.MAX_LIFETIME: str(lifetime_ms)})
        assert f"after the first {words} cannot" in find_warnings(self.CLOSED, conf)[0]

    def test_its_logs_are_not_stored(self) -> None:
        conf = SiteConfiguration.of({"yarn.log-aggregation-enable": "true"})
        (text,) = find_warnings(self.CARRIED, conf)
        assert text.startswith(
            "the cluster stores no logs of this job if it ends after the first 7 days"
        )
        assert len(find_warnings(self.CLOSED, conf)) == 2
        assert find_warnings(MasterStart(), conf) == []

    def test_none_where_the_resource_manager_obtains_tokens(self) -> None:
        conf = SiteConfiguration.of({PRIVILEGES: "true", "yarn.log-aggregation-enable": "true"})
        assert find_warnings(self.CLOSED, conf) == []


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TonY's own code as it lies in HDFS, with bytecode."""
    described, _ = runtimes.describe(None, (Python.running(),))
    place = tmp_path_factory.mktemp("staged") / "content.tar"
    with place.open("wb") as output:
        contents.of_runtime(runtimes.load(described)).packed().write(output)
    return place


def foreign_code() -> bytes:
    """A runtime that another wrote."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        target.writestr("__main__.py", "raise SystemExit('foreign code')")
    return MARK + zlib.compress(packed.getvalue(), 9)


class TestPacking:
    def test_it_fits_and_leaves_room_for_a_large_job(self, staged: Path) -> None:
        packed = pack_runtime(LocalFileSystem(), str(staged))
        assert packed is not None and len(packed) <= MOST_CARRIED - LARGEST
        assert pack_runtime(LocalFileSystem(), str(staged)) == packed

    def test_its_size_is_estimated_before_it_is_staged(self, staged: Path) -> None:
        described, _ = runtimes.describe(None, (Python.running(),))
        packed = PackedRuntimes(lambda location: LocalFileSystem())
        there = RUNTIME._replace(uri=str(staged))
        exact = packed.size((there,))
        estimate = packed.size((RUNTIME._replace(size=described.size, mtime_ms=0),))
        assert exact is not None and estimate is not None
        assert exact <= estimate <= MOST_CARRIED - LARGEST

    def test_another_archive_is_left_where_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "runtime.zip").write_bytes(b"PK\3\4 and so on")
        assert pack_runtime(LocalFileSystem(), str(tmp_path / "runtime.zip")) is None

    @pytest.mark.parametrize("version", [0, 1])
    def test_the_masters_command_unpacks_and_runs_it(
        self, version: int, staged: Path, tmp_path: Path
    ) -> None:
        """As the node does: the command in a script, the credentials in a file.

        Another NameNode's token looks like code, too.
        """
        packed = pack_runtime(LocalFileSystem(), str(staged))
        assert packed is not None
        token = Token(b"id" + foreign_code(), b"password", HDFS_DELEGATION, "10.0.0.1:8020")
        secrets = {"tony.job": os.urandom(2000), SECRET: packed, "z": os.urandom(2000)}
        held = Credentials({"t": token}, secrets)
        (tmp_path / "container_tokens").write_bytes(held.encode(version))
        one = job(hadoop=Hadoop(ship_keytab=True))
        one = one.replace(runtime=one.runtime._replace(python=sys.executable))
        command = submission.carried_master_command(one).replace("<LOG_DIR>", str(tmp_path))
        script = f'exec /bin/bash -c "{command}"'
        env = {LOCATION: str(tmp_path / "container_tokens"), "PATH": os.environ["PATH"]}
        work = tmp_path / "work"
        work.mkdir()
        done = subprocess.run(["bash", "-c", script], cwd=work, env=env, timeout=60)
        errors = (tmp_path / "stderr").read_text()
        # The master runs, and misses what this container does not have.
        assert done.returncode == 1, errors
        assert "this master cannot start" in errors
        assert "this container's credentials hold no token of a master" in errors
        there = {str(path.relative_to(work / CODE)) for path in (work / CODE).rglob("*.*")}
        with tarfile.open(staged) as archive:
            sources = {one.name for one in archive if one.isfile() and ".pyc" not in one.name}
        assert sources <= there


class Hdfs(LocalFileSystem):
    """One staged archive, in a folder that only its user may enter."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.reads = 0

    def stat(self, location: str) -> Stat:
        return Stat(location, False, 1, 1, 0o700)

    def open(self, location: str, offset: int = 0) -> BinaryIO:
        self.reads += 1
        return super().open(str(self.archive), offset)


class Client(NamedTuple):
    """A scheduler of a cluster with Kerberos that sends nothing."""

    scheduler: YarnScheduler
    rm: Rm
    hdfs: Hdfs


@pytest.fixture
def client(tmp_path: Path, staged: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    write(tmp_path, "core-site", {"fs.defaultFS": "hdfs://lake:8020"})
    write(tmp_path, "yarn-site", {"yarn.resourcemanager.hostname": "10.0.0.2"})
    hdfs = Hdfs(staged)
    scheduler = opened_in(tmp_path)
    scheduler._identity = ClusterIdentity("ada", login=ScriptedLogin())
    rm = Rm()
    scheduler._rm = RpcResourceManager(rm, scheduler._conf, "ada")
    monkeypatch.setattr(PlannedSubmission, "_services", ())
    monkeypatch.setattr(PlannedSubmission, "_keytab_secrets", lambda plan: {})
    monkeypatch.setattr(scheduler, "_connect_for", lambda about: scheduler._connect())
    registry.register("hdfs", lambda: hdfs)
    yield Client(scheduler, rm, hdfs)
    scheduler.close()
    registry.forget()


HOME = "hdfs://lake:8020/user/ada/.tony"
OURS = RUNTIME._replace(uri=f"{HOME}/store/objects/abc/content.tar", size=2_000_000)
NOT_STAGED = OURS._replace(mtime_ms=0)


class TestSubmissions:
    def test_the_runtime_travels_with_a_job_that_outlives_its_tokens(self, client: Client) -> None:
        found = client.scheduler.dry_run(str(APP), LONG, (NOT_STAGED,))
        assert (client.hdfs.reads, found.warnings) == (0, ())
        found = client.scheduler.dry_run(str(APP), LONG, (OURS,))
        shown = found.details["master"]
        assert (shown["files"], found.warnings) == ({}, ())
        assert "tony.runtime (TonY's own code)" in shown["credentials"]
        client.scheduler.submit(str(APP), found, b"k" * 32)
        sent = client.rm.submitted[0].am_container_spec
        assert client.hdfs.reads == 1
        assert list(sent.local_resources) == []
        secrets = Credentials.decode(sent.tokens).secrets
        assert sorted(secrets) == [JOB, SECRET, "tony.secret"]
        assert secrets[SECRET].startswith(MARK)
        # Executors localize it: they start with the tokens that the master has by then.
        carried = MasterCredentials.decode(secrets[JOB])
        assert [one["uri"] for one in carried.artifacts] == [OURS.uri]

    def test_other_jobs_are_as_they_were(self, client: Client) -> None:
        found = client.scheduler.dry_run(str(APP), job(), (OURS,))
        assert list(found.details["master"]["files"]) == [CODE]
        client.scheduler.submit(str(APP), found, b"k" * 32)
        sent = client.rm.submitted[0].am_container_spec
        assert SECRET not in Credentials.decode(sent.tokens).secrets
        assert client.hdfs.reads == 0

    def test_files_of_the_masters_own_are_a_warning(self, client: Client) -> None:
        weights = artifact("weights", roles=("am",))
        found = client.scheduler.dry_run(str(APP), LONG, (NOT_STAGED, weights))
        (text,) = found.warnings
        assert "localizes weights by" in text
        assert client.scheduler.dry_run(str(APP), job(), (NOT_STAGED, weights)).warnings == ()
