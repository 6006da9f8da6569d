"""The buttons of a task, through REST and in a real browser: they lead to pages that answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List
from urllib.parse import urljoin

import pytest

from tests.browser import Browser
from tests.cluster.airflow import dags
from tests.cluster.airflow.rest import wait_for
from tests.cluster.airflow.standing import Airflow
from tests.cluster.airflow.training import Training
from tests.cluster.hadoop.cluster import Hadoop

# A browser, a whole Airflow and a cluster at once: too much for two cores beside other tests.
pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]

DAGS = {"shown.py": dags.SHOWN}

SHOWS = {
    "TensorBoard": "<tb-webapp",
    "Task logs": "worker:0",
    "YARN application": "application_",
    "Log of worker:0": "Total file length",
}
"""Of each button what is on its page."""

HREFS = """
Object.fromEntries([...document.querySelectorAll("a")].map(a => [a.textContent.trim(), a.href]))
"""


def buttons(airflow: Airflow, browser: Browser, one: Training) -> Dict[str, str]:
    """Where those on the task's Details lead, as the page has them."""
    dag_id, run_id, task_id = one.place
    url = f"{airflow.url}/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/details"
    tab = browser.open(url)

    def look() -> Dict[str, str]:
        answer = browser.call("Runtime.evaluate", tab, expression=HREFS, returnByValue=True)
        value = answer["result"].get("value")
        return dict(value) if isinstance(value, dict) else {}

    return dict(
        wait_for(
            look,
            lambda seen: all(seen.get(name) for name in SHOWS),
            lambda seen: f"the page's links: {seen}\n{browser.complaints}\n{one.story()}",
        )
    )


def links(one: Training, *names: str) -> Dict[str, Any]:
    """As REST tells them, once all of them are there."""
    return dict(
        wait_for(
            lambda: one.rest.links(one.place),
            lambda seen: all(seen.get(name) for name in names),
            lambda seen: f"the links: {seen}\n{one.story()}",
        )
    )


def test_the_buttons_lead_somewhere(
    airflow: Airflow,
    cluster: Hadoop,
    training: Callable[..., Training],
    environment: Callable[[str], Path],
    browser: Browser,
) -> None:
    folders = {
        "bin": str(environment("mpi") / "bin"),
        "events": f"hdfs:///user/{cluster.user}/events",
    }
    found: List[Training] = [training(name, **folders) for name in ("shown", "shown_deferred")]
    for one in found:
        app_id = one.trains()
        before = links(one, *SHOWS)
        shown = buttons(airflow, browser, one)
        assert {name: shown[name] for name in SHOWS} == {name: before[name] for name in SHOWS}
        for name, text in SHOWS.items():
            assert app_id.partition("_")[2] in shown[name]  # a log is a container's
            browser.shows(browser.open(shown[name]), text)
        one.over()
        one.wait("success")
        one.gone(app_id)
        after = links(one, "Task logs", "YARN application")
        browser.shows(browser.open(str(after["YARN application"])), app_id)
        if one is found[0]:
            browser.shows(browser.open(urljoin(airflow.url, str(after["Task logs"]))), app_id)
            continue
        portal = f"http://portal.example/jobs/{app_id}"
        assert {name: url for name, url in after.items() if url != after["YARN application"]} == {
            "Portal": portal,
            "Task logs": f"{portal}/tasks",
            "TensorBoard": f"{portal}/tensorboard",
            "Log of worker:0": f"{portal}/log/worker%3A0",
        }
