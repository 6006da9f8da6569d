"""A job's run at MLflow, kept while the job runs: the shell of the machine beside it.

The machine decides (:mod:`tony_core.master.tracking.run_machine`), a thread sends
(:mod:`tony_core.master.tracking.http_sender`), and this connects both with the master, on its
reactor.

Programs get the run's id in their environment, so the first session waits for it, at most
:data:`BEGIN_S`, and not at all once the server has failed to answer. The end waits for what is
still to be sent, at most :data:`END_S`.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from tony_core.job.mask import mask_settings
from tony_core.job.spec import Job
from tony_core.master.publish import Publisher
from tony_core.master.session.commands import Finish
from tony_core.master.tracking import run_machine as m
from tony_core.master.tracking.http_sender import HttpSender
from tony_core.master.tracking.mlflow_api import LONGEST_PARAM, Answer, Names, plain
from tony_core.master.tracking.port import Tracker
from tony_core.protocol.channel import container_key
from tony_core.protocol.messages import Reported
from tony_core.protocol.reactor import Reactor, Timer
from tony_core.schedulers.port import AppState

BEGIN_S = 5.0
END_S = 10.0
KILLED_END_S = 2.0  # who kills a job waits some seconds longer than its programs may take
MOST_PARAMS = 500
LONGEST_PAUSE_S = 3600.0

Note = Callable[[str, bool], object]


class MlflowTracker(Tracker):
    """The run of one job."""

    def __init__(
        self,
        reactor: Reactor,
        job: Job,
        secret: bytes,
        publisher: Publisher,
        known: Mapping[str, str],
        save: Callable[[Mapping[str, str]], object],
        note: Note,
    ) -> None:
        """``known`` is what ``save`` kept in a previous attempt; ``note`` adds to the story."""
        self._reactor = reactor
        self._job = job
        self._secret = secret
        self._publisher = publisher
        self._known = m.KnownRun(known.get("run_id", ""), known.get("experiment_id", ""))
        self._save = save
        self._note = note
        self._machine: Optional[m.RunMachine] = None  # once the user and queue are known
        self._sender = HttpSender(job.mlflow, self._answered)
        self._timer: Optional[Timer] = None
        self._begin: Optional[Tuple[Timer, Callable[[], None]]] = None
        self._end: Optional[Tuple[Timer, Callable[[], None]]] = None
        self._session = -1
        self._closed = False

    def begin(self, then: Callable[[], None]) -> None:
        """Make the run, or go on with it; ``then`` is called once it is known, or may not be."""
        self._machine = m.RunMachine(find_facts(self._job, self._secret, self._publisher))
        self._begin = (self._reactor.call_later(BEGIN_S, self._begin_over), then)
        self._feed(m.Begin(self._known, is_first=self._publisher.info.attempt == 1))

    def environment(self) -> Dict[str, str]:
        """The variables by which a program's own calls of MLflow go to the same run."""
        found = {"MLFLOW_TRACKING_URI": self._job.mlflow.tracking_uri}
        run = self._machine.run if self._machine is not None else m.KnownRun()
        if run.experiment_id:
            found["MLFLOW_EXPERIMENT_ID"] = run.experiment_id
        if run.run_id:
            found["MLFLOW_RUN_ID"] = run.run_id
        return found

    def started(self, session: int) -> None:
        """Programs of a session start."""
        if session != self._session:
            self._session = session
            self._feed(m.TagsChanged({"tony/session": str(session)}))

    def reported(self, task: str, message: Reported) -> None:
        """A program has reported: the chief's metrics by their names, others' below the task's."""
        if not task or not message.metrics:
            return
        step = message.step
        if step is None:
            step = int(self._publisher.series.latest(task).get("step", 0))
        chief = self._job.chief
        prefix = ""
        if chief is None or task != f"{chief[0]}:{chief[1]}":
            prefix = task.replace(":", "-") + "/"
        values = {prefix + name: value for name, value in message.metrics.items()}
        at = self._publisher.wall(self._reactor.now())
        self._feed(m.MetricsReported(values, step, at))

    def finish(self, command: Finish, then: Callable[[], None]) -> None:
        """The job has ended: send what waits and the end, then call ``then``; in bounded time."""
        if self._machine is None:  # ended before it began
            then()
            return
        if self._begin is not None:
            self._begin[0].cancel()
            self._begin = None
        allowed_s = KILLED_END_S if command.state is AppState.KILLED else END_S
        self._end = (self._reactor.call_later(allowed_s, self._end_late), then)
        view = self._publisher.view()[0]
        tags = {"tony/state": command.state.value}
        if command.diagnostics:
            tags["tony/diagnostics"] = self._publisher.clean(command.diagnostics)
        tags.update(result_tags(view.result))
        at = self._publisher.wall(self._reactor.now())
        self._feed(m.JobEnded(command.state.value, at, tags))
        if self._machine.phase is m.Phase.OVER:
            self._end_over()

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        for timer in (self._timer, *(each[0] for each in (self._begin, self._end) if each)):
            if timer is not None:
                timer.cancel()
        self._sender.close()

    # ------------------------------------------------------------------ the machine

    def _feed(self, event: m.Event) -> None:
        if self._closed or self._machine is None:
            return
        for command in self._machine.handle(event, self._reactor.now()):
            if isinstance(command, m.Send):
                self._sender.send(*command)
            elif isinstance(command, m.RunKnown):
                self._know(command.run)
            elif isinstance(command, m.Note):
                where = self._job.mlflow.tracking_uri
                self._note(f"MLflow at {where}: {command.text}", command.is_warning)
            elif isinstance(command, m.Unavailable):
                self._begin_over()
            else:
                self._end_over()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = None if self._machine is None else self._machine.next_deadline()
        if due is not None and not self._closed:
            pause = min(LONGEST_PAUSE_S, max(0.0, due - self._reactor.now()))
            self._timer = self._reactor.call_later(pause, self._feed, m.Tick())

    def _answered(self, number: int, answer: Answer) -> None:
        self._reactor.call_soon_threadsafe(self._feed, m.Answered(number, answer))

    def _know(self, run: m.KnownRun) -> None:
        uri = self._job.mlflow.tracking_uri.rstrip("/")
        url = f"{uri}/#/experiments/{run.experiment_id}/runs/{run.run_id}"
        self._publisher.link("mlflow", url)
        if run != self._known:
            self._known = run
            self._save(run._asdict())
            self._note(f"the job is tracked as {url}", False)
        self._begin_over()

    def _begin_over(self) -> None:
        if self._begin is not None:
            timer, then = self._begin
            self._begin = None
            timer.cancel()
            self._reactor.call_later(0, then)

    def _end_late(self) -> None:
        self._note("MLflow did not take what was left in time: its run lacks the end", True)
        self._end_over()

    def _end_over(self) -> None:
        if self._end is not None:
            timer, then = self._end
            self._end = None
            timer.cancel()
            self.close()
            then()


