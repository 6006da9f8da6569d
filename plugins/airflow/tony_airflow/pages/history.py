"""The job of a task instance, as history has it.

Airflow has checked that the reader may see the logs of the task instance; a page must show no more
than that. So **a request names a task instance and never a job**. The task's XComs name its job and
its connection, and an editor of the DAG may write XComs as well: a page shows the job only if it
carries the tag of this very task instance (:mod:`tony_airflow.tags`), which history has from the
job's submit. The connection has to be of the type ``tony``, and names all that a page reads;
nothing in a request or an XCom is an address or a path. The user for whom the connection acts is
the one that the task named, within what the connection allows its tasks.

A page reads history and logs: it asks no job's master, renews no lease and writes nothing.

A cluster may answer slowly or not at all, and a person waits for the page. So a page reads in a
thread of its own (:func:`read_within`); after :data:`PAGE_S` it shows what it has read by then, and
names the rest.
"""

from __future__ import annotations

import json
import threading
import time
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from tony_airflow.connection import CONN_TYPE, LOCAL, Site, site_of
from tony_airflow.tags import TaskTags
from tony_core.client.errors import ClientError
from tony_core.client.logs import STREAMS, LogFile
from tony_core.client.lookup import read_job_history, recorded_view
from tony_core.client.merge import end_tasks
from tony_core.client.tails import readable
from tony_core.client.workflow.connections import ClientPool
from tony_core.files.location import is_app_id
from tony_core.hadoop.identity import find_name_problem
from tony_core.history.reader import JobHistory
from tony_core.job.mask import KnownSecrets, mask_text
from tony_core.job.problems import JobError
from tony_core.schedulers.port import LogRef, SchedulerError
from tony_core.view import JobView

APPLICATION_ID, CONNECTION = "application_id", "tony_connection"
"""The XComs by which a task instance names its job."""

LINES = 1000  # of each log
BYTES = 1 << 20
ENDS = 8  # tasks whose last lines the list of all logs shows
END_LINES = 10
RUNS = 5  # containers of a task whose logs are shown, the last ones
PAGE_S = 8.0  # to read all of a page
READERS = 8  # pages that read at once; one whose cluster hangs counts until it answers
_readers = threading.BoundedSemaphore(READERS)

Connections = Callable[[str], Any]


class PageNotFound(LookupError):
    """There is nothing to show; the message says why."""


class TaskInstanceKey(NamedTuple):
    """A task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

    @property
    def tag(self) -> str:
        """The tag of each of its jobs."""
        return TaskTags(self.dag_id, self.run_id, self.task_id, self.map_index, 0).of_task

    def xcom_query(self, model: Any, key: str, **more: Any) -> Any:
        """The query for an XCom of the task instance, by Airflow's model of XComs."""
        return model.get_many(
            run_id=self.run_id,
            key=key,
            task_ids=self.task_id,
            dag_ids=self.dag_id,
            map_indexes=self.map_index,
            limit=1,
            **more,
        )


class Log(NamedTuple):
    """The end of one stream of one container of a task."""

    container: str
    stream: str
    lines: Tuple[str, ...] = ()
    problem: str = ""


def site_for(named: Any, connections: Connections) -> Site:
    """The site of a task instance's job, by the XCom that names it."""
    where = named if isinstance(named, dict) else {}
    conn_id, scheduler = where.get("connection"), where.get("scheduler")
    if not conn_id and scheduler == LOCAL:
        return Site()
    if not isinstance(conn_id, str) or not conn_id:
        raise PageNotFound("the task instance names no connection for its job")
    try:
        connection = connections(conn_id)
    except Exception:
        raise PageNotFound(f"there is no connection {conn_id} for this web server") from None
    if connection.conn_type != CONN_TYPE:
        raise PageNotFound(f"the connection {conn_id} is not of the type {CONN_TYPE}")
    site = site_of(connection)
    if scheduler == LOCAL:
        return site._replace(scheduler=LOCAL)
    user = where.get("proxy_user")
    if isinstance(user, str) and not find_name_problem(user):
        site = site.acting_for(user)
    return site


