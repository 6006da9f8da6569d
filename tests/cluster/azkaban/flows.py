"""Flows on a real server, for tests: uploaded, run, watched, and tidied up after."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Union

from dags.examples.azkaban.upload import ENDED, AzkabanError, pack
from tests.cluster.azkaban.installing import tony_words
from tests.cluster.azkaban.server import NAME, Azkaban
from tests.cluster.hadoop import supervisor
from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.hadoop.jars import SandboxError

WITHIN = 120.0
"""Seconds that anything may take on a machine with much else to do."""

LOG_WITHIN = 15.0
"""Seconds in which the server puts away the log of a job that has ended: it is empty meanwhile."""

LASTS = {"tony.client.lease": "600"}
"""Of a job whose application must not end by its lease while a test waits for its end."""

HARD = "Killing with KILL signal"
"""What the server says in a job's log when it has lost patience."""

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


def _words_of(pid: int) -> bytes:
    """Where a process works and what it was started with; empty when it is gone."""
    if pid == os.getpid():
        return b""
    try:
        words = os.fsencode(os.readlink(f"/proc/{pid}/cwd")) + b"/\0"
        words += Path(f"/proc/{pid}/cmdline").read_bytes()
        return words + b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


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
        """As text; empty while there is none. That of a job that has ended is waited for."""
        over = self.state() in ENDED
        text = self._log(job, attempt)
        if text or not over:
            return text
        try:
            return str(until(lambda: self._log(job, attempt), "a log", LOG_WITHIN))
        except AssertionError:
            return ""

    def _log(self, job: Optional[str], attempt: int = 0) -> str:
        """Now; the server gives it as HTML."""
        try:
            text = self._flows.client.log(self.execid, job or self.flow, attempt)
        except AzkabanError:
            return ""
        for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
            text = text.replace(escaped, plain)
        return text

    def log_lines(self, job: Optional[str] = None, attempt: int = 0) -> List[str]:
        """The lines of a job's own, without the server's time stamp."""
        found = re.findall(r"^\S+ \S+ \S+ \S+ (?:INFO|ERROR) - (.*)$", self.log(job, attempt), re.M)
        return list(found)

    def wait_for_text(self, text: str, job: Optional[str] = None, attempt: int = 0) -> str:
        """Waits for a text in the log of a job that must not end before; the log."""

        def look() -> str:
            over = self.state() in ENDED
            log = self.log(job, attempt)
            if text in log:
                return log
            assert not over, f"ended before its log had {text!r}\n{self.story()}"
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
        listing = self._flows.tony("list", "--tag", tag, "--json")
        assert listing.returncode == 0, listing.stderr
        wanted = f"azkaban.job.attempt:{number}"
        (found,) = (
            one["app_id"]
            for one in json.loads(listing.stdout)["applications"]
            if wanted in one["tags"]
        )
        return str(found)

    def apps(self) -> List[str]:
        """The applications of all its jobs, by their tags; also of those that have ended."""
        return self._flows.apps_of({self.execid})

    def killed_hard(self) -> bool:
        """Whether the server had no patience with the job's program when it was cancelled."""
        return HARD in self.log()

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
            log = self._log(job)
            parts.append(f"--- {job}\n{log[-6000:]}")
            found = APPLICATION.search(log)
            if found:
                for words in (("-t", "am", "--stream", "both"), ("--stream", "both")):
                    done = self._flows.tony("logs", found.group(1), *words, "--tail", "30")
                    parts.append(done.stdout[-4000:] + done.stderr[-1000:])
        return "\n".join(parts)


