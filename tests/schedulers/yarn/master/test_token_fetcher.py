"""The short-lived process that fetches fresh tokens: its answers, its deadline, its input."""

from __future__ import annotations

import json
import os
import pwd
import sys
import time
from pathlib import Path
from typing import Callable, List

import pytest

from tests.schedulers.yarn.client.test_delegation_tokens import hdfs_token
from tony_core.hadoop.credentials import Credentials
from tony_core.schedulers.container_pool import FreshTokens, PoolInfo
from tony_core.schedulers.port import LastingRefusal, SchedulerError
from tony_core.schedulers.yarn.job_credentials import ShippedKeytab
from tony_core.schedulers.yarn.master.token_fetcher import (
    TokenFetcher,
    fetch_overdue,
    warn_of_shared_user,
)
from tony_core.schedulers.yarn.master.user_tokens import UserTokens, token_dates
from tony_core.schedulers.yarn.node.fetch_request import Fetched, Request

SHIPPED = ShippedKeytab("ann@LAKE", b"KEYS", ("hdfs://lake",))
SITE = {"fs.defaultFS": "hdfs://lake"}
FRESH = Credentials({"nn": hdfs_token(1000, 2000)})
INFO = PoolInfo("app_1", 1, "ann", "default")

STANDIN = """
import json, os, sys, time
request = sys.stdin.read()
with open({log!r}, "a") as log:
    print(json.dumps([request, sys.argv, dict(os.environ)]), file=log)
{body}
"""


class Standin:
    """Stands in for TonY's own code, and keeps what it was given."""

    def __init__(self, folder: Path, body: str) -> None:
        self._log = folder / "requests"
        program = folder / "runtime.py"
        program.write_text(STANDIN.format(log=str(self._log), body=body))
        command = (sys.executable, "-I", "-S", str(program))
        self.fetcher = TokenFetcher(SHIPPED, SITE, "ann", command, "node7")

    def requests(self) -> List[Request]:
        return [Request.decode(json.loads(line)[0]) for line in self._lines()]

    def seen(self) -> str:
        """Its arguments and variables."""
        return "".join(str(json.loads(line)[1:]) for line in self._lines())

    def _lines(self) -> List[str]:
        return self._log.read_text().splitlines()


def answering(renewed: bool = False, ends: float = 5000.0) -> str:
    return f"print({Fetched(FRESH, ends, renewed).encode()!r})"


def test_fresh_tokens_and_the_next_fetch_renews_them(tmp_path: Path) -> None:
    one = Standin(tmp_path, answering(renewed=True))
    found = [one.fetcher.fetch() for _ in range(2)]
    assert found == [FreshTokens(FRESH.encode(), 5000.0, True)] * 2
    first, second = one.requests()
    assert first == Request(SITE, "ann@LAKE", b"KEYS", "ann", ("hdfs://lake",))
    assert second == first._replace(held=FRESH.encode())


def test_keys_go_through_the_pipe_only(tmp_path: Path) -> None:
    one = Standin(tmp_path, answering())
    one.fetcher.fetch()
    assert "yarn-fetch-tokens" in one.seen()
    assert "KEYS" not in one.seen() and "S0VZUw" not in one.seen()  # as base64
    assert sorted(path.name for path in tmp_path.iterdir()) == ["requests", "runtime.py"]
    assert "KEYS" not in repr(vars(one.fetcher))


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("sys.stderr.write('noise\\nthe keys do not fit\\n'); sys.exit(1)", LastingRefusal,
         "node7: the keys do not fit"),
        ("sys.exit('this machine has no GSSAPI library')", LastingRefusal, "no GSSAPI library"),
        ("sys.stderr.write('no KDC answers\\n'); sys.exit(3)", SchedulerError, "no KDC answers"),
        ("os.kill(os.getpid(), 9)", SchedulerError, "node7: exit code -9"),
        ("print('?')", SchedulerError, "the answer to the fetch cannot be read"),
        ("print('{}')", SchedulerError, "the answer to the fetch cannot be read"),
    ],
)  # fmt: skip
def test_no_tokens_and_why(
    tmp_path: Path, body: str, kind: type[SchedulerError], words: str
) -> None:
    one = Standin(tmp_path, body)
    with pytest.raises(SchedulerError, match=words) as caught:
        one.fetcher.fetch()
    assert type(caught.value) is kind


