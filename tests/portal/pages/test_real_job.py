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
        bring_up(listed)
        look_at_a_failure(browser, listed, tmp_path)
        assert browser.complaints == []


FAILING = """
import sys
print("loading", flush=True)
for number in range(3000):
    print("row %d is fine" % number, file=sys.stderr)
labels = {"cat": 0}
print(labels["<b>dog</b>"])
"""


def look_at_a_failure(browser: Browser, tab: str, folder: Path) -> None:
    """From the list of jobs to a line of the log of one that failed, by the keyboard alone."""
    (folder / "src" / "fails.py").write_text(FAILING)
    conf = {
        "tony.application.name": "does-fail",
        "tony.worker.instances": "1",
        "tony.worker.memory": "512m",
        "tony.am.retry-count": "1",
    }
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    done = tony("submit", "--executes", "fails.py", "--src_dir", "src", *words, cwd=folder)
    assert done.returncode not in (0, 2), done.stderr
    app_id = application_of(done.stdout + done.stderr)
    browser.shows(tab, "does-fail", "FAILED")

    def walk_to(what: str) -> None:
        """Press Tab until the focus is on what JavaScript says of it, ``at``; then Enter."""
        for _ in range(120):
            browser.press(tab, "Tab")
            if browser.run(tab, f"(at => {what})(document.activeElement)"):
                outline = "getComputedStyle(document.activeElement).outlineStyle"
                assert browser.run(tab, outline) != "none", "where the focus is, can be seen"
                browser.press(tab, "Enter", "\r")
                return
        raise AssertionError(f"the focus never came to {what}")

    def search(text: str) -> None:
        browser.wait_for(tab, "document.readyState == 'complete'")
        browser.press(tab, "/", "/")
        browser.wait_for(tab, "document.activeElement.name == 'q'")
        browser.call("Input.insertText", tab, text=text)
        browser.press(tab, "Enter", "\r")
        browser.wait_for(tab, "location.search.includes('q=')")

    search("does-fail")
    browser.shows(tab, ">1 job<")
    walk_to(f"at.className == 'name' && at.href.includes('{app_id}')")
    browser.wait_for(tab, f"location.pathname == '/jobs/{app_id}/'")
    cause = "document.querySelector('[aria-label=\"Root cause\"]')"
    browser.wait_for(tab, f"{cause} !== null")
    lead = browser.run(tab, f"{cause}.textContent")
    assert "exit code 1" in lead and "the program's fault" in lead, lead
    last = browser.run(tab, f"{cause}.querySelector('pre').textContent").rstrip().splitlines()
    assert last[-1] == "KeyError: '<b>dog</b>'" and any("fails.py" in line for line in last), last
    failed = browser.run(
        tab, "Array.from(document.querySelectorAll('.s-failed')).map(at => at.textContent)"
    )
    assert "FAILED" in failed[0]

    walk_to("at.textContent == 'its log'")
    browser.wait_for(tab, "location.pathname.includes('/log/worker')")
    browser.shows(tab, "KeyError: '&lt;b&gt;dog&lt;/b&gt;'", "row 2999 is fine")
    search("ROW 1234")
    browser.shows(tab, "2 lines with")  # the embedded scheduler's sessions share a log
    walk_to("at.closest('.hits') !== null")
    browser.wait_for(tab, "location.hash == '#hit'")
    found = browser.run(tab, "document.getElementById('hit').textContent")
    assert found == "row 1234 is fine\n"
