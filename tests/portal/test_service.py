"""The process: what it writes on standard error, and places that it cannot use."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tony_core.portal import service
from tony_core.portal.access.access_log import AccessLog
from tony_core.portal.service import PortalError, bind, make_login, make_parts, write_note
from tony_core.portal.settings import HistoryLocation, Login, Settings


def test_what_it_writes_drives_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write_note("a\x1b[2J job\nand \u202e more\t\u00e9")
    assert capsys.readouterr().err == "a\\x1b[2J job\nand \\u202e more\\t\u00e9\n"
    logger = logging.getLogger("uvicorn.error")
    before = (logger.handlers[:], logger.level, logger.propagate)
    try:
        service._log_faults()
        try:
            raise RuntimeError("x\x1b]0;title\x07")
        except RuntimeError:
            logger.exception("Exception in ASGI application")
        found = capsys.readouterr().err
        assert "RuntimeError: x\\x1b]0;title\\x07" in found and "\x1b" not in found
    finally:
        logger.handlers[:], level, logger.propagate = before
        logger.setLevel(level)


def test_an_address_that_is_not_here() -> None:
    with pytest.raises(PortalError, match=r"cannot listen at 192\.0\.2\.1, port 1"):
        bind(Settings(bind="192.0.2.1", port=1))


def test_an_index_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings(index_folder=str(tmp_path / "file" / "index"))
    with pytest.raises(PortalError, match="the index cannot be kept at"):
        make_parts(settings, lambda *_: None)


def test_a_place_of_jhist_files_that_cannot_be_used(tmp_path: Path) -> None:
    location = HistoryLocation("a", str(tmp_path), write_jhist=str(tmp_path / "jhist"))
    settings = Settings((location,), index_folder=str(tmp_path / "index"))
    with pytest.raises(PortalError, match="write-jhist: "):
        make_parts(settings, lambda *_: None)


def test_logins_that_cannot_be(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("two\nlines")
    for login, words in (
        (Login(by="header", trusted_users=("no such user",)), "trusted-users: .*no such user"),
        (Login(by="oidc", oidc_secret_file=str(secret)), "client-secret-file: it is not one line"),
        (Login(by="oidc", oidc_secret_file=str(tmp_path / "none")), "client-secret-file: .*none"),
    ):
        with pytest.raises(PortalError, match=words) as caught:
            make_login(Settings(login=login), None, None)  # type: ignore[arg-type]
        assert "lines" not in str(caught.value)


def test_an_access_log_that_cannot_be_written(tmp_path: Path) -> None:
    settings = Settings(access_log=str(tmp_path / "none" / "log"))
    with (
        pytest.raises(PortalError, match=r"the access log .* cannot be written: no such file"),
        service.open_gate(settings, lambda *_: pytest.fail("not so far")),
    ):
        pass


def test_a_full_disk_ends_no_request(capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLog("/dev/full")
    for _ in range(3):
        log.note("a line")
    log.close()
    found = capfd.readouterr().err
    assert found.count("the access log: unexpected OSError") == 1 and "No space left" in found


BUSY = """
import sys
from starlette.applications import Starlette
from starlette.routing import Route
from tony_core.portal import service
from tony_core.portal.settings import Settings

def compute(request):
    print("computes", flush=True)
    while True:
        pass

app = Starlette(routes=[Route("/", compute)])
service.make_parts = lambda settings, audit: service.Parts(app)
service.serve(Settings(port=0), lambda url: print(url, flush=True))
"""


def test_it_ends_though_a_thread_computes() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = urlsplit(process.stdout.readline().strip())
            with socket.create_connection((url.hostname, url.port), 30) as stream:
                stream.sendall(f"GET / HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
                assert process.stdout.readline() == "computes\n"
                process.terminate()
                assert process.wait(15) == 0
        finally:
            process.kill()
