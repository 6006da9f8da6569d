"""The verb yarn-fetch-tokens, as far as it goes without a cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tony_core.hadoop.credentials import Credentials
from tony_core.hadoop.tokens import HDFS_DELEGATION, Token
from tony_core.schedulers.yarn.node.fetch_request import Fetched, Request

REQUEST = Request(
    {"fs.defaultFS": "hdfs://nn:8020"}, "ann@A.REALM", b"none", "ann", ("hdfs://nn/",)
)


def run(text: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = (
        "import sys, time; from tony_core.schedulers.yarn.node import fetch_tokens as f;"
        f"{before or 0}; sys.exit(f.main([]))"
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


def test_a_keytab_that_is_none_is_one_sentence() -> None:
    done = run(REQUEST.encode())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("the shipped keytab cannot be used, for it is not a keytab")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("before", ["0", "del f.os.memfd_create"])
def test_a_keytab_is_in_no_folder(before: str) -> None:
    """Not even for an instant, and in none of the process's variables or arguments."""
    look = "lambda conf, request, path: print(path, f.os.stat(path).st_nlink, open(path).read())"
    done = run(REQUEST._replace(check=True).encode(), f"exec({f'{before}; f.log_in = {look}'!r})")
    path, links, content, answer = done.stdout.split()
    assert path.startswith("/proc/self/fd/") and (links, content, answer) == ("0", "none", "{}")


def test_its_memory_is_in_no_core_dump_and_no_other_process_reads_it() -> None:
    look = (
        "lambda *given: print(f.ctypes.PyDLL(None).prctl(3, 0, 0, 0, 0),"
        " [line.split()[4:6] for line in open('/proc/self/limits') if ' core ' in line])"
    )
    done = run(REQUEST._replace(check=True).encode(), f"exec({f'f.log_in = {look}'!r})")
    assert done.stdout.splitlines() == ["0 [['0', '0']]", "{}"], done.stderr


def test_requests_show_neither_keys_nor_tokens() -> None:
    shown = repr(REQUEST._replace(keytab=b"KEYS", held=b"TOKENS"))
    assert "KEYS" not in shown and "TOKENS" not in shown


def test_a_server_that_refuses_now_may_be_asked_again() -> None:
    raising = "raise f.RemoteError('x.SafeModeException', 'Name node is in safe mode')"
    before = f"def log_in(*given): {raising}\nf.log_in = log_in"
    done = run(REQUEST.encode(), f"exec({before!r})")
    assert (done.returncode, done.stdout) == (3, "")
    assert "safe mode" in done.stderr


def test_a_login_that_blocks_ends_at_the_limit() -> None:
    request = REQUEST._replace(limit_s=0.3)
    done = run(request.encode(), "f.log_in = lambda *given: time.sleep(25)")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "the fetch of fresh tokens took more than 0.3 s; it was logging in as ann@A.REALM\n"
    )