def test_a_process_that_hangs_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = f"open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    one = Standin(tmp_path, body)
    with pytest.raises(SchedulerError, match=r"node7: no answer .* within 2 s"):
        one.fetcher.check(2.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    fetcher = TokenFetcher(SHIPPED, SITE, "ann", (str(tmp_path / "none"),), "node7")
    with pytest.raises(SchedulerError, match="cannot be started"):
        fetcher.check()


class TestOverdue:
    """What a master does whose tokens, those of the submit, are near their end or past it."""

    def held(self, issued_before_s: float, ends_in_s: float) -> Credentials:
        now = time.time()
        return Credentials({"nn": hdfs_token(now - issued_before_s, now + ends_in_s)})

    def fetch(
        self, one: Standin, held: Credentials, pause: Callable[[float], object] = lambda s: None
    ) -> object:
        """Fetch by a clock that goes on in pauses only."""
        self.logged: List[str] = []
        self.now = 0.0

        def go_on(seconds: float) -> None:
            self.now += seconds
            pause(seconds)

        return fetch_overdue(one.fetcher, held, self.logged.append, 30.0, lambda: self.now, go_on)

    def test_tokens_with_time_left_are_left(self, tmp_path: Path) -> None:
        one = Standin(tmp_path, answering())
        assert self.fetch(one, self.held(10, 100)) is None
        assert self.fetch(one, Credentials()) is None
        assert not (tmp_path / "requests").exists()

    @pytest.mark.parametrize("ends_in_s", [20, -1000])
    def test_others_are_fetched(self, tmp_path: Path, ends_in_s: float) -> None:
        one = Standin(tmp_path, answering())
        assert self.fetch(one, self.held(2000, ends_in_s)) == FreshTokens(FRESH.encode(), 5000.0)

    @pytest.mark.parametrize("code", [1, 3])
    def test_without_others_the_first_do_until_their_end(self, tmp_path: Path, code: int) -> None:
        one = Standin(tmp_path, f"sys.exit({code})")
        assert self.fetch(one, self.held(1000, 60)) is None
        assert len(self.logged) == 1

    def test_a_kdc_that_is_away_is_waited_for(self, tmp_path: Path) -> None:
        here = tmp_path / "here"
        body = f"os.path.exists({str(here)!r}) or sys.exit(3)\n{answering()}"
        one = Standin(tmp_path, body)
        assert self.fetch(one, self.held(1000, -1), lambda s: here.touch()) is not None
        assert len(self.logged) == 1

    def test_not_for_ever(self, tmp_path: Path) -> None:
        one = Standin(tmp_path, "sys.stderr.write('no KDC\\n'); sys.exit(3)")
        with pytest.raises(SchedulerError, match=r"within 30 s\. node7: no KDC"):
            self.fetch(one, self.held(1000, -1))
        assert [each.limit_s for each in one.requests()] == pytest.approx(
            [20, 50 / 3, 40 / 3, 10, 20 / 3]
        ), "each try has what is left"

    def test_too_late_for_the_first_ones(self, tmp_path: Path) -> None:
        """The job would be ended at once: a minute before their end."""
        one = Standin(tmp_path, "sys.exit(3)")
        with pytest.raises(SchedulerError, match="have ended"):
            self.fetch(one, self.held(10000, 50))

    def test_keys_that_do_not_fit_are_not_tried_again(self, tmp_path: Path) -> None:
        one = Standin(tmp_path, "sys.exit('not the keys of the KDC')")
        with pytest.raises(LastingRefusal, match="not the keys"):
            self.fetch(one, self.held(1000, -1))
        assert len(one.requests()) == 1


class TestUserTokens:
    def test_a_job_without_a_keytab(self) -> None:
        held = Credentials({"nn": hdfs_token(1000, 2000)})
        tokens = UserTokens(dates=token_dates(held))
        assert tokens.check(logs_in=True) is None
        described = tokens.describe(INFO)
        assert described.tokens == (1000, 2000) and not described.fetches_tokens
        with pytest.raises(SchedulerError, match="ships no keytab"):
            tokens.fetch()
        assert UserTokens().describe(INFO) == INFO

    def test_a_job_with_one(self, tmp_path: Path) -> None:
        one = Standin(tmp_path, "sys.exit('no library')")
        tokens = UserTokens(fetcher=one.fetcher)
        assert tokens.check(logs_in=False) is None and not (tmp_path / "requests").exists()
        problem = tokens.check(logs_in=True)
        assert isinstance(problem, LastingRefusal) and str(problem) == "node7: no library"
        assert tokens.describe(INFO).fetches_tokens
        assert one.requests()[0].check

    def test_tokens_fetched_already_need_no_check(self, tmp_path: Path) -> None:
        one = Standin(tmp_path, "sys.exit('no library')")
        fresh = FreshTokens(b"tokens", time.time() + 60)
        tokens = UserTokens(fetcher=one.fetcher, fetched=fresh, dates=token_dates(FRESH, fresh))
        assert tokens.check(logs_in=True) is None
        described = tokens.describe(INFO)
        assert described.fetched == fresh and described.tokens is not None
        assert described.tokens.ends == fresh.ends
        assert time.time() - described.tokens.issued < 60


def test_where_all_users_jobs_run_as_one_the_story_warns() -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    assert warn_of_shared_user(me, "node7") == ""
    text = warn_of_shared_user("someone-else", "node7")
    assert text.startswith(f"containers on node7 run as {me}, not as someone-else")
    fetcher = TokenFetcher(SHIPPED, SITE, "ann", ("none",), "node7", warning=text)
    assert UserTokens(fetcher=fetcher).describe(INFO).token_warnings == (text,)
