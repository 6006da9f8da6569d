"""Jobs with ``tony.task.tls`` on the embedded scheduler: restart, takeover, and a refusal."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.master.test_master_real import Submitted, a_job, until
from tony_core.client.submission import prepare
from tony_core.job.problems import JobError
from tony_core.job.spec import MasterSpec, Network
from tony_core.protocol.job_secret import executor_key, unpack_secret
from tony_core.protocol.tls import executor_context
from tony_core.schedulers.local.client import LocalScheduler
from tony_core.schedulers.port import AppState


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_two_workers_a_restart_and_a_takeover(tony_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = (
        'echo "session $SESSION_ID";'
        " if [ $SESSION_ID = 0 ] && [ $TASK_INDEX = 1 ]; then exit 3; fi;"
        f" until [ -e {go} ]; do sleep 0.1; done"
    )
    job = a_job(command, master=MasterSpec(user_retries=1), network=Network(tls=True))
    submitted = Submitted(tony_home, job)
    submitted.running(2, session=1)
    secret = Path(submitted.folder.secret)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert b"PRIVATE KEY" in unpack_secret(secret.read_bytes()).pem
    theirs = list(Path(submitted.folder.path).glob("containers/*/secret"))
    assert len(theirs) == 2
    for path in theirs:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_bytes() == executor_key(secret.read_bytes(), path.parent.name)

    def begun() -> Any:
        logs = submitted.logs()
        return logs if len(logs) == 2 and all(x.endswith("session 1\n") for x in logs) else None

    before = until(begun, "the first lines of session 1" + submitted.words())
    os.kill(submitted.master_pid(), signal.SIGKILL)
    submitted.running(2, session=1, attempt=2)
    at = Path(submitted.folder.path) / "master.json"
    address = json.loads(at.read_text())
    context = executor_context()
    sock = socket.create_connection((address["host"], address["port"]), 30)
    with context.wrap_socket(sock) as secured:
        shown = secured.getpeercert(binary_form=True)
    assert (
        shown and hashlib.sha256(shown).digest() == unpack_secret(secret.read_bytes()).fingerprint
    )
    go.touch()
    status = submitted.end()
    assert status.state is AppState.SUCCEEDED, status.diagnostics + submitted.words()
    assert submitted.logs() == before, "no program was started again"
    assert not secret.exists()


def test_it_is_refused_at_submit_where_no_key_can_be_made(
    tony_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    job = a_job("true", network=Network(tls=True))
    with pytest.raises(JobError, match="needs the program openssl"):
        prepare(LocalScheduler(), job)
    assert not list(tony_home.glob("apps/*"))
