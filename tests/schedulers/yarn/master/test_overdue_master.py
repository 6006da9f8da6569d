"""A master that YARN starts after the end of the job's first tokens: it fetches others first."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Iterator

import pytest

from tests.program.fakehdfs import FakeHdfs
from tests.schedulers.yarn.client.test_delegation_tokens import hdfs_token
from tests.schedulers.yarn.node.test_start import CONTAINER
from tony_core.files import registry
from tony_core.hadoop.credentials import LOCATION, Credentials, url_string
from tony_core.hadoop.tokens import AM_RM, HDFS_DELEGATION, Token
from tony_core.hadoop.yarn.ids import ApplicationId, AttemptId
from tony_core.hadoop.yarn.messages import yarn
from tony_core.job.jsonfile import job_to_json
from tony_core.job.spec import Job
from tony_core.master.main import CannotStart, check_fetch
from tony_core.schedulers.port import SchedulerError
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.master import pool_factory
from tony_core.schedulers.yarn.node import start
from tony_core.schedulers.yarn.node.fetch_request import Fetched, Request

NAME_NODE = "127.0.0.1:8020"
FRESH = Token(b"fresh", b"p", HDFS_DELEGATION, NAME_NODE)
ROOT = f"hdfs://{NAME_NODE}/user/ann/.tony"


@pytest.fixture
def hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHdfs]:
    """A NameNode that believes fresh tokens alone, and the container of a second attempt."""
    made = FakeHdfs()
    made.token = url_string(FRESH)
    attempt = AttemptId(ApplicationId(1700000000000, 42), 2)
    identifier = yarn.AMRMTokenIdentifier(app_attempt_id=attempt.to_message()).encode()
    site = {
        "fs.defaultFS": f"hdfs://{NAME_NODE}",
        "dfs.namenode.http-address": made.urls[0].partition("//")[2],
        "hadoop.security.authentication": "kerberos",
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.am.liveness-monitor.expiry-interval-ms": "24000",
    }
    job = job_to_json(Job("long", ()))
    sent = job_credentials.MasterCredentials(job, (), "", site, "ann", ROOT, f"{ROOT}/history")
    secrets, _ = job_credentials.master_secrets(b"s" * 32, sent)
    shipped = job_credentials.ShippedKeytab("ann@LAKE", b"KEYS", (f"hdfs://{NAME_NODE}",))
    now = time.time()
    tokens = {
        "am": Token(identifier, b"p", AM_RM),
        "nn": hdfs_token(now - 1000, now - 10)._replace(service=NAME_NODE),
    }
    held = Credentials(tokens, {**secrets, job_credentials.KEYTAB: shipped.encode()})
    held.write(str(tmp_path / "container_tokens"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LOCATION, str(tmp_path / "container_tokens"))
    monkeypatch.setenv("CONTAINER_ID", CONTAINER)
    monkeypatch.setenv("TONY_HDFS", "restored at the end: create_master sets it")
    monkeypatch.setenv(start.TOKEN_FILE_VARIABLE, str(tmp_path / ".tony-tokens"))
    yield made
    registry.forget()
    made.close()


def runtime(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Stands in for TonY's own code, from which the master was started."""
    program = folder / "runtime.py"
    program.write_text(f"import sys; request = sys.stdin.read()\n{body}\n")
    monkeypatch.setattr(sys, "argv", [str(program), "yarn-start", "master"])


def test_it_reads_journal_and_history_by_them(
    hdfs: FakeHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = time.time() + 3600
    answer = Fetched(Credentials({NAME_NODE: FRESH}), ends)
    runtime(tmp_path, monkeypatch, f"print({answer.encode()!r})")
    context, pool = pool_factory.open_master(SimpleNamespace())
    try:
        files = registry.filesystem(context.state_dir)
        files.mkdir(context.state_dir)
        assert files.exists(context.state_dir)
        assert set(pool._contexts.credentials.tokens.values()) == {FRESH}
        assert pool._contexts.credentials.secrets == {}, "no executor gets the keytab"
        assert pool.check_fetch() is None
    finally:
        pool.close()
    content = pool.renew_tokens(answer.credentials.encode())
    assert (tmp_path / ".tony-tokens").read_bytes() == content


def test_keys_that_do_not_fit_end_the_job_and_not_only_the_attempt(
    hdfs: FakeHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime(tmp_path, monkeypatch, "sys.exit('the keys are not those of the KDC')")
    _, pool = pool_factory.open_master(SimpleNamespace())
    try:
        with pytest.raises(CannotStart, match="the keys are not those of the KDC"):
            check_fetch(pool)
    finally:
        pool.close()


def test_a_kdc_that_is_away_is_waited_for_within_what_yarn_allows(
    hdfs: FakeHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "request"
    body = f"open({str(seen)!r}, 'w').write(request); sys.stderr.write('no KDC\\n'); sys.exit(3)"
    runtime(tmp_path, monkeypatch, body)
    with pytest.raises(SchedulerError, match=r"no others could be fetched within 12 s\. .*no KDC"):
        pool_factory.open_master(SimpleNamespace())
    assert 7 < Request.decode(seen.read_text()).limit_s <= 8
    assert not (tmp_path / ".tony-tokens").exists()
