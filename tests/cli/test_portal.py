"""``tony portal`` as a process: settings, its own jobs, ending one, its own end."""

from __future__ import annotations

import getpass
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest
import requests

from tests.cli.processes import Running, tony, until
from tests.cluster.yarn.jobs import Tony
from tests.second_user import as_stranger, needs_root


def started(folder: Path, *words: str) -> Tuple[Running, str]:
    """A portal, and its URL."""
    portal = Running(folder, "portal", "--port", "0", *words)
    until(lambda: "the portal is at" in portal.err or portal.process.poll() is not None, "its URL")
    found = re.search(r"is at (http://[^/]+)/", portal.err)
    assert found, str(portal)
    return portal, found[1]


class TestSettings:
    def test_checked_and_described(self, tmp_path: Path) -> None:
        path = tmp_path / "portal.ini"
        path.write_text(
            f"[portal]\nadmins = ann\nschedulers = local\n[history shared]\npath = {tmp_path}\n"
        )
        done = tony("portal", "--check", "--config", str(path), "--port", "80", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "port 80)" in done.stdout and f"shared: {tmp_path}" in done.stdout

    def test_all_problems_in_one_message(self, tmp_path: Path) -> None:
        path = tmp_path / "portal.ini"
        path.write_text("[portal]\nprot = 1\n[login]\nby = header\n")
        done = tony("portal", "--config", str(path), cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.splitlines() == [
            f"tony: {path}: 4 problems",
            "  [portal] prot: there is no such key; did you mean port?",
            "  [login] header is missing: by = header needs it",
            "  [login] trusted is missing: by = header needs it",
            "  there is no [history NAME] section: a portal for many users reads a location that is"
            " shared on purpose (docs/portal.md)",
        ]

    def test_problems_of_every_kind_at_once(self, tmp_path: Path) -> None:
        """Of values, of keys, of what does not go together, of places, of schedulers."""
        path = tmp_path / "portal.ini"
        path.write_text(
            "[portal]\nport = abc\nfoo = 1\nbind = 0.0.0.0\nschedulers = slurm\n"
            "[history a]\npath = s3://bucket/x\n[history b]\npath = /nonexist\n"
            "[login]\nby = magic\n"
        )
        done = tony("portal", "--check", "--config", str(path), cwd=tmp_path)
        assert done.returncode == 2 and "7 problems" in done.stderr, done.stderr
        for words in (
            "port: 'abc'",
            "foo: there is no such key",
            "bind is 0.0.0.0, and url is missing",
            "there is no scheduler 'slurm'",
            "history a: s3://bucket/x: the portal needs a file system that says whose a file is",
            "history b: /nonexist cannot be read: no such file",
            "by: 'magic'",
        ):
            assert words in done.stderr, words
        assert "by socket" not in done.stderr, "how one logs in is not known"

    def test_a_place_that_is_not_there(self, tmp_path: Path) -> None:
        done = tony("portal", "--check", "--history", "/nonexist", cwd=tmp_path)
        assert done.returncode == 2
        assert "history history: /nonexist cannot be read: no such file" in done.stderr

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--bind", "0.0.0.0"), "which other machines reach"),
            (("--scheduler", "slurm"), "there is no scheduler 'slurm'"),
            (("--port", "x"), "is not a port"),
            (("--config", "none.ini"), "no such file"),
            (("--bind", "203.0.113.1", "--check"), "which other machines reach"),
            (("extra",), "unexpected argument 'extra'"),
        ],
    )
    def test_bad_options(self, tmp_path: Path, words: Tuple[str, ...], message: str) -> None:
        done = tony("portal", *words, cwd=tmp_path)
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert "Traceback" not in done.stderr

    def test_without_the_extra(self, tmp_path: Path) -> None:
        """One message that names what to install."""
        code = (
            "import sys, importlib.util as util\nreal = util.find_spec\n"
            "hidden = ('starlette', 'uvicorn')\n"
            "util.find_spec = lambda name, *more: None if name in hidden else real(name, *more)\n"
            "from tony_core.cli.main import main\nsys.exit(main(['portal']))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2
        assert "(starlette, uvicorn)" in done.stderr and "pip install '.[portal]'" in done.stderr

    def test_a_port_or_an_index_that_is_taken(self, tmp_path: Path) -> None:
        portal, url = started(tmp_path)
        with portal:
            port = url.rpartition(":")[2]
            done = tony("portal", "--port", port, cwd=tmp_path)
            assert done.returncode != 0 and "another process listens" in done.stderr
            second = tony("portal", "--port", "0", cwd=tmp_path)
            assert "another portal uses the index" in second.stderr, second.stderr
            assert "--index PATH" in second.stderr and second.returncode == done.returncode
            portal.send(signal.SIGTERM)
            assert portal.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_as_it_is_asked_to(tmp_path: Path, number: int) -> None:
    portal, url = started(tmp_path)
    with portal:
        assert requests.get(f"{url}/health", timeout=30).text == "ok\n"
        portal.send(number)
        assert portal.end() == 0, str(portal)
        assert "Traceback" not in portal.err


@needs_root
def test_another_user_sees_nothing(tmp_path: Path) -> None:
    code = """
    result = []
    for path in ("/", "/api/jobs", "/static/icon.svg", "/metrics", "/jobs/x/end", "/health"):
        try:
            result.append(urllib.request.urlopen(argument + path).status)
        except urllib.error.HTTPError as error:
            result.append(error.code)
    """
    portal, url = started(tmp_path)
    with portal:
        assert as_stranger(code, url) == [403, 403, 403, 403, 403, 200]
        portal.send(signal.SIGTERM)
        portal.end()


@pytest.mark.slow
def test_a_job_is_ended_in_the_browser(
    tony_on: Callable[..., Tony], tony_home: Path, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    config = tmp_path / "portal.ini"
    config.write_text(f"[portal]\naccess-log = {log}\n")
    one = tony_on()
    job = one.submit(
        *("--executes", "sleep 600"),
        conf={"tony.worker.instances": 1, "tony.application.framework": "standalone"},
    )
    app_id = job.app_id
    portal, url = started(tmp_path, "--config", str(config))
    with portal:
        page = f"{url}/jobs/{app_id}/end"

        def ask() -> Dict[str, str]:
            return dict(re.findall(r'name="(csrf)" value="([0-9a-f]+)"', _text(page)))

        until(ask, "the question whether to end it", portal)
        form = ask()
        refused = requests.post(page, data={"csrf": "0" * 64}, timeout=60)
        assert refused.status_code == 403
        foreign = {"Origin": "https://evil.example"}
        assert requests.post(page, data=form, headers=foreign, timeout=60).status_code == 403
        assert job.process.poll() is None, "it runs on"
        done = requests.post(page, data=form, timeout=120)
        assert done.status_code == 200 and f"{app_id} has ended" in done.text, done.text
        job.ends(137)
        state = one.json("status", app_id)
        assert state["state"] == "KILLED"
        assert "in the portal" in str(state["diagnostics"])
        until(lambda: "End this job" not in _text(f"{url}/jobs/{app_id}/"), "no button", portal)
        portal.send(signal.SIGTERM)
        assert portal.end() == 0
    lines: List[str] = [line for line in log.read_text().splitlines() if "end-job" in line]
    user = getpass.getuser()
    (line,) = lines
    assert f"end-job result=ended viewer={user} app={app_id} owner={user}" in line
    assert os.stat(log).st_mode & 0o007 == 0


def _text(url: str) -> str:
    return requests.get(url, timeout=60).text
