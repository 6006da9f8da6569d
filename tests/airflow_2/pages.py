"""Print, as one line of JSON, what the webserver of Airflow 2.11 answers; its Python runs this.

python pages.py URL...

The webserver has the plugins that Airflow finds, behind its own authorization. Each page is read by
a user who may see the logs of the DAG's tasks, and by one who is not logged in.
"""

from __future__ import annotations

import json
import sys
from typing import Any, List
from urllib.parse import urlsplit

from airflow import plugins_manager
from airflow.www import auth
from flask import Flask

from tony_airflow.pages import history

RESULT = "RESULT "
PAGE_S = 120.0  # as long as a busy machine needs for the imports of the first page


class Manager:
    """An auth manager that lets its user see the logs of some DAGs, or knows no user."""

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
    history.PAGE_S = PAGE_S
    plugins_manager.initialize_web_ui_plugins()
    app = Flask(__name__)
    for plugin in plugins_manager.flask_blueprints:
        app.register_blueprint(plugin["blueprint"])
    answers = []
    with app.test_client() as client:
        for manager in (Manager("sync"), Manager()):
            auth.get_auth_manager = lambda manager=manager: manager
            for url in urls:
                answer = client.get(urlsplit(url).path)
                answers.append([answer.status_code, answer.get_data(as_text=True)])
    print(RESULT + json.dumps(answers), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
