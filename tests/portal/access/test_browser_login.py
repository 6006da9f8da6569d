"""A login at an identity provider in a real browser, and a hostile page at another port.

To a browser that is the same site: it sends the portal's cookie along.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Iterator

import pytest

from tests.browser import Browser
from tests.cluster.kdc import free_port
from tests.portal.access.running import running
from tests.portal.access.test_oidc_login import provider
from tony_core.portal.assembly import assemble
from tony_core.portal.settings import HistoryLocation, Login, Settings

pytestmark = pytest.mark.slow
__all__ = ["provider"]


@pytest.fixture
def hostile() -> Iterator[str]:
    """A page at another port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>hostile</title><p>hostile</p>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://localhost:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(60)


def test_login_a_hostile_page_and_logout(
    browser: Browser, provider: str, hostile: str, tmp_path: Path
) -> None:
    (tmp_path / "history").mkdir()
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    port, log = free_port(), tmp_path / "log"
    url = f"http://localhost:{port}"
    settings = Settings(
        locations=(HistoryLocation("shared", str(tmp_path / "history")),),
        index_folder=str(tmp_path / "index"),
        url=url,
        port=port,
        access_log=str(log),
        login=Login(
            by="oidc", oidc_issuer=provider, oidc_client_id="portal", oidc_secret_file=str(secret)
        ),
    )
    parts = assemble(settings)
    try:
        with running(settings, parts.app):
            tab = browser.open(f"{url}/jobs?q=mnist")
            # The provider's page, with a button for each of its users.
            browser.wait_for(tab, "document.querySelector('button[value=\"1\"]') !== null")
            browser.run(tab, "document.querySelector('button[value=\"1\"]').click();0")
            browser.wait_for(tab, f"location.href === '{url}/jobs?q=mnist'")
            browser.shows(tab, "ann")
            assert browser.run(tab, "document.cookie") == ""

            other = browser.open(hostile)
            browser.wait_for(other, "document.title === 'hostile'")
            for code in (
                "fetch(URL + '/logout', {method: 'POST', credentials: 'include', mode: 'no-cors'})",
                "fetch(URL + '/api/jobs', {credentials: 'include'}).then(a => a.text())"
                ".then(a => document.title = a, a => 0)",
            ):
                script = code.replace("URL", repr(url))
                browser.run(other, f"{script}.finally(() => document.body.id = 'done');0")
                browser.wait_for(other, "document.body.id === 'done'")
                browser.run(other, "document.body.id = '';0")
            assert browser.run(other, "document.title") == "hostile", "nothing could be read"
            browser.run(
                other,
                f"""
                const form = document.createElement('form');
                form.method = 'post'; form.action = {url!r} + '/logout';
                document.body.append(form); form.submit(); 0
                """,
            )
            browser.shows(other, "sent by a page of another site")
            assert any(
                '"POST /logout' in line and " 403 " in line for line in log.read_text().splitlines()
            )

            browser.call("Page.navigate", tab, url=f"{url}/users")
            browser.shows(tab, "ann")
    finally:
        parts.close()
