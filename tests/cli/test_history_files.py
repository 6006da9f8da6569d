"""tony history export and import: files of one job, and jobs of the JVM TonY."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Tony, scripted, tony
from tests.cli.schema import wrong_with
from tests.client.scripted import APP, Scripted, status
from tests.portal.jvm.files import APP as OLD
from tests.portal.jvm.files import EVENTS, NAME, RUNNING, jhist
from tests.portal.jvm.test_reading import CONFIG
from tony_core.portal.jvm.avro import decode
from tony_core.schedulers.port import AppState

__all__ = ["scripted", "tony"]

RUNS = "application_1541469337545_0099"


@pytest.fixture
def failed(scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """One job that failed; the working folder is an empty one."""
    folder = Path(scripted.root, "history", APP)
    folder.mkdir(parents=True)
    job = {"app_id": APP, "name": "mnist", "user": "ann", "state": "FAILED",
           "submitted": 1000.0, "started": 1001.0, "finished": 1010.0}  # fmt: skip
    tasks = [{"task": "worker:0", "role": "worker", "index": 0, "state": "failed",
              "started": 1002.0, "ended": 1009.0, "usage": {"peak_rss_mb": 2.0}}]  # fmt: skip
    (folder / "summary.json").write_text(json.dumps({"job": job, "tasks": tasks, "metrics": {}}))
    (folder / "tony-final.xml").write_bytes(CONFIG)
    scripted.apps[APP] = status(state=AppState.FAILED, finished=1010.0)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return scripted


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A history folder of the JVM TonY: a job that ended, one that runs, a damaged one."""
    root = tmp_path / "tony-history"
    for folder, name, data in (
        (root / "finished" / "2018" / "11" / "15" / OLD, NAME, jhist()),
        (root / "intermediate" / RUNS, RUNNING.replace(OLD, RUNS), jhist(EVENTS[1:3])),
        (root / "intermediate" / "application_1_0001", "odd.jhist", b"\xff"),
    ):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(data)
        (folder / "tony-final.xml").write_bytes(CONFIG)
    return root


