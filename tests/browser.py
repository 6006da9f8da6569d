"""A real browser for tests of pages, driven as its developers' tools drive it."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.cli.processes import until

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = """
--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run
--disable-background-networking --disable-component-update --disable-sync
--no-default-browser-check --disable-breakpad --remote-debugging-pipe
""".split()
ANSWER_S = 30.0  # of a browser that may only just have been started, on a busy machine


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """One that runs."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser on the PATH: {', '.join(BROWSERS)}")
    made = Browser(program, tmp_path / "browser")
    yield made
    made.close()


class Browser:
    """A browser that takes its commands over two pipes, as its developers' tools do."""

    def __init__(self, program: str, folder: Path) -> None:
        self.complaints: List[str] = []  # what the pages' consoles say
        self._number = 0
        self._input = b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # It reads from 3 and writes to 4; whatever our own numbers are.
        low = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
        words = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{low[0]} 4>&{low[1]}', "browser", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
            start_new_session=True,
            pass_fds=low,
        )
        for fd in (theirs_in, theirs_out, *low):
            os.close(fd)

    def open(self, url: str) -> str:
        """A page in a tab of its own: the name of that tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        tab = str(attached["sessionId"])
        for domain in ("Log", "Runtime", "Page"):
            self.call(f"{domain}.enable", tab)
        self.call("Page.navigate", tab, url=url)
        return tab

    def shows(self, tab: str, *texts: str) -> str:
        """Wait until all of them stand in the page as it is by now; the page."""
        found = [""]

        def all_there() -> bool:
            expression = "document.documentElement ? document.documentElement.outerHTML : ''"
            try:
                answer = self.call("Runtime.evaluate", tab, expression=expression)
            except AssertionError:  # on its way to another page
                return False
            found[0] = str(answer["result"].get("value", ""))  # none on its way to a page
            return all(text in found[0] for text in texts)

        try:
            until(all_there, f"{texts} in the page", self.complaints)
        except AssertionError as error:
            raise AssertionError(f"{error}\nthe page: {found[0][:2000]}") from None
        return found[0]

    def run(self, tab: str, script: str) -> Any:
        """What a script gives in the page, which waits for its promise."""
        answer = self.call(
            "Runtime.evaluate", tab, expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, tab: str, script: str) -> Any:
        """The first value of a script that counts as true."""
        found: List[Any] = []

        def is_there() -> bool:
            try:
                found[:] = [self.run(tab, script)]
            except AssertionError:  # on its way to another page
                return False
            return bool(found[0])

        until(is_there, script, self.complaints)
        return found[0]

    def shape(self, tab: str, width: int, height: int = 900, dark: bool = False) -> None:
        """The window of a tab, and the colours that its reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride", tab,
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", tab, features=[scheme])

    def press(self, tab: str, key: str, text: str = "") -> None:
        """A key of the keyboard; ``text`` is what it types."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
        typed = {"text": text} if text else {}
        named = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0]))}
        self.call("Input.dispatchKeyEvent", tab, type="keyDown", **named, **typed)
        self.call("Input.dispatchKeyEvent", tab, type="keyUp", **named)

    def picture(self, tab: str) -> bytes:
        """The tab as it looks, as PNG."""
        answer = self.call("Page.captureScreenshot", tab, format="png")
        return base64.b64decode(answer["data"])

    def call(self, method: str, tab: str = "", **params: Any) -> Dict[str, Any]:
        """Ask for something, and wait for the answer."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        if tab:
            request["sessionId"] = tab
        os.write(self._out, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + ANSWER_S
        while True:
            message = self._next(end, method)
            if message.get("id") == self._number:
                assert "error" not in message, message
                found: Dict[str, Any] = message["result"]
                return found
            if message.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(json.dumps(message["params"]))

    def close(self) -> None:
        """End it, with all its helpers."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(60)
        os.close(self._in)
        os.close(self._out)

    def _next(self, end: float, what: str) -> Dict[str, Any]:
        while b"\0" not in self._input:
            left = end - time.monotonic()
            ready = select.select([self._in], [], [], max(0.0, left))[0]
            assert ready, f"no answer of the browser's to {what} within {ANSWER_S:g} s"
            data = os.read(self._in, 1 << 16)
            assert data, f"the browser ended at {what}"
            self._input += data
        text, _, self._input = self._input.partition(b"\0")
        found: Dict[str, Any] = json.loads(text)
        return found
