"""The job's log page on a real server, in a real browser: what is an address there leads on."""

from __future__ import annotations

import json
from typing import List

import pytest

from tests.browser import Browser
from tests.cluster.azkaban.fixture import GetFlows
from tests.cluster.azkaban.server import PASSWORD, USER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LOGIN = """
document.getElementById("username").value = "%s";
document.getElementById("password").value = "%s";
document.getElementById("login-submit").click();
"""

LINKS = 'JSON.stringify(Array.from(document.querySelectorAll("#logSection a"), (a) => a.href))'

CLICK = "Array.from(document.querySelectorAll('a')).find((a) => a.href.endsWith(%s)).click()"


def links_of(browser: Browser, tab: str) -> List[str]:
    answer = browser.call("Runtime.evaluate", tab, expression=LINKS)
    found: List[str] = json.loads(answer["result"]["value"])
    return found


def click(browser: Browser, tab: str, ends: str) -> None:
    """On the link to an address that ends so."""
    browser.call("Runtime.evaluate", tab, expression=CLICK % json.dumps(ends))


def test_the_log_page_leads_to_the_job(azkaban: GetFlows, browser: Browser) -> None:
    flows = azkaban()
    run = flows.one(
        "sh -c 'echo \"these are the <words>\"; sleep 300'",
        **{"tony.application.name": "seen-from-azkaban"},
    )
    app_id = run.app_id()
    run.wait_for_text("log of worker:0: ")
    page = flows.client.job_page(run.execid, "train")
    tab = browser.open(page)
    browser.shows(tab, "login-submit")
    browser.call("Runtime.evaluate", tab, expression=LOGIN % (USER, PASSWORD))
    browser.shows(tab, app_id, "page: <a ")
    links = links_of(browser, tab)
    addresses = [line.rsplit(" ", 1)[1] for line in run.log_lines() if " http" in line]
    # The page takes each of them for what it is, from its first to its last character.
    assert [url for url in addresses if url not in links] == []
    own = next(line for line in run.log_lines() if line.startswith("page:"))
    click(browser, tab, own.rsplit(" ", 1)[1])
    # And back: the job's page names the execution that it belongs to.
    browser.shows(tab, "seen-from-azkaban", ">worker:0<", f"execid={run.execid}")
    click(browser, tab, "logs/worker%3A0/stdout")
    browser.shows(tab, "these are the &lt;words&gt;")
    run.cancel()
    run.ends("KILLED")
