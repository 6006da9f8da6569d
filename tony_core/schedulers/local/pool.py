"""The master's side of the embedded scheduler.

Theory of operation
===================

One thread does everything. Calls of the master are put into its queue and return at once;
the thread makes them in order, sleeps in ``poll`` over the shims' pidfds, their "started"
pipes and a wake-up pipe, and calls the sink. So no state is shared and no event can overtake
another. Only :meth:`LocalPool.finish` waits for the thread: when it returns nothing of the
job's containers is left and the status is written.

While an ask is not granted, the thread polls the ledger: at once when the file changed, and now
and then for owners that died.

Each container's end is reported once: it is written down (``ended.json``) before, and a next master
reports those that are not (:meth:`LocalPool.start` of a later attempt).
"""

from __future__ import annotations

import json
import os
import queue
import select
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from tony_core.exit_causes import ExitCause
from tony_core.job.spec import Resources
from tony_core.schedulers import container_pool, port
from tony_core.schedulers.local import attempts, capacity, finalize, home, processes
from tony_core.schedulers.local.applications import Application, read_status, write_status
from tony_core.schedulers.local.container import RunningContainer, RuntimeCommand
from tony_core.schedulers.local.container_requests import ContainerRequests
from tony_core.schedulers.local.home import AppFolder
from tony_core.schedulers.local.processes import ProcessIdentity

SETTLE_S = 0.2
MASTER_LOST_S = 30.0
POLL_S = 0.05  # for what only polling shows: a changed ledger, a shim without a pidfd
FINISH_S = 15.0  # for all containers to end


