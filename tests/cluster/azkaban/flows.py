"""Flows on a real server, for tests: uploaded, run, watched, and tidied up after."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from dags.examples.azkaban.upload import ENDED, AzkabanError, pack
from tests.cluster.azkaban.installing import tony_words
from tests.cluster.azkaban.server import Azkaban
from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.cluster import Hadoop

WITHIN = 120.0
"""Seconds that anything may take on a machine with much else to do."""

APPLICATION = re.compile(r"INFO - application (application_\d+_\d+|local_\d+_[0-9a-f]+)$", re.M)
"""What the job's log says of its own; of an earlier attempt's it says something else."""

Content = Union[str, bytes, Mapping[str, object]]


def until(ready: Callable[[], Any], what: str, seconds: float = WITHIN) -> Any:
    """Its first true value."""
    deadline = time.monotonic() + seconds
    while True:
        found = ready()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def as_java_writes(properties: Mapping[str, object]) -> bytes:
    """A .job or .properties file: what is beyond ASCII and what has a meaning is escaped."""
    lines = []
    for key, value in properties.items():
        key = key.replace(" ", "\\ ")
        text = str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
        units = text.encode("utf-16-be")
        codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
        lines.append(f"{key}=" + "".join(chr(c) if c < 127 else f"\\u{c:04X}" for c in codes))
    return "\n".join([*lines, ""]).encode("ascii")


def cut_links(lines: List[str]) -> List[str]:
    """The addresses that the log page of some server does not take for what they are: that of
    2.5 goes on to the first ``-``, ``:``, ``%`` or ``#`` in the path."""
    found = [url for line in lines for url in re.findall(r"https?://\S+", line)]
    whole = re.compile(r"https?://[-\w.]+(:\d+)?(/[\w/.]*(\?\S+)?)?")
    return [url for url in found if not whole.fullmatch(url)]


def command_of(pid: int) -> str:
    """What a process was started as; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


class Run:
    """One execution of a flow."""

    def __init__(self, flows: Flows, execid: int, flow: str) -> None:
        self._flows = flows
        self.execid = execid
        self.flow = flow

    @property
    def folder(self) -> Path:
        """Where its jobs work; as long as it runs."""
        return self._flows.server.home / "executions" / str(self.execid)

    def state(self) -> str:
        return self._flows.client.state(self.execid)

    def jobs(self) -> Dict[str, str]:
        """The state of each."""
        return self._flows.client.job_states(self.execid)

    def log(self, job: Optional[str] = None, attempt: int = 0) -> str:
        """As text; the server gives it as HTML. Empty while there is none."""
        try:
            text = self._flows.client.log(self.execid, job or self.flow, attempt)
        except AzkabanError:
            return ""
        for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
            text = text.replace(escaped, plain)
        return text

    def said(self, job: Optional[str] = None, attempt: int = 0) -> List[str]:
        """The lines of a job's own, without the server's time stamp."""
        found = re.findall(r"^\S+ \S+ \S+ \S+ (?:INFO|ERROR) - (.*)$", self.log(job, attempt), re.M)
        return list(found)

    def says(self, text: str, job: Optional[str] = None, attempt: int = 0) -> str:
        """Waits for a text in the log of a job that must not end before; the log."""

        def look() -> str:
            over = self.state() in ENDED
            log = self.log(job, attempt)
            if text in log:
                return log
            assert not over, f"ended before it said {text!r}\n{self.story()}"
            return ""

        return str(until(look, f"{text!r} in the log"))

    def app_id(self, job: Optional[str] = None, attempt: int = 0) -> str:
        """Of the application that the job has submitted."""

        def look() -> str:
            over = self.state() in ENDED
            found = APPLICATION.search(self.log(job, attempt))
            assert found or not over, f"ended without an application\n{self.story()}"
            return found.group(1) if found else ""

        return str(until(look, "an application's id in the log"))

    def of_attempt(self, number: int) -> str:
        """The application of an attempt at a flow's only job, by its tags: the server mixes up
        the logs of attempts that end and begin at one moment."""
        tag = f"azkaban.flow.execid:{self.execid}"
        told = self._flows.tony("list", "--tag", tag, "--json")
        assert told.returncode == 0, told.stderr
        wanted = f"azkaban.job.attempt:{number}"
        (found,) = (
            one["app_id"]
            for one in json.loads(told.stdout)["applications"]
            if wanted in one["tags"]
        )
        return str(found)

    def cancel(self) -> None:
        self._flows.client.cancel(self.execid)

    def ends(self, state: str = "SUCCEEDED", seconds: float = WITHIN) -> Run:
        """In this state."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.state()
            if found in ENDED:
                break
            assert time.monotonic() < deadline, f"not within {seconds} s\n{self.story()}"
            time.sleep(0.05)
        assert found == state, f"{found} and not {state}\n{self.story()}"
        return self

    def story(self) -> str:
        """All that helps when it goes wrong."""
        parts = [f"execution {self.execid} of {self.flow}: {self.jobs()}"]
        for job in self.jobs():
            log = self.log(job)
            parts.append(f"--- {job}\n{log[-6000:]}")
            found = APPLICATION.search(log)
            if found:
                for words in (("-t", "am", "--stream", "both"), ("--stream", "both")):
                    done = self._flows.tony("logs", found.group(1), *words, "--tail", "30")
                    parts.append(done.stdout[-4000:] + done.stderr[-1000:])
        return "\n".join(parts)


