"""Fresh tokens from the real master: who gets them, when, and over what."""

from __future__ import annotations

import binascii
import json
import shutil
from pathlib import Path
from typing import Any, List, Tuple

import pytest

from tests.master.shell import SECRET, ScriptedExecutor, ScriptedPool, Shell, a_job, until
from tony_core.client import tls_key_pair
from tony_core.job.spec import Resources, Role
from tony_core.master.executors.server import distribute_tokens
from tony_core.protocol.codec import ProtocolError
from tony_core.protocol.messages import Tokens, Welcome
from tony_core.schedulers.container_pool import Container
from tony_core.schedulers.port import AppState, SchedulerError

TWO = Role("worker", 2, Resources(), "true")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


class Pool(ScriptedPool):
    """One that gives tokens; a program's file is the content between marks."""

    def renew_tokens(self, content: bytes) -> bytes:
        return b"<" + content + b">"


def distribute(shell: Shell, content: bytes) -> None:
    """On the reactor's thread, as a fetch does."""
    master = shell.master
    done: List[Tuple[Any]] = []

    def work() -> None:
        try:
            distribute_tokens(content, shell.pool, master._executors)
            done.append((None,))
        except Exception as error:
            done.append((error,))

    master.reactor.call_soon_threadsafe(work)
    (error,) = until(lambda: done, "the tokens to be sent")[0]
    if error is not None:
        raise error


def contents(executor: ScriptedExecutor) -> List[bytes]:
    return [
        binascii.a2b_base64(m.content) for m in list(executor.received) if isinstance(m, Tokens)
    ]


@needs_openssl
def test_the_connected_the_late_and_the_returned_have_the_newest(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(TWO), Pool(), secret=tls_key_pair.with_tls(SECRET)) as shell:
        one, two = shell.launched(2)
        first = shell.executor(one)
        assert contents(first) == []
        distribute(shell, b"1")
        until(lambda: contents(first) == [b"<1>"], "the first tokens")
        distribute(shell, b"2")
        until(lambda: contents(first) == [b"<1>", b"<2>"], "the second")
        late = shell.executor(two)
        until(lambda: contents(late) == [b"<2>"], "the newest, for one that comes late")
        kinds = [type(message) for message in late.received]
        assert kinds[:2] == [Welcome, Tokens], "before any command of the master"
        first.close()
        back = shell.executor(one)
        until(lambda: contents(back) == [b"<2>"], "the newest, for one that comes back")
        shell.kill("the test is over")
        back.hang_up()
        late.hang_up()
        for container in (one, two):
            shell.pool.end(container)


@needs_openssl
def test_an_executor_that_is_taken_over_keeps_its_tokens_until_there_are_newer(
    tmp_path: Path,
) -> None:
    """The next attempt of the master begins with the tokens of the submit, which are older."""
    secret = tls_key_pair.with_tls(SECRET)
    with Shell(tmp_path, a_job(TWO), Pool(), secret=secret) as first:
        gang = first.gang(2)
        distribute(first, b"1")
        for executor in gang:
            until(lambda executor=executor: contents(executor) == [b"<1>"], "the first tokens")
        journal = tmp_path / "journal.json"
        until(lambda: len(json.loads(journal.read_text())["executors"]) == 2, "the addresses")
        until(lambda: first.json("/api/job")["counts"] == {"running": 2}, "two programs")
        first.executors.clear()
        first.master.reactor.call_soon_threadsafe(first.master.reactor.stop)
        first._thread.join(60)
        first.master._server.close()
        first.master._executors.close()
        for number, executor in enumerate(gang):
            executor.first = {"task": f"worker:{number}", "session": 0, "phase": "running"}
            executor.received.clear()
        held = [Container(x.container_id, "node1", "worker", Resources()) for x in gang]
        with Shell(tmp_path, a_job(TWO), Pool(held, attempt=2), attempt=2, secret=secret) as second:
            second.executors.update({executor.container_id: executor for executor in gang})
            for executor in gang:
                assert executor.wait_for(Welcome).attempt == 2
            until(lambda: second.json("/api/job")["counts"] == {"running": 2}, "the takeover")
            assert not any(map(contents, gang)), "it has none that are newer"
            distribute(second, b"2")
            for executor in gang:
                until(lambda executor=executor: contents(executor) == [b"<2>"], "the newest")
            second.finish(*gang)
            second.go(*gang)
            assert second.join()[0] is AppState.SUCCEEDED
        for executor in gang:
            first.running.do(executor._listener.close)
        first.error = None
        first.pool.finished = (AppState.KILLED, "")


def test_nothing_is_sent_without_tls(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(TWO), Pool()) as shell:
        (one, two) = shell.launched(2)
        first = shell.executor(one)
        with pytest.raises(ProtocolError, match=r"tony\.task\.tls") as caught:
            distribute(shell, b"1")
        assert caught.value.fault == "local"
        late = shell.executor(two)
        assert contents(first) == contents(late) == []
        shell.kill("the test is over")
        for container in (one, two):
            shell.executors[container].hang_up()
            shell.pool.end(container)


def test_a_scheduler_that_gave_none_takes_none(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match="gives its containers no tokens"):
        ScriptedPool().renew_tokens(b"1")
