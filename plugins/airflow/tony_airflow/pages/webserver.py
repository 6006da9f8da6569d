"""The same pages in Airflow 2's webserver, behind its own authorization."""

from __future__ import annotations

import os
from typing import Any, Callable

from airflow.auth.managers.models.resource_details import DagAccessEntity
from airflow.models.connection import Connection
from airflow.models.xcom import XCom
from airflow.utils.session import create_session
from airflow.www.auth import has_access_dag
from flask import Blueprint, Response  # type: ignore[import-not-found, unused-ignore]

from tony_airflow.pages import html
from tony_airflow.pages.history import Job, NoPage, Place, plain_xcom

blueprint = Blueprint("tony", __name__, url_prefix="/tony")

_JOB = "/dags/<dag_id>/runs/<run_id>/tasks/<task_id>/<int(signed=True):map_index>/"
_allowed = has_access_dag("GET", DagAccessEntity.TASK_LOGS)


@blueprint.route(_JOB)
@_allowed
def job(dag_id: str, run_id: str, task_id: str, map_index: int) -> Response:
    """The job of a task instance."""
    place = Place(dag_id, run_id, task_id, map_index)

    def page(found: Job, nonce: str) -> str:
        return html.job_page(place, found.view, found.past.events, nonce)

    return _answer(place, page)


@blueprint.route(_JOB + "logs")
@_allowed
def all_logs(dag_id: str, run_id: str, task_id: str, map_index: int) -> Response:
    """The logs of all tasks of that job."""

    def page(found: Job, nonce: str) -> str:
        return html.all_logs_page(found.view, found.ends(), nonce)

    return _answer(Place(dag_id, run_id, task_id, map_index), page)


@blueprint.route(_JOB + "logs/<task>")
@_allowed
def logs(dag_id: str, run_id: str, task_id: str, map_index: int, task: str) -> Response:
    """The logs of one task of that job."""

    def page(found: Job, nonce: str) -> str:
        return html.logs_page(found.view, task, found.logs(task), nonce)

    return _answer(Place(dag_id, run_id, task_id, map_index), page)


def _answer(place: Place, page: Callable[[Job, str], str]) -> Response:
    nonce = os.urandom(16).hex()
    status = 200
    try:
        with Job(place, lambda key: _xcom(place, key), _connection) as found:
            text = page(found, nonce)
    except NoPage as error:
        text, status = html.no_page(str(error), nonce), 404
    return Response(text, status, dict(html.headers(nonce)), mimetype="text/html")


def _xcom(place: Place, key: str) -> Any:
    with create_session() as session:
        found = XCom.get_many(
            run_id=place.run_id,
            key=key,
            task_ids=place.task_id,
            dag_ids=place.dag_id,
            map_indexes=place.map_index,
            limit=1,
            session=session,
        ).first()
        return None if found is None else plain_xcom(found.value)


def _connection(conn_id: str) -> Any:
    return Connection.get_connection_from_secrets(conn_id)
