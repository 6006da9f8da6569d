"""Airflow's REST interface, as far as the tests ask it."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import requests

ANSWER_S = 60.0
"""Of a server on a busy machine."""

AGAIN_S = 30.0
"""Its database is a file, and sometimes locked: what is refused for that is asked again so long."""

WITHIN = 180.0
"""What a state may take to come."""

ENDED = ("success", "failed", "upstream_failed", "skipped", "removed")

Place = Tuple[str, str, str]
"""DAG, run, task."""


class Rest:
    """One server; each method is one question or one order."""

    def __init__(self, url: str, user: Optional[Tuple[str, str]] = None) -> None:
        """Without a user (name, password) for a server where everybody is an admin."""
        self._url = url
        self._user = user
        self._session = requests.Session()
        self._session.trust_env = False

    def close(self) -> None:
        self._session.close()

    def call(self, method: str, path: str, **more: Any) -> Any:
        """The JSON of an answer; a refusal is an error with its whole text."""
        self._log_in()
        url = f"{self._url}/api/v2/{path}"
        answer = self._session.request(method, url, timeout=ANSWER_S, **more)
        deadline = time.monotonic() + AGAIN_S
        # An answer like this has changed nothing: each is one transaction.
        while answer.status_code >= 500 and time.monotonic() < deadline:
            time.sleep(1.0)
            answer = self._session.request(method, url, timeout=ANSWER_S, **more)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:4000]}"
        return answer.json() if answer.content else None

    def _log_in(self) -> None:
        if "Authorization" in self._session.headers:
            return
        url = f"{self._url}/auth/token"
        if self._user is None:
            answer = self._session.get(url, timeout=ANSWER_S)
        else:
            login = {"username": self._user[0], "password": self._user[1]}
            answer = self._session.post(url, json=login, timeout=ANSWER_S)
        assert answer.ok, answer.text
        self._session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def open(self, url: str) -> requests.Response:
        """Any page, as who is logged in."""
        self._log_in()
        return self._session.get(url, timeout=ANSWER_S)

    def get(self, path: str, **params: Any) -> Any:
        return self.call("GET", path, params=params)

    def connect(self, conn_id: str, conn_type: str, **more: Any) -> None:
        """A connection, made."""
        body = {"connection_id": conn_id, "conn_type": conn_type, **more}
        self.call("POST", "connections", json=body)

    # ------------------------------------------------------------------ runs and tasks

    def trigger(self, dag_id: str, run_id: str, conf: Mapping[str, Any] | None = None) -> None:
        """A run of a DAG, now."""
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf or {})}
        self.call("POST", f"dags/{dag_id}/dagRuns", json=body)

    def run(self, dag_id: str, run_id: str) -> Dict[str, Any]:
        return dict(self.get(f"dags/{dag_id}/dagRuns/{run_id}"))

    def task(self, place: Place) -> Dict[str, Any]:
        return dict(self.get(_path(place)))

    def mark(self, place: Place, state: str) -> None:
        """As a person does in the UI: ``success``, ``failed``, ``skipped``."""
        self.call("PATCH", _path(place), json={"new_state": state})

    def mark_run(self, place: Place, state: str) -> None:
        """The whole run, as a person does in the UI."""
        dag_id, run_id, _ = place
        self.call("PATCH", f"dags/{dag_id}/dagRuns/{run_id}", json={"state": state})

    def delete(self, place: Place) -> None:
        """The task of a run, as a person does in the UI."""
        self.call("DELETE", _path(place))

    def delete_run(self, place: Place) -> None:
        """The whole run, which must have ended."""
        dag_id, run_id, _ = place
        self.call("DELETE", f"dags/{dag_id}/dagRuns/{run_id}")

    def clear(self, place: Place, downstream: bool = False) -> None:
        """As a person does in the UI, whatever its state; with the tasks after it, if wanted."""
        dag_id, run_id, task_id = place
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": [task_id],
            "include_downstream": downstream,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.call("POST", f"dags/{dag_id}/clearTaskInstances", json=body)

    def wait(self, place: Place, *states: str, tries: int = 0, within: float = WITHIN) -> Any:
        """The task once it is in one of the states (in its try number ``tries``, if given)."""
        return wait_for(
            lambda: self.task(place),
            lambda one: one["state"] in states and (not tries or one["try_number"] == tries),
            lambda one: (
                f"{'/'.join(place)} is {one['state']} (try {one['try_number']}), "
                f"not {' or '.join(states)}\n{self.log(place, one['try_number'])}"
            ),
            lambda one: one["state"] in ENDED and one["state"] not in states,
            within,
        )

    def log(self, place: Place, number: int = 1) -> str:
        """A try's log, as the UI shows it."""
        try:
            answer = self.call(
                "GET",
                f"{_path(place)}/logs/{max(1, number)}",
                params={"full_content": "true"},
                headers={"Accept": "application/json"},
            )
        except AssertionError as error:
            return str(error)
        lines: List[str] = []
        for one in answer["content"]:
            if isinstance(one, str):
                lines.append(one)
            else:
                lines.append(f"{one.get('timestamp')} {one.get('level', '')}: {one['event']}")
                lines += [f"  {one[name]}" for name in ("error_detail",) if one.get(name)]
        return "\n".join(lines)

    def xcom(self, place: Place, key: str = "return_value") -> Any:
        """Its value, None when there is none."""
        try:
            found = self.get(f"{_path(place)}/xcomEntries/{key}", deserialize="true")
        except AssertionError as error:
            if " 404 " in str(error):
                return None
            raise
        return found["value"]

    def links(self, place: Place) -> Dict[str, Optional[str]]:
        """The buttons of the task's page, by name."""
        return dict(self.get(f"{_path(place)}/links")["extra_links"])


def wait_for(
    look: Callable[[], Any],
    good: Callable[[Any], bool],
    words: Callable[[Any], str],
    hopeless: Callable[[Any], bool] = lambda _: False,
    within: float = WITHIN,
) -> Any:
    """What is seen once it is good."""
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if good(seen):
            return seen
        if hopeless(seen) or time.monotonic() >= deadline:
            raise AssertionError(words(seen))
        time.sleep(0.2)


def _path(place: Place) -> str:
    dag_id, run_id, task_id = place
    return f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
