"""The same pages in Airflow 2's webserver, behind its own authorization."""

from __future__ import annotations

from typing import Any

from airflow.auth.managers.models.resource_details import DagAccessEntity
from airflow.models.connection import Connection
from airflow.models.xcom import XCom
from airflow.utils.session import create_session
from airflow.www.auth import has_access_dag
from flask import Blueprint, Response  # type: ignore[import-not-found, unused-ignore]

from tony_airflow.pages.history import TaskInstanceKey, plain_xcom
from tony_airflow.pages.html import render_page

blueprint = Blueprint("tony", __name__, url_prefix="/tony")

_JOB = "/dags/<dag_id>/runs/<run_id>/tasks/<task_id>/<int(signed=True):map_index>/"
_allowed = has_access_dag("GET", DagAccessEntity.TASK_LOGS)


@blueprint.route(_JOB)
@_allowed
def job(dag_id: str, run_id: str, task_id: str, map_index: int) -> Response:
    """The job of a task instance."""
    return _respond(TaskInstanceKey(dag_id, run_id, task_id, map_index))


@blueprint.route(_JOB + "logs")
@_allowed
def all_logs(dag_id: str, run_id: str, task_id: str, map_index: int) -> Response:
    """The logs of all tasks of that job."""
    return _respond(TaskInstanceKey(dag_id, run_id, task_id, map_index), logs=True)


@blueprint.route(_JOB + "logs/<task>")
@_allowed
def logs(dag_id: str, run_id: str, task_id: str, map_index: int, task: str) -> Response:
    """The logs of one task of that job."""
    return _respond(TaskInstanceKey(dag_id, run_id, task_id, map_index), task=task)


def _respond(ti_key: TaskInstanceKey, **what: Any) -> Response:
    page = render_page(ti_key, lambda key: _xcom(ti_key, key), _connection, **what)
    return Response(page.text, page.status, dict(page.headers), mimetype="text/html")


def _xcom(ti_key: TaskInstanceKey, key: str) -> Any:
    with create_session() as session:
        found = ti_key.xcom_query(XCom, key, session=session).first()
        return None if found is None else plain_xcom(found.value)


def _connection(conn_id: str) -> Any:
    return Connection.get_connection_from_secrets(conn_id)