def run_key(secret: bytes, app_id: str) -> str:
    """What only this job's masters know of its run before it is there; it tells no other key."""
    return container_key(container_key(secret, "mlflow"), app_id).hex()


def find_facts(job: Job, secret: bytes, publisher: Publisher) -> m.RunFacts:
    """What a job's run is made of: masked, since others read it."""
    info, clean = publisher.info, publisher.clean
    chief = job.chief
    command = job.role(chief[0]).command if chief else job.roles[0].command
    tags: Dict[str, str] = {
        "tony/user": info.user, "tony/queue": info.queue, "tony/framework": job.framework,
        "tony/scheduler": job.scheduler, "mlflow.user": info.user, "mlflow.source.type": "JOB",
        "mlflow.source.name": clean(command),
    }  # fmt: skip
    for name in ("portal", "page"):
        if info.links.get(name):
            tags[f"tony/link/{name}"] = info.links[name]
    for name, url in job.links:
        tags[f"tony/link/{name}"] = clean(url)
    for tag in job.tags:
        name, colon, value = tag.partition(":")
        tags[f"tony/tag/{name}"] = clean(value if colon else "true")
    for name, folder in (
        ("tony/checkpoint_dir", job.program.checkpoint_dir),
        ("tony/tensorboard_log_dir", job.program.tensorboard_log_dir),
    ):
        if folder:
            tags[name] = clean(folder)
    return m.RunFacts(
        app_id=info.app_id,
        key=run_key(secret, info.app_id),
        experiment=job.mlflow.experiment,
        name=job.mlflow.run_name or job.name,
        user=info.user,
        start_ms=int(info.submitted * 1000),
        tags=tuple(tags.items())[:90],
        params=tuple(find_params(job, command, clean)),
    )


def find_params(job: Job, command: str, clean: Callable[[Any], Any]) -> List[Tuple[str, str]]:
    """The keys that were set, and the arguments of the chief's command, as ``arg.NAME``.

    Not by their bare names: MLflow refuses a second value of a parameter, so the program's own
    ``log_param`` would fail.
    """
    given = [item for item in mask_settings(job.settings) if item.source != "default"]
    pairs = [(item.key, item.value) for item in given]
    pairs += [(f"arg.{name}", value) for name, value in read_arguments(clean(command))]
    names = Names(MOST_PARAMS)
    found: Dict[str, str] = {}
    for name, value in pairs:
        key = names.find(name)
        if key is not None:
            found.setdefault(key, plain(clean(value), LONGEST_PARAM))
    return list(found.items())


def read_arguments(command: str) -> List[Tuple[str, str]]:
    """``--name value`` and ``--name=value`` of a command; an option alone is ``true``."""
    words = command.split()
    found: List[Tuple[str, str]] = []
    for at, word in enumerate(words):
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") or not name:
            continue
        following = words[at + 1] if at + 1 < len(words) else ""
        if not equals:
            value = following if following and not following.startswith("--") else "true"
        found.append((name, value.strip("\"'")))
    return found


def result_tags(result: Any) -> Dict[str, str]:
    """What the chief gave to ``tony.result()``, and its model's path where it names one."""
    if result is None:
        return {}
    found = {"tony/result": json.dumps(result)}
    model = result.get("model") if isinstance(result, dict) else None
    if isinstance(model, str):
        found["tony/model"] = model
    return found