class LocalPool(container_pool.ContainerPool):
    """The containers of one application on this machine."""

    def __init__(self, folder: AppFolder, app: Application, attempt: int, lock_fd: int) -> None:
        self._folder = folder
        self._app = app
        self._attempt = attempt
        self._lock_fd = lock_fd
        self._node = processes.host()
        self._runtime = RuntimeCommand(app.python, app.runtime)
        self._requests = ContainerRequests(folder, app, attempt, self._emit)
        self._running: Dict[str, RunningContainer] = {}
        self._sink: Callable[[container_pool.PoolEvent], None] = lambda event: None
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        self._thread: Optional[threading.Thread] = None
        self._closed = False
        self._waking = threading.Lock()  # between a wake-up and the pipe's closing
        self._finished: Optional[threading.Event] = None
        self._registered = threading.Event()

    # ------------------------------------------------------------------ the port

    def start(
        self, sink: Callable[[container_pool.PoolEvent], None], page_url: str
    ) -> container_pool.PoolInfo:
        self._sink = sink
        app = self._app
        status = read_status(self._folder, app)
        write_status(
            self._folder,
            status._replace(
                state=port.AppState.RUNNING,
                started=status.started or app.now(),
                attempt=self._attempt,
                page_url=page_url,
                tracking_url=page_url,
            ),
        )
        if self._attempt > 1:
            self._call(self._take_over)
        self._thread = threading.Thread(target=self._run, name="local-pool", daemon=True)
        self._thread.start()
        info = container_pool.PoolInfo(
            app_id=app.app_id,
            attempt=self._attempt,
            user=app.user,
            queue=app.queue,
            max_resources=Resources(
                memory_mb=self._requests.capacity_for(gpus=False).memory_mb,
                vcores=app.local.vcores or os.cpu_count() or 1,
                gpus=app.local.gpus or capacity.gpu_count(),
            ),
            master_lost_s=MASTER_LOST_S,
            settle_s=SETTLE_S,
            can_restart_master=self._attempt < app.max_attempts,
        )
        self._registered.set()
        return info

    def request(self, requests: Sequence[container_pool.ContainerRequest], gang: bool) -> None:
        self._call(lambda: self._requests.request(tuple(requests), gang))

    def release(self, container_id: str) -> None:
        self._call(lambda: self._release(container_id))

    def launch(self, container: container_pool.Container, launch: container_pool.Launch) -> None:
        self._call(lambda: self._launch(container, launch))

    def stop(self, container_id: str) -> None:
        self._call(lambda: self._stop(container_id))

    def report(self, progress: float, tracking_url: str, trouble: str = "") -> None:
        status = read_status(self._folder, self._app)
        url = tracking_url or status.tracking_url
        changed = status._replace(progress=progress, tracking_url=url, trouble=trouble)
        if changed == status or status.state.ended:
            return
        try:
            write_status(self._folder, changed)
        except OSError as error:
            if not home.is_full(error):
                raise  # else the next change writes it

    def finish(self, state: port.AppState, diagnostics: str, tracking_url: str = "") -> None:
        try:
            self._end_containers()
        except (
            port.SchedulerError
        ) as error:  # the job has ended all the same, with this in its diagnostics
            diagnostics = f"{diagnostics}\n{error}".strip()
        self._requests.remove_app()
        finalize.remove_leftovers(self._folder)
        status = read_status(self._folder, self._app)
        if status.state.ended:
            return
        write_status(
            self._folder,
            status._replace(
                state=state,
                diagnostics=diagnostics,
                finished=self._app.now(),
                progress=1.0 if state is port.AppState.SUCCEEDED else status.progress,
                page_url=None,
                tracking_url=tracking_url or None,
            ),
        )

    def close(self) -> None:
        if self._closed:
            return
        with self._waking:
            self._closed = True
            os.write(self._wake_w, b"1")
        if self._thread is None:
            self._close_files()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    # ------------------------------------------------------------------ the thread

    def _call(self, what: Callable[[], None]) -> None:
        self._calls.put(what)
        self._wake()

    def _wake(self) -> None:
        with self._waking:
            if not self._closed:
                try:
                    os.write(self._wake_w, b"1")
                except BlockingIOError:
                    pass  # it is being woken already

    def _run(self) -> None:
        self._registered.wait()
        try:
            while not self._closed:
                self._run_once()
        except Exception as error:
            # Nothing works without this thread: the master ends the job.
            self._emit(
                container_pool.ShutdownRequested(f"the embedded scheduler failed: {error}", False)
            )
            raise
        finally:
            self._close_files()

    def _run_once(self) -> None:
        while not self._closed:
            try:
                what = self._calls.get_nowait()
            except queue.Empty:
                break
            what()
        if not self._closed:
            self._requests.poll()
        if self._finished is not None and not self._running:
            self._finished.set()
        if not self._closed:
            self._check_containers(self._wait())

    def _close_files(self) -> None:
        """Close the files, after their last use."""
        with self._waking:
            self._closed = True
        for running in self._running.values():
            running.close()
        for handle in (self._wake_r, self._wake_w, self._lock_fd):
            os.close(handle)

    def _wait(self) -> Dict[int, int]:
        """Wait until something is to be done; returns what ``poll`` reported."""
        poller = select.poll()
        poller.register(self._wake_r, select.POLLIN)
        blind = False
        timeout: Optional[float] = None
        now = time.monotonic()
        for running in self._running.values():
            if running.pidfd is None:
                blind = True
            else:
                poller.register(running.pidfd, select.POLLIN)
            if running.started_fd is not None:
                poller.register(running.started_fd, select.POLLIN)
            if running.force_at is not None:
                left = max(0.0, running.force_at - now)
                timeout = left if timeout is None else min(timeout, left)
        if blind or self._requests.is_waiting:
            timeout = POLL_S if timeout is None else min(timeout, POLL_S)
        ready = dict(poller.poll(None if timeout is None else timeout * 1000 + 1))
        try:
            os.read(self._wake_r, 4096)
        except BlockingIOError:
            pass
        return ready

    def _emit(self, event: container_pool.PoolEvent) -> None:
        if not self._closed:
            self._sink(event)

    # ------------------------------------------------------------------ containers

    def _release(self, container_id: str) -> None:
        if not self._requests.release(container_id):
            self._stop(container_id)

    def _launch(self, container: container_pool.Container, launch: container_pool.Launch) -> None:
        if self._finished is not None:
            return  # the job has ended meanwhile
        if not self._requests.take_granted(container.id):
            if container.id not in self._running and not self._was_launched(container.id):
                self._emit(
                    container_pool.Completed(
                        container.id, 127, ExitCause.LAUNCH, "it was never granted"
                    )
                )
            return
        try:
            env = self._environment(container, launch)
            running = RunningContainer.launch(
                self._folder,
                container,
                launch,
                env,
                self._runtime,
                self._app.archives,
                self._app.images,
            )
        except OSError as error:
            self._requests.free([container.id])
            home.write_json(self._folder.container(container.id).ended, {"at": time.time()})
            words = f"the container could not be started: {error}"
            self._emit(container_pool.Completed(container.id, 127, ExitCause.LAUNCH, words))
            return
        self._running[container.id] = running
        if running.shim is not None:
            self._requests.reserve([(container, running.shim)])

    def _was_launched(self, container_id: str) -> bool:
        return os.path.exists(self._folder.container(container_id).launch)

    def _environment(
        self, container: container_pool.Container, launch: container_pool.Launch
    ) -> Dict[str, str]:
        folder = self._folder.container(container.id)
        successor = self._runtime.argv(
            "local-successor", "--app-dir", self._folder.path, "--container", container.id
        )
        env = {**self._app.environment, **launch.env}
        env.update(
            TONY_HOME=self._folder.home.root,
            TONY_APP_ID=self._app.app_id,
            TONY_CONTAINER_ID=container.id,
            TONY_NODE=self._node,
            TONY_LOG_DIR=folder.logs,
            TONY_SECRET_FILE=folder.secret,
            TONY_MASTER_FILE=self._folder.master_file,
            TONY_SUCCESSOR=json.dumps(successor),
            TONY_SHIM="1",
        )
        if container.gpu_ids or capacity.gpu_count():
            env["CUDA_VISIBLE_DEVICES"] = ",".join(container.gpu_ids)
        return env

    def _stop(self, container_id: str) -> None:
        running = self._running.get(container_id)
        if running is not None:
            running.stop()
        else:
            self._requests.release(container_id)

    def _check_containers(self, ready: Mapping[int, int]) -> None:
        now = time.monotonic()
        ended: List[RunningContainer] = []
        for running in self._running.values():
            if running.started_fd in ready and running.started():
                self._emit(container_pool.Started(running.container.id))
            if (running.pidfd is None or running.pidfd in ready) and not running.alive():
                ended.append(running)
            elif running.force_at is not None and now >= running.force_at:
                running.force()
        if ended:
            self._report_ends(ended)

    def _report_ends(self, ended: List[RunningContainer]) -> None:
        ends = [(running, running.collect_end()) for running in ended]
        self._requests.free([running.container.id for running in ended])
        for running, event in ends:
            del self._running[running.container.id]
            if self._closed:
                return  # a next master reports it
            running.record_end()
            self._emit(event)

    def _take_over(self) -> None:
        """Report what a previous attempt launched, and then the ends that it did not report."""
        for container_id in self._folder.container_ids():
            running = RunningContainer.find(self._folder, container_id)
            if running is not None:
                self._running[container_id] = running
        alive = [item for item in self._running.values() if item.alive()]
        self._requests.reserve([(item.container, item.shim) for item in alive if item.shim])
        self._emit(
            container_pool.PreviousContainers(
                tuple(item.container for item in self._running.values())
            )
        )
        self._check_containers({})

    def _end_containers(self) -> None:
        """Withdraw all asks and end all containers; returns when nothing is left."""
        if self._thread is threading.current_thread():
            raise RuntimeError("finish() cannot be called from the sink")
        finished = threading.Event()

        def begin() -> None:
            self._requests.withdraw()
            for running in self._running.values():
                running.stop()
            self._finished = finished

        if self._thread is not None:
            self._call(begin)
            end = time.monotonic() + FINISH_S
            while not finished.wait(0.2) and self._thread.is_alive() and time.monotonic() < end:
                pass
        # Whatever happened to the thread, nothing is left.
        finalize.end_containers(self._folder)


def open_master(args: Any) -> Tuple[container_pool.MasterContext, LocalPool]:
    """The pool of the master that was started with ``--app-dir --attempt --lock-fd``."""
    folder = AppFolder(args.app_dir)
    app = Application.read(folder)
    if app is None:
        raise port.SchedulerError(f"{folder.app} is missing or damaged")
    lock_fd, attempt = int(args.lock_fd), int(args.attempt)
    os.set_inheritable(lock_fd, False)
    attempts.write(lock_fd, attempt, ProcessIdentity.mine())
    try:
        with open(folder.secret, "rb") as stream:
            secret = stream.read()
    except FileNotFoundError:
        raise port.SchedulerError(f"{folder.secret} is gone; the job folder was removed") from None
    home.make_folder(folder.master)
    context = container_pool.MasterContext(
        app_id=app.app_id,
        attempt=attempt,
        job_dir=folder.job,
        work_dir=folder.master,
        state_dir=folder.path,
        history_dir=os.path.join(folder.home.history, app.app_id),
        secret=secret,
        python=app.python,
        submitted=app.submitted,
        clock_offset=app.clock_offset,
        kill_file=folder.kill,
        store_root=folder.home.root,
    )
    return context, LocalPool(folder, app, attempt, lock_fd)