class TestExport:
    def test_html_is_the_default(self, tony: Tony, failed: Scripted) -> None:
        done = tony("history", "export", APP)
        assert (done.code, done.out) == (0, "") and f"written: {APP}.html" in done.err
        text = Path(f"{APP}.html").read_text()
        assert text.startswith("<!doctype html>") and "mnist" in text and "worker:0" in text
        assert stat.S_IMODE(os.stat(f"{APP}.html").st_mode) == 0o600
        newest = tony("history", "export", "--output", "-").out
        assert newest.split("<footer>")[0] == text.split("<footer>")[0]

    def test_what_is_no_file_is_written_into(self, tony: Tony, failed: Scripted) -> None:
        os.mkfifo("pipe")
        reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(os.open("pipe", os.O_WRONLY), fcntl.F_SETPIPE_SZ, 1 << 20)
        try:
            assert tony("history", "export", APP, "--format", "json", "--output", "pipe").code == 0
            assert json.loads(os.read(reader, 1 << 20))["job"]["name"] == "mnist"
        finally:
            os.close(reader)
        assert stat.S_ISFIFO(os.lstat("pipe").st_mode)

    def test_a_full_device_stays_one(self, tony: Tony, failed: Scripted) -> None:
        Path("link").symlink_to("/dev/full")
        done = tony("history", "export", APP, "--output", "link")
        assert done.code != 0 and "link: No space left on device" in done.err
        assert Path("link").is_symlink() and stat.S_ISCHR(os.stat("/dev/full").st_mode)

    def test_a_link_is_followed(self, tony: Tony, failed: Scripted) -> None:
        Path("old.html").write_text("old")
        Path("link.html").symlink_to("old.html")
        assert tony("history", "export", APP, "--output", "link.html").code == 0
        assert Path("link.html").is_symlink() and "mnist" in Path("old.html").read_text()

    def test_what_cannot_be_written_is_named(self, tony: Tony, failed: Scripted) -> None:
        Path("folder").mkdir()
        done = tony("history", "export", APP, "--output", "folder")
        assert done.code == 2 and "folder is a folder; name a file in it" in done.err
        done = tony("history", "export", APP, "--output", "missing/a.html")
        assert done.code != 0 and "missing/a.html: No such file or directory" in done.err
        assert "tmp" not in done.err

    def test_json(self, tony: Tony, failed: Scripted) -> None:
        found = json.loads(tony("history", "export", "--format", "json", "--output", "-").out)
        assert wrong_with(found, "history-export") == []
        assert found["job"]["name"] == "mnist"
        assert {"key": "tony.application.name", "value": "mnist", "source": "tony.xml"} in (
            found["config"]
        )

    def test_jhist(self, tony: Tony, failed: Scripted) -> None:
        done = tony("history", "export", APP, "--format", "jhist", "--output", "out")
        assert done.code == 0 and f"written: out/{APP}" in done.err
        names = sorted(os.listdir(f"out/{APP}"))
        assert names[1] == "tony-final.xml"
        assert names[0].endswith("-1001000-1010000-ann-FAILED.jhist")
        events = list(decode(Path("out", APP, names[0]).read_bytes(), []))
        assert events[-1].kind == "ApplicationFinished"

    def test_a_running_job_has_no_jhist(self, tony: Tony, failed: Scripted) -> None:
        summary = Path(failed.root, "history", APP, "summary.json")
        summary.write_text(summary.read_text().replace('"FAILED"', '"RUNNING"'))
        failed.apps[APP] = status(state=AppState.RUNNING)
        done = tony("history", "export", APP, "--format", "jhist")
        assert done.code == 2 and "has not ended" in done.err

    def test_standard_output_is_no_folder(self, tony: Tony, failed: Scripted) -> None:
        done = tony("history", "export", APP, "--format", "jhist", "--output", "-")
        assert done.code == 2 and "writes a folder" in done.err

    def test_a_path_that_confuses_the_jvms_reader_is_named(
        self, tony: Tony, failed: Scripted
    ) -> None:
        done = tony("history", "export", APP, "--format", "jhist", "--output", "my-jhist")
        assert done.code == 0 and "its path may not contain 'jhist'" in done.err

    @pytest.mark.parametrize("format, library", [("html", "jinja2"), ("jhist", "fastavro")])
    def test_without_the_extra(
        self,
        tony: Tony,
        failed: Scripted,
        monkeypatch: pytest.MonkeyPatch,
        format: str,
        library: str,
    ) -> None:
        for name in [each for each in sys.modules if each.startswith("tony_core.portal.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, library, None)
        done = tony("history", "export", APP, "--format", format)
        assert done.code == 1 and f"needs {library}: in TonY's checkout, pip" in done.err


class TestImport:
    def test_jobs_that_have_ended(self, tony: Tony, failed: Scripted, old: Path) -> None:
        done = tony("history", "import", str(old))
        assert done.code == 1, "one is damaged"
        assert f"{OLD}  imported" in done.out and f"{RUNS}  left out: it has not ended" in done.out
        assert "application_1_0001  left out: no .jhist file" in done.out
        assert "1 of 3 jobs imported" in done.err
        shown = json.loads(tony("history", "show", OLD, "--json", "--scheduler", "local").out)
        assert wrong_with(shown, "history-show") == []
        assert shown["job"]["name"] == "mnist" and shown["job"]["state"] == "FAILED"
        assert len(shown["events"]) == 7 and shown["problems"] == []
        config = tony("history", "show", OLD, "--config", "--scheduler", "local").out
        assert "mnist" in config and "hunter2000" not in config
        folder = Path(failed.root, "history", OLD)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def test_again_changes_nothing(self, tony: Tony, failed: Scripted, old: Path) -> None:
        tony("history", "import", str(old))
        summary = Path(failed.root, "history", OLD, "summary.json")
        before = summary.stat().st_mtime_ns
        found = json.loads(tony("history", "import", str(old), "--json").out)
        assert wrong_with(found, "history-import") == []
        assert found["imported"] == [] and summary.stat().st_mtime_ns == before
        assert {"app_id": OLD, "why": "it is in that history already"} in found["left_out"]

    def test_one_job(self, tony: Tony, failed: Scripted, old: Path, tmp_path: Path) -> None:
        folder = old / "finished" / "2018" / "11" / "15" / OLD
        target = tmp_path / "other"
        done = tony("history", "import", str(folder), "--history", str(target), "--json")
        found = json.loads(done.out)
        assert done.code == 0 and [job["app_id"] for job in found["imported"]] == [OLD]
        assert (target / OLD / "events-0001.jsonl").is_file()

    @pytest.mark.parametrize("place", ["here", "nowhere"])
    def test_another_folder_is_refused(self, tony: Tony, failed: Scripted, place: str) -> None:
        (Path.cwd() / "here").mkdir()
        done = tony("history", "import", place)
        assert done.code == 2 and ("is neither" in done.err or "is no folder" in done.err)

    def test_what_we_export_can_be_imported(
        self, tony: Tony, failed: Scripted, tmp_path: Path
    ) -> None:
        assert tony("history", "export", APP, "--format", "jhist", "--output", "out").code == 0
        done = tony("history", "import", f"out/{APP}", "--history", str(tmp_path / "new"), "--json")
        assert done.code == 0, done.err
        shown = json.loads(
            tony("history", "show", APP, "--history", str(tmp_path / "new"), "--json").out
        )
        assert shown["job"]["tasks"][0]["usage"] == {"peak_rss_mb": 2.0}