class Flows:
    """Makes flows on one server, and asks TonY about what they did."""

    def __init__(self, server: Azkaban, folder: Path, cluster: Optional[Hadoop] = None) -> None:
        self.server = server
        self.client = server.client()
        self.cluster = cluster
        self.folder = folder
        self._started: List[Run] = []

    def upload(self, files: Mapping[str, Content], project: str = "") -> str:
        """A project of these files: text, bytes, or the properties of a job; its name."""
        made = self.folder / f"project-{len(list(self.folder.glob('*')))}"
        for name, content in files.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, (str, bytes)):
                data = content.encode() if isinstance(content, str) else content
            else:
                data = as_java_writes(content)
            path.write_bytes(data)
        project = project or f"p{time.time_ns():x}"
        self.client.create(project)
        self.client.upload(project, pack([made]))
        return project

    def run(self, project: str, flow: str, settings: Optional[Mapping[str, str]] = None) -> Run:
        """Starts one; it is cancelled at the test's end if it has not ended by then."""
        run = Run(self, self.client.run(project, flow, settings), flow)
        self._started.append(run)
        return run

    def start(
        self, files: Mapping[str, Content], flow: str, settings: Optional[Mapping[str, str]] = None
    ) -> Run:
        """Uploads and runs."""
        return self.run(self.upload(files), flow, settings)

    def job(
        self, executes: str, conf: Optional[Mapping[str, object]] = None, **more: object
    ) -> Dict[str, object]:
        """The properties of a small job of our type."""
        return {
            "type": "tony",
            "executes": executes,
            "tony.worker.instances": 1,
            "tony.worker.memory": "64m",
            "tony.am.memory": "256",
            # What a server on a machine with too much to do kills before it could end its
            # application ends by this, within the time that tests give it.
            "tony.client.lease": "30",
            **(conf or {}),
            **more,
        }

    def one(
        self,
        executes: str,
        conf: Optional[Mapping[str, object]] = None,
        files: Optional[Mapping[str, Content]] = None,
        settings: Optional[Mapping[str, str]] = None,
        **more: object,
    ) -> Run:
        """A flow of one job, called ``train``."""
        job = self.job(executes, conf, **more)
        return self.start({"train.job": job, **(files or {})}, "train", settings)

    # ------------------------------------------------------------------ what TonY says

    def tony(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """The command line, as the user whose jobs the server runs."""
        scheduler = ["--scheduler", "yarn" if self.cluster else "local"]
        return tony_words(
            *verb.split(),
            *scheduler,
            *words,
            TONY_HOME=str(self.server.tony_home),
            **({"HADOOP_CONF_DIR": str(self.cluster.conf_dir)} if self.cluster else {}),
        )

    def status(self, app_id: str) -> Dict[str, Any]:
        """What ``tony status`` says of an application."""
        done = self.tony("status", app_id, "--json")
        assert done.returncode == 0, done.stderr
        found: Dict[str, Any] = json.loads(done.stdout)
        return found

    def gone(self, app_id: str) -> Dict[str, Any]:
        """Waits until an application has ended; its status.

        Whoever asks a master is a client that it hears of: so this looks elsewhere.
        """

        def ended() -> bool:
            if self.cluster is not None:
                return self.cluster.application(app_id)["state"] in ("FINISHED", "FAILED", "KILLED")
            told = json.loads((self.server.tony_home / "apps" / app_id / "status.json").read_text())
            return told["state"] in ENDED

        until(ended, f"{app_id} has ended")
        return self.status(app_id)

    def nothing_runs(self) -> None:
        """Waits until no process of a job's is left anywhere."""

        def left() -> List[int]:
            found = supervisor.processes_in(self.server.tony_home)
            found |= supervisor.processes_in(self.server.home / "executions")
            if self.cluster is not None:
                for node in (self.cluster.folder / "data").glob("nm*/local"):
                    found |= supervisor.processes_in(node)
            return sorted(found - {self.server.running_pid()})

        try:
            until(lambda: not left(), "nothing is left of the jobs")
        except AssertionError as error:
            told = "\n".join(f"{pid}: {command_of(pid)}" for pid in left())
            raise AssertionError(f"{error}\n{told}") from None

    def close(self) -> None:
        for run in self._started:
            try:
                if run.state() not in ENDED:
                    run.cancel()
                    run.ends("KILLED")
            except (AzkabanError, AssertionError, OSError):
                pass  # the server is gone, or the test has failed over this before
        shutil.rmtree(self.folder, ignore_errors=True)