class Flows:
    """Makes flows on one server, and asks TonY about what they did."""

    def __init__(
        self, server: Azkaban, folder: Path, cluster: Optional[Hadoop] = None, user: str = ""
    ) -> None:
        self.server = server
        self.client = server.client(user)
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

    def apps_of(self, execids: Set[int]) -> List[str]:
        """The applications of these executions, without asking any master."""
        wanted = {f"azkaban.flow.execid:{execid}" for execid in execids}
        if self.cluster is not None:
            return [
                str(app["id"])
                for app in self.cluster.applications()
                if wanted & set(str(app["applicationTags"]).split(","))
            ]
        found = []
        for path in (self.server.tony_home / "apps").glob("*/app.json"):
            try:
                tags = json.loads(path.read_text())["tags"]
            except (OSError, ValueError, KeyError):
                continue  # just now made, or removed
            if wanted & set(tags):
                found.append(path.parent.name)
        return found

    # ------------------------------------------------------------------ how they end

    def gone(self, app_id: str, seconds: float = WITHIN) -> Dict[str, Any]:
        """Waits until an application has ended; its status.

        A request to the master would renew the client's lease: so this reads a file.
        """

        def ended() -> bool:
            if self.cluster is not None:
                return self.cluster.application(app_id)["state"] in ("FINISHED", "FAILED", "KILLED")
            status = json.loads(
                (self.server.tony_home / "apps" / app_id / "status.json").read_text()
            )
            return status["state"] in ENDED

        until(ended, f"{app_id} has ended", seconds)
        return self.status(app_id)

    def cancelled(self, start: Callable[[], Run], ready: Callable[[Run], object]) -> str:
        """Cancels a flow of one job when it is ready; its application, which the job has ended.

        The job is one that ``LASTS``. On a machine with much to do the server may kill its
        program before that could ask for the application's end; that shows nothing, and then
        another flow is cancelled.
        """
        for _ in range(3):
            run = start()
            app_id = run.app_id()
            ready(run)
            run.cancel()
            run.ends("KILLED")
            hard = run.killed_hard()
            try:
                status = self.gone(app_id, WITHIN / 2 if hard else WITHIN)
            except AssertionError:
                if not hard:
                    raise AssertionError(f"{app_id} goes on\n{run.story()}") from None
                self.swept(run)
                continue
            assert status["state"] == "KILLED", status
            assert "cancelled" in status["diagnostics"], status
            return app_id
        raise AssertionError("three times the server killed the program before it could ask")

    def sweep(self, *runs: Run) -> str:
        """Ends what is left of executions that are over, as an administrator does; what it says."""
        ended = ",".join(str(run.execid) for run in runs)
        named = ("--server-name", self.server.web(NAME))
        done = self.tony("azkaban sweep", "--ended", ended, *named)
        return done.stdout + done.stderr

    def swept(self, *runs: Run) -> None:
        """Sweeps until nothing is left: a program that the server has lost sight of may only now
        submit, and the second word takes away the grace that tasks have after the first."""
        output = ""

        def gone() -> bool:
            nonlocal output
            if not self.left(*runs):
                return True
            output = self.sweep(*runs)
            return False

        try:
            until(gone, "what is left of the jobs is swept")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{output}\n{self._command_lines(*runs)}") from None

    def left(self, *runs: Run) -> Set[int]:
        """The processes of these executions, and of their applications wherever they run."""
        marks = [f"{run.folder}/" for run in runs] + self.apps_of({run.execid for run in runs})
        inside = [os.fsencode(mark) for mark in marks]
        words = {pid: _words_of(pid) for pid in supervisor.parents()}
        return {pid for pid, text in words.items() if any(mark in text for mark in inside)}

    def nothing_runs(self) -> None:
        """Waits until no process is left of any flow that was started here."""
        try:
            until(lambda: not self.left(*self._started), "nothing is left of the jobs")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._command_lines(*self._started)}") from None

    def _command_lines(self, *runs: Run) -> str:
        return "\n".join(f"{pid}: {command_of(pid)}" for pid in sorted(self.left(*runs)))

    def close(self) -> None:
        """Whatever the test has left is ended: the next one has the same server and cluster."""
        wrong = (AzkabanError, SandboxError, AssertionError, OSError, subprocess.SubprocessError)
        for run in self._started:
            try:
                if run.state() not in ENDED:
                    run.cancel()
                    run.ends("KILLED")
            except wrong:
                pass  # the server is gone, or the test has failed over this before
        try:
            self.nothing_left()
        except wrong:
            pass  # the same
        shutil.rmtree(self.folder, ignore_errors=True)

    def nothing_left(self) -> None:
        """By a sweep, or else by force."""
        try:
            # What was cancelled just now gets the time to end by itself.
            until(lambda: not self.left(*self._started), "the jobs end", LOG_WITHIN)
        except AssertionError:
            try:
                self.swept(*self._started)
            finally:
                supervisor.kill_all(lambda: self.left(*self._started))
