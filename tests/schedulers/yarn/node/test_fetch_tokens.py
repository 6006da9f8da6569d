"""The verb yarn-fetch-tokens, as far as it goes without a cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token
from tony_core.schedulers.yarn.node.fetch_tokens import Fetched, Request

REQUEST = Request({"fs.defaultFS": "hdfs://nn:8020"}, "ann@A.REALM", "none", "ann", ("hdfs://nn/",))


def run(text: str, before: str = "", limit_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys, time; from tony_core.schedulers.yarn.node import fetch_tokens as f;"
        f"{before or 0}; sys.exit(f.main([], {limit_s}))"
    )
    words = [sys.executable, "-c", code]
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=30)


def test_a_request_and_an_answer_survive_the_pipe() -> None:
    assert Request.decode(REQUEST.encode()) == REQUEST
    token = Token(b"id", b"password", HDFS_DELEGATION, "127.0.0.1:8020")
    answer = Fetched(Credentials({token.service: token}), 1234.5)
    assert Fetched.decode(answer.encode()) == answer


@pytest.mark.parametrize("text", ["", "[]", '{"site": {}}', '{"colour": "red"}'])
def test_what_is_no_request_is_refused(text: str) -> None:
    done = run(text)
    assert done.returncode == 2
    assert done.stderr.startswith("yarn-fetch-tokens: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["{}", "[]", "no json", '{"credentials": "!", "ends": 1}'])
def test_what_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Fetched.decode(text)


def test_a_keytab_that_is_not_there_is_one_sentence() -> None:
    done = run(REQUEST.encode())
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be read (no such file or directory)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_login_that_blocks_ends_at_the_limit() -> None:
    done = run(REQUEST.encode(), "f.log_in = lambda *given: time.sleep(25)", limit_s=0.3)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "the fetch of fresh tokens took more than 0.3 s; it was logging in as ann@A.REALM\n"
    )
