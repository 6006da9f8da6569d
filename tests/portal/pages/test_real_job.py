"""A real job in a real portal, looked at with a real browser: from its first line to its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.cli.processes import Running, application_of, tony, until

PROGRAM = """
import sys, time
import tony
for step in range(3000):
    tony.report(step=step, progress=step / 3000, metrics={"loss": 3.0 / (step + 1)})
    print("step <b>%d</b>" % step, flush=True)
    time.sleep(0.1)
"""

pytestmark = pytest.mark.slow


def test_a_job_is_watched_followed_and_ended(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PROGRAM)
    words = ["--executes", "train.py", "--src_dir", "src", "--detach"]
    for key, value in {
        "tony.application.name": "watched",
        "tony.application.framework": "pytorch",
        "tony.worker.instances": "1",
        "tony.worker.memory": "512m",
    }.items():
        words += ["--conf", f"{key}={value}"]

    def bring_up(tab: str) -> None:
        """A tab in the background does not ask for news."""
        browser.call("Page.bringToFront", tab)

    with Running(tmp_path, "portal", "--port", "0") as portal:
        until(lambda: "the portal is at" in portal.err, "the portal's URL")
        found = re.search(r"is at (http://[^/]+)/", portal.err)
        assert found, str(portal)
        listed = browser.open(found[1])
        browser.shows(listed, "No jobs yet")
        done = tony("submit", *words, cwd=tmp_path)
        app_id = application_of(done.stdout)
        try:
            # The list has it without being loaded again.
            browser.shows(listed, "watched", "RUNNING", app_id)
            job = f"{found[1]}/jobs/{app_id}/"
            log = browser.open(f"{job}log/worker:0/stdout")
            browser.wait_for(
                log, "document.querySelector('.log').textContent.includes('step <b>40')"
            )
            tab = browser.open(job)
            browser.shows(tab, "worker:0", "<polyline", "Where the time went", "End this job")
            browser.run(tab, "window.same = true")
            ending = browser.open(f"{job}end")
            browser.shows(ending, "cannot be undone")
            browser.run(ending, "document.querySelector('button.danger').click()")
            browser.shows(ending, "Back to the job")
            bring_up(tab)
            browser.wait_for(tab, "document.querySelector('h1 + .state').textContent == 'KILLED'")
            assert browser.run(tab, "window.same") and "End this job" not in browser.shows(tab)
            bring_up(listed)
            browser.shows(listed, "KILLED")
            bring_up(log)
            browser.wait_for(log, "document.querySelector('.tools button').hidden")
        finally:
            tony("kill", app_id, cwd=tmp_path)
        config = browser.open(f"{job}config")
        browser.shows(config, "tony.worker.memory", "--conf")
        assert browser.complaints == []
