"""The tokens' end in a real master: warned, ended, or put off by fresh ones."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from tests.master.shell import SECRET, ScriptedPool, Shell, a_job, until
from tony_core.client import tls_key_pair
from tony_core.job.spec import Resources, Role, Timeouts, TokenRefresh
from tony_core.master.executors.liveness import Liveness
from tony_core.master.executors.server import ExecutorServer
from tony_core.master.session.events import Event, GangRestartRequested
from tony_core.master.token_lifetime import FRESH
from tony_core.master.token_watch import TokenWatch
from tony_core.protocol.messages import Tokens
from tony_core.protocol.reactor import Reactor
from tony_core.schedulers.container_pool import FreshTokens, PoolInfo, TokenDates
from tony_core.schedulers.port import AppState, SchedulerError

ONE = Role("worker", 1, Resources(), "true")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


class Pool(ScriptedPool):
    """Its tokens end after some seconds; its fetches give what the test says."""

    def __init__(self, ends_after_s: float, *answers: object, issued_before_s: float = 0) -> None:
        now = time.time()
        dates = TokenDates(now - issued_before_s, now + ends_after_s)
        super().__init__(tokens=dates, fetches_tokens=bool(answers))
        self.answers = list(answers)

    def fetch_tokens(self) -> FreshTokens:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, bytes)
        return FreshTokens(answer, time.time() + 3600)

    def renew_tokens(self, content: bytes) -> bytes:
        return b"<" + content + b">"


def token_lines(shell: Shell) -> List[Dict[str, Any]]:
    files = sorted(shell.history.glob("events-*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line for line in lines if line.get("kind") == "tokens"]


def test_the_job_is_warned_and_ends_before_its_tokens(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE), Pool(1.5)) as shell:
        (launch,) = shell.launched(1)
        state, text = shell.join()
        assert launch in shell.pool.stopped, "what ran was stopped"
    assert state is AppState.FAILED
    assert "end of their maximum lifetime" in text and "Submit it again" in text
    (warning,) = token_lines(shell)
    assert "ships no keytab" in warning["text"]


def test_without_tokens_there_is_no_end(tmp_path: Path) -> None:
    with Shell(tmp_path, a_job(ONE), ScriptedPool()) as shell:
        shell.launched(1)
        assert shell.master._token_watch.next_deadline() is None


@needs_openssl
def test_executors_get_fresh_tokens_and_the_job_goes_on(tmp_path: Path) -> None:
    answers = (SchedulerError("the KDC does not answer"), ValueError("?"), b"fresh")
    pool = Pool(20.0, *answers, issued_before_s=60.0)  # a fetch is due
    job = a_job(ONE, timeouts=Timeouts(heartbeat_s=1.0, max_missed_heartbeats=60, kill_grace_s=0.2))
    with Shell(tmp_path, job, pool, secret=tls_key_pair.with_tls(SECRET)) as shell:
        (launch,) = shell.launched(1)
        one = shell.executor(launch)
        until(lambda: [m for m in list(one.received) if isinstance(m, Tokens)], "fresh tokens")
        watch = shell.master._token_watch
        until(lambda: (watch.next_deadline() or 0) > shell.master.reactor.now() + 1800, "the time")
        texts = [line["text"] for line in until(lambda: token_lines(shell), "the story")]
        assert any("the KDC does not answer" in text for text in texts)
    assert pool.answers == []


def test_fetches_that_fail_end_the_job_with_their_reason(tmp_path: Path) -> None:
    pool = Pool(3.0, *(SchedulerError("the key is not the user's any more") for _ in range(9)))
    with Shell(tmp_path, a_job(ONE), pool) as shell:
        shell.launched(1)
        state, text = shell.join()
    assert state is AppState.FAILED
    assert "has fetched no fresh ones (the key is not the user's any more)" in text


def test_tokens_that_cannot_be_handed_on_count_as_none(tmp_path: Path) -> None:
    pool = Pool(3.0, *[b"fresh"] * 9)
    with Shell(tmp_path, a_job(ONE), pool) as shell:  # without TLS
        shell.launched(1)
        state, text = shell.join()
    assert state is AppState.FAILED
    assert "cannot be handed on" in text and "tony.task.tls" in text


@needs_openssl
def test_executors_get_tokens_of_an_early_fetch(
    tmp_path: Path,
) -> None:
    pool = ScriptedPool(
        tokens=TokenDates(time.time(), time.time() + 3600),
        fetches_tokens=True,
        fetched=FreshTokens(b"fresh", time.time() + 3600),
        token_warnings=("no login by the shipped keytab: node7: no KDC answers",),
    )
    given: List[bytes] = []
    pool.renew_tokens = lambda content: given.append(content) or b"program's"  # type: ignore
    with Shell(tmp_path, a_job(ONE), pool, secret=tls_key_pair.with_tls(SECRET)) as shell:
        (launch,) = shell.launched(1)
        one = shell.executor(launch)
        until(lambda: [m for m in list(one.received) if isinstance(m, Tokens)], "fresh tokens")
        (warning,) = until(lambda: token_lines(shell), "the story")
    assert given == [b"fresh"]
    assert warning["text"] == "no login by the shipped keytab: node7: no KDC answers"


class Watched:
    """A watch of its own, without a reactor's turns; keeps what it requests and warns of."""

    def __init__(self, pool: ScriptedPool) -> None:
        self.requests: List[Event] = []
        self.warnings: List[str] = []
        self.reactor = Reactor()
        self.executors = ExecutorServer(
            self.reactor, tls_key_pair.with_tls(SECRET), Liveness(1.0, 9), None, print
        )
        self.watch = TokenWatch(
            *(self.reactor, pool, self.executors, self.requests.append),
            lambda kind, text: self.warnings.append(text),
        )

    def begin(self, attempt: int, fetched: Optional[FreshTokens]) -> None:
        """Start as a master that ships a keytab and restarts its programs for fresh tokens."""
        dates = TokenDates(time.time(), time.time() + 3600)
        info = PoolInfo(
            *("app_1", attempt, "ann", "q"), tokens=dates, fetches_tokens=True, fetched=fetched
        )
        self.watch.begin(info, TokenRefresh.RESTART)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_error: object) -> None:
        self.watch.close()
        self.executors.close()
        self.reactor.close()


