"""Run by the Python of Airflow 2.11: what its webserver answers, told as one line of JSON.

python pages.py URL...

With the plugins that Airflow finds, behind its own authorization: once for who may see the logs of
the DAG's tasks, and once for who is not logged in.
"""

from __future__ import annotations

import json
import sys
from typing import Any, List
from urllib.parse import urlsplit

from airflow import plugins_manager
from airflow.www import auth
from flask import Flask


class Manager:
    """An auth manager that lets its user see the logs of some DAGs, or knows nobody."""

    def __init__(self, *dags: str) -> None:
        self._dags = dags

    def is_authorized_dag(self, *, method: str, access_entity: Any, details: Any) -> bool:
        asked = (method, access_entity.name)
        return asked == ("GET", "TASK_LOGS") and details.id in self._dags

    def is_logged_in(self) -> bool:
        return bool(self._dags)

    def get_url_login(self, next_url: str) -> str:
        return "/login"


def main(urls: List[str]) -> None:
    plugins_manager.initialize_web_ui_plugins()
    app = Flask(__name__)
    for one in plugins_manager.flask_blueprints:
        app.register_blueprint(one["blueprint"])
    told = []
    with app.test_client() as client:
        for manager in (Manager("sync"), Manager()):
            auth.get_auth_manager = lambda manager=manager: manager
            for url in urls:
                answer = client.get(urlsplit(url).path)
                told.append([answer.status_code, answer.get_data(as_text=True)])
    print("TOLD " + json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
