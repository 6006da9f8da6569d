"""The pages in Airflow 3's API server, behind its own authorization.

A user who may see the logs of a DAG's tasks may see these pages; others get the answer of Airflow's
own API. See :mod:`.history` for what a request may name.
"""

from __future__ import annotations

from typing import Annotated, Any, Callable

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.xcom import XComModel
from fastapi import Depends, FastAPI, Path
from fastapi.responses import HTMLResponse

from tony_airflow.pages.history import Connections, TaskInstanceKey, plain_xcom
from tony_airflow.pages.html import render_page

app = FastAPI(title="TonY", openapi_url=None, docs_url=None, redoc_url=None)

_ALLOWED = [Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))]
_JOB = "/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/{map_index}/"
_MapIndex = Annotated[int, Path(ge=-1, le=2**31 - 1)]


def _ti_key(dag_id: str, run_id: str, task_id: str, map_index: _MapIndex) -> TaskInstanceKey:
    return TaskInstanceKey(dag_id, run_id, task_id, map_index)


_TiKey = Annotated[TaskInstanceKey, Depends(_ti_key)]


@app.get(_JOB, dependencies=_ALLOWED, response_class=HTMLResponse)
def job(ti_key: _TiKey, session: SessionDep) -> HTMLResponse:
    """The job of a task instance."""
    return _respond(ti_key, session)


@app.get(_JOB + "logs", dependencies=_ALLOWED, response_class=HTMLResponse)
def all_logs(ti_key: _TiKey, session: SessionDep) -> HTMLResponse:
    """The logs of all tasks of that job."""
    return _respond(ti_key, session, logs=True)


@app.get(_JOB + "logs/{task}", dependencies=_ALLOWED, response_class=HTMLResponse)
def logs(ti_key: _TiKey, task: str, session: SessionDep) -> HTMLResponse:
    """The logs of one task of that job."""
    return _respond(ti_key, session, task=task)


def _respond(ti_key: TaskInstanceKey, session: Any, **what: Any) -> HTMLResponse:
    page = render_page(ti_key, xcoms(ti_key, session), connections(ti_key), **what)
    return HTMLResponse(page.text, page.status, headers=dict(page.headers))


def xcoms(ti_key: TaskInstanceKey, session: Any) -> Callable[[str], Any]:
    """A function that reads an XCom of a task instance by its key."""

    def xcom(key: str) -> Any:
        found = session.scalars(ti_key.xcom_query(XComModel, key)).first()
        return None if found is None else plain_xcom(found.value)

    return xcom


def connections(ti_key: TaskInstanceKey) -> Connections:
    """A function that reads a connection, if the DAG's team may use it where there are teams."""
    team = DagModel.get_team_name(ti_key.dag_id) if hasattr(DagModel, "get_team_name") else None
    more = {"team_name": team} if team else {}
    return lambda conn_id: Connection.get_connection_from_secrets(conn_id, **more)