RESTART = GangRestartRequested(FRESH)


@needs_openssl
@pytest.mark.parametrize("content", [b"fresh", b"others, which no executor got"])
def test_programs_start_anew_for_other_tokens_only(content: bytes) -> None:
    """Tokens count as renewed only where executors have them."""
    soon = time.time() + 3600
    with Watched(Pool(3600.0)) as one:
        one.begin(1, None)
        one.watch._note_fetched(0, FreshTokens(b"fresh", soon))
        assert one.requests == [RESTART]
        one.watch._note_fetched(0, FreshTokens(content, soon, renewed=True))
        one.watch._note_fetched(0, FreshTokens(b"new", soon))
        assert one.requests == [RESTART] * (2 if content == b"fresh" else 3)


@needs_openssl
@pytest.mark.parametrize("attempt", [1, 2])
def test_after_an_early_fetch_a_next_masters_programs_start_anew(attempt: int) -> None:
    with Watched(Pool(3600.0)) as one:
        one.begin(attempt, FreshTokens(b"fresh", time.time() + 3600))
        assert one.requests == ([RESTART] if attempt == 2 else []) and one.warnings == []


@needs_openssl
def test_programs_go_on_where_the_tokens_of_an_early_fetch_cannot_be_handed_on() -> None:
    pool = Pool(3600.0)

    def fail(content: bytes) -> bytes:
        raise OSError("the disk is full")

    pool.renew_tokens = fail  # type: ignore[method-assign]
    with Watched(pool) as one:
        one.begin(2, FreshTokens(b"fresh", time.time() + 3600))
        assert one.requests == [] and len(one.warnings) == 1
        assert "cannot be handed on (the disk is full)" in one.warnings[0]
        deadline = one.watch.next_deadline()
        assert deadline is not None and deadline - one.reactor.now() < 61, "it tries again soon"
