"""A listener in Airflow's API server: ends the job of a deferred task that a person marks.

A trigger that runs ends the job itself. For a task that is marked before that, Airflow from 3.3 on
calls only the listeners of its API server: for each task that is marked ``failed`` or ``success``
in its pages or by REST, by itself or with its run. Without this listener such a job goes on for its
first lease.

The listener does not delay the request: a thread ends the job some seconds later, since mostly the
trigger has ended it by then. The listener reads at once which job that is: a new one that follows
is another. As for pages (:mod:`.history`), a job in an XCom counts only with the task's own tag.

Every process of Airflow imports this module, so functions import what only the API server needs.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from airflow.listeners import hookimpl

GRACE_S = 3.0  # for a trigger to end it
KILL_S = 20.0
KILLS = 4  # at once
THREADS = 200  # at once, most of which wait: a run may have thousands of tasks, a cluster hang
_kills = threading.BoundedSemaphore(KILLS)
_threads = threading.BoundedSemaphore(THREADS)
_log = logging.getLogger(__name__)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any) -> None:
    """Airflow's call for each task that has failed, by itself or marked by a person."""
    _on_marked(previous_state, task_instance)


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Airflow's call for each task that has succeeded, by itself or marked by a person."""
    _on_marked(previous_state, task_instance)


def _on_marked(previous_state: Any, ti: Any) -> None:
    # A task that ends by itself has a previous state; a deferred one still has its trigger.
    if previous_state is not None or getattr(ti, "trigger_id", None) is None:
        return
    from airflow.utils.session import create_session

    from tony_airflow.pages import history
    from tony_airflow.pages.api_server import xcoms
    from tony_core.files.location import is_app_id

    ti_key = history.TaskInstanceKey(ti.dag_id, ti.run_id, ti.task_id, ti.map_index)
    with create_session(scoped=False) as session:  # the request has its own
        xcom = xcoms(ti_key, session)
        app_id, named = xcom(history.APPLICATION_ID), xcom(history.CONNECTION)
    if not isinstance(app_id, str) or not is_app_id(app_id):
        return
    if not _threads.acquire(blocking=False):
        _warn(app_id, f"{THREADS} others are being ended")
        return
    thread = threading.Thread(
        target=_end, args=(ti_key, app_id, named), name="tony-mark", daemon=True
    )
    try:
        thread.start()
    except RuntimeError as error:  # this process may start no more
        _threads.release()
        _warn(app_id, str(error))


def _warn(app_id: str, why: str) -> None:
    _log.warning("%s, whose task was marked, ends by its lease: %s", app_id, why)


def _end(ti_key: Any, app_id: str, named: Any) -> None:
    try:
        time.sleep(GRACE_S)
        _kill(ti_key, app_id, named)
    finally:
        _threads.release()


def _kill(ti_key: Any, app_id: str, named: Any) -> None:
    from tony_airflow.hooks.tony import TonyHook
    from tony_airflow.pages.api_server import connections
    from tony_airflow.pages.history import site_for
    from tony_core.job.mask import mask_text

    with _kills:
        try:
            hook = TonyHook.of(site_for(named, connections(ti_key)))
            try:
                status = hook.status(app_id, own=True)
                if not status.state.ended and ti_key.tag in map(str.lower, status.tags):
                    hook.kill(app_id, "its Airflow task was marked", KILL_S)
            finally:
                hook.close()
        except Exception as error:
            _warn(app_id, mask_text(str(error) or type(error).__name__))