class RecordedJob:
    """One task instance's job in history; a context manager, which closes its connections."""

    def __init__(
        self, ti_key: TaskInstanceKey, xcom: Callable[[str], Any], connections: Connections
    ) -> None:
        self.ti_key = ti_key
        self._xcom = xcom
        self._connections = connections
        self._clients: Optional[ClientPool] = None
        self._deadline = time.monotonic() + PAGE_S
        self.record = JobHistory("")

    def __enter__(self) -> RecordedJob:
        """Find the job; PageNotFound where there is nothing to show."""
        app_id = self._xcom(APPLICATION_ID)
        if not isinstance(app_id, str) or not is_app_id(app_id):
            raise PageNotFound("this task instance has submitted no job (yet)")
        found: List[Optional[JobHistory]] = []
        problem = f"it was not read within {PAGE_S:g} s: the cluster is slow or does not answer"

        def read(clients: ClientPool, location: Optional[str]) -> None:
            nonlocal problem
            try:
                with clients.client() as client:
                    roots = (location, client.scheduler.history_root(None))
                    found.extend(read_job_history(root, app_id) for root in dict.fromkeys(roots))
            except _ERRORS as error:
                problem = _text_of(error)
            else:
                problem = ""

        try:
            site = site_for(self._xcom(CONNECTION), self._connections)
        except _ERRORS as error:
            raise PageNotFound(
                f"the history of {app_id} cannot be read: {_text_of(error)}"
            ) from None
        self._clients = clients = ClientPool(site.scheduler, site.env)
        read_within(self._deadline, lambda: read(clients, site.history_location))
        for record in list(found):
            if record is not None and self.ti_key.tag in _tags(record.job):
                self.record = record
                return self
        self.close()
        if problem:
            raise PageNotFound(f"the history of {app_id} cannot be read: {problem}")
        raise PageNotFound(
            f"no history of {app_id} with the tag of this task instance can be read from this"
            " web server: an embedded scheduler's is on the worker's machine, in its TONY_HOME"
        )

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._clients is not None:
            self._clients.close()

    @property
    def view(self) -> JobView:
        """The job as history last recorded it."""
        return end_tasks(recorded_view(self.record))

    def logs(self, task: str) -> List[Log]:
        """The ends of a task's logs, those of its last containers."""
        known = {one.task: one for one in self.view.tasks}
        if task not in known:
            raise PageNotFound(f"the job {self.view.app_id} has no such task")
        return self._read(known[task].log_refs()[-RUNS:], LINES)

    def last_lines(self) -> Dict[str, List[Log]]:
        """The last lines of some tasks' logs, by task; failed tasks come first."""
        tasks = sorted(self.view.tasks, key=lambda task: task.state != "failed")[:ENDS]
        refs = {task.task: task.log_refs()[-1:] for task in tasks}
        logs = iter(self._read([ref for found in refs.values() for ref in found], END_LINES))
        return {
            task: [next(logs) for _ in range(len(found) * len(STREAMS["both"]))]
            for task, found in refs.items()
        }

    def _read(self, refs: Sequence[LogRef], count: int) -> List[Log]:
        """The last lines of both streams of each container, or why they could not be read."""
        wanted = [(ref, name) for ref in refs for name in STREAMS["both"]]
        found: List[Log] = []
        if self._clients is not None:
            one_by_one = self._each(self._clients, wanted, count)
            read_within(self._deadline, lambda: found.extend(one_by_one))
        late = f"not read: the logs did not come within {PAGE_S:g} s"
        found = found[: len(wanted)]
        left = wanted[len(found) :]
        return [*found, *(Log(ref.container_id, name, problem=late) for ref, name in left)]

    def _each(
        self, clients: ClientPool, wanted: Iterable[Tuple[LogRef, str]], count: int
    ) -> Iterable[Log]:
        secrets = KnownSecrets(())
        with clients.client() as client:
            for ref, name in wanted:
                if time.monotonic() >= self._deadline:
                    return
                file = LogFile(client.scheduler, self.record.app_id, ref, name)
                try:
                    file.skip_to_last(count, BYTES)
                    lines = [readable(text, secrets) for text in (*file.lines(), *file.rest())]
                except _ERRORS as error:
                    yield Log(ref.container_id, name, problem=_text_of(error))
                    continue
                problem = mask_text(file.problem or "")
                yield Log(ref.container_id, name, tuple(lines[-count:]), problem)


def read_within(deadline: float, read: Callable[[], None]) -> None:
    """Run ``read`` in a thread, and return when it has ended or the time is over.

    A thread that hangs is left behind; it ends by the timeouts of its calls.
    """
    if not _readers.acquire(timeout=max(0.0, deadline - time.monotonic())):
        return

    def run() -> None:
        try:
            read()
        finally:
            _readers.release()

    thread = threading.Thread(target=run, name="tony-page", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # this process may start no more
        _readers.release()
        raise
    thread.join(max(0.0, deadline - time.monotonic()))


_ERRORS = (SchedulerError, ClientError, JobError, OSError)


def _tags(job: Mapping[str, Any]) -> Tuple[str, ...]:
    tags = job.get("tags")
    return tuple(str(tag).lower() for tag in tags) if isinstance(tags, list) else ()


def _text_of(error: Exception) -> str:
    return mask_text(str(error) or type(error).__name__)


def plain_xcom(stored: Any) -> Any:
    """An XCom from the database as plain data, without building any object.

    Airflow stores a text as JSON, or as it is when a task has pushed it.
    """
    if isinstance(stored, (str, bytes)):
        try:
            return json.loads(stored)
        except ValueError:
            return stored
    return stored
