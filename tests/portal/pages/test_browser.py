"""The portal's pages in a real browser, over parts in memory that a test changes as it goes."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest

from tests.advice.findings import INPUT, MEMORY, stand_in
from tests.browser import Browser
from tests.portal.fakes import NASTY, FakePortal, FakeSource, a_row, a_source, a_task, an_event
from tests.portal.serving import served
from tony_core.advice.advice import MODERATE, Change
from tony_core.portal.index.rows import Usage

pytestmark = pytest.mark.slow

JOB = "/jobs/application_1_0001/"
FAILED = "/jobs/application_1_0002/"


def a_portal() -> FakePortal:
    """A running job, a failed one, and twenty that succeeded."""
    cause = {"task": "worker:1", "node": "node7", "exit_code": 1, "fault": "user",
             "message": "worker:1 exited with 1", "stderr_tail": ["KeyError: 'x'"]}  # fmt: skip
    failed = a_source(
        a_row(2, state="FAILED", error="KeyError: 'x'", name=NASTY, tags=("team:vision",)),
        job={"root_cause": cause, "diagnostics": NASTY, "result": {"loss": 0.25}},
        tasks=(a_task("worker:0"), a_task("worker:1", state="failed", stderr_tail=[NASTY])),
    )
    failed.logs["worker:1", "stderr"] = b"".join(b"line %d\n" % n for n in range(60000))
    rest = (a_source(a_row(number)) for number in range(3, 23))
    portal = FakePortal(a_source(running=True), failed, *rest)
    portal.index.sums = [Usage("ann", 22, {"FAILED": 1}, {"gpu_hours": 30.0, "waiting_s": 60.0})]
    return portal


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tuple[FakePortal, str]]:
    long = {"wide" * 30: "value" * 40, "used (GB)": 2.1}
    change = Change("tony.worker.resource." + "x" * 90, "3" * 90, "8" * 90)
    hostile = MEMORY._replace(problem=NASTY, evidence=long, changes=(change,), severity=MODERATE)
    stand_in(monkeypatch, MEMORY, hostile, INPUT)
    made = a_portal()
    with served(made.app) as url:
        yield made, url


def running(portal: FakePortal) -> FakeSource:
    return portal.sources["here", "application_1_0001"]


def axe() -> str:
    spec = importlib.util.find_spec("axe_core_python")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")


LOG = f"{FAILED}log/worker:1/stderr"
MARKED = {LOG: 2, f"{LOG}?session=1": 2}
"""Of logs, how many beginnings of sessions are marked in them."""

PAGES = ["/", f"/jobs?q={'x' * 5}", "/users", "/queues", JOB, FAILED, f"{FAILED}tasks",
         f"{FAILED}metrics", f"{FAILED}advice", f"{FAILED}story", f"{FAILED}config",
         f"{JOB}end", "/jobs/none/", LOG, f"{LOG}?q=line+77", f"{LOG}?session=1",
         "/trends", "/trends?tag=team:vision&since=all", "/compare",
         "/compare?job=application_1_0001&job=application_1_0002"]  # fmt: skip


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (360, True)], ids=["wide", "phone"])
def test_every_page_is_accessible_and_fits(
    browser: Browser, portal: Tuple[FakePortal, str], width: int, dark: bool
) -> None:
    made, url = portal
    failed = made.sources["here", "application_1_0002"]
    whole = len(failed.logs["worker:1", "stderr"])
    failed.begins = {0: 0, 1: whole - 2000, 2: whole - 200}
    tab = browser.open("about:blank")
    browser.shape(tab, width, dark=dark)
    script, wrong = axe(), []
    for path in PAGES:
        browser.call("Page.navigate", tab, url=url + path)
        there = f"document.readyState == 'complete' && location.href == {url + path!r}"
        browser.wait_for(tab, f"{there} && document.querySelector('main') !== null")
        if path in MARKED:
            marks = browser.run(tab, "document.querySelectorAll('.log .session').length")
            assert marks == MARKED[path], path
        browser.run(tab, "document.querySelectorAll('.advice details').forEach(e => e.open = true)")
        browser.run(tab, f"{script};0")
        found = browser.run(
            tab,
            "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map("
            "one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 160)).join(' | ')))",
        )
        wrong += [f"{path}: {each}" for each in found]
        wide = browser.run(tab, "document.documentElement.scrollWidth")
        if wide > width:
            wrong.append(f"{path} is {wide} wide")
    assert wrong == []
    # The policy has refused nothing, and no script failed. Error pages are errors to a browser.
    serious = [each for each in browser.complaints if "status of 404" not in each]
    assert serious == []


OVERLAPS = """
Array.from(document.querySelectorAll('.list tbody tr')).flatMap(row => {
  const boxes = Array.from(row.cells).map(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);  // what is written, wherever it runs to
    return [cell.textContent.trim(), range.getBoundingClientRect()];
  }).filter(([text, box]) => box.width && box.height);
  return boxes.flatMap(([text, a], at) => boxes.slice(at + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1).map(([other]) => [text, other]));
})
"""


def test_a_phone_shows_rows_apart_and_can_compare_and_sort(
    browser: Browser, portal: Tuple[FakePortal, str]
) -> None:
    made, url = portal
    source = made.sources["here", "application_1_0002"]
    wide: Any = {
        "container": "container_1700000000000_0123_01_000002",
        "node": "gpu-7.example.com",
        "state": "succeeded",
        "step": 1200,
        "progress": 0.5,
        "usage": {"peak_rss_mb": 45300.0},
    }
    source.held = source.held._replace(tasks=(a_task("worker:0", **wide),))
    tab = browser.open("about:blank")
    browser.shape(tab, 390)
    for path in (f"{FAILED}tasks", FAILED, "/jobs", "/trends?tag=team:vision&since=all"):
        browser.call("Page.navigate", tab, url=url + path)
        there = f"document.readyState == 'complete' && location.href == {url + path!r}"
        browser.wait_for(tab, f"{there} && document.querySelector('.list tbody tr') !== null")
        assert browser.run(tab, OVERLAPS) == [], path
    browser.call("Page.navigate", tab, url=f"{url}/jobs")
    browser.wait_for(tab, "document.querySelectorAll('.pickcell input').length > 2")
    for mark in ("0", "1"):
        box = f"document.querySelectorAll('.pickcell input')[{mark}]"
        place = browser.run(
            tab, f"(b => [b.left, b.right, b.width])({box}.getBoundingClientRect())"
        )
        assert place[0] > 0 and place[1] < 390 and place[2] > 20
        browser.run(tab, f"{box}.click()")
    link = "document.querySelector('th a[href*=\"sort=name\"]')"
    assert browser.run(tab, f"{link}.getBoundingClientRect().left") > 0
    browser.run(tab, "document.querySelector('.pager button').click()")
    browser.shows(tab, "Compare 2 jobs")


def test_the_list_is_searched_sorted_and_kept_up_to_date(
    browser: Browser, portal: Tuple[FakePortal, str]
) -> None:
    made, url = portal
    tab = browser.open(url)
    browser.shows(tab, "train-1", "KeyError")
    # A job that has ended, and a new one, without reloading; a mark that was set stays.
    browser.run(tab, "document.querySelector('#r-here-application_1_0005 input').click()")
    browser.run(tab, "window.same = true")
    made.index.held[0] = a_row(1, name="train-1", state="KILLED")
    since = time.time() - 76 * 3600
    new = a_row(77, name="brand-new", state="RUNNING", submitted=since, readers=("*",))
    made.index.held.insert(0, new)
    browser.wait_for(tab, "document.querySelector('#r-here-application_1_0077') !== null")
    row = "document.querySelector('#r-here-application_1_0001')"
    assert "KILLED" in browser.run(tab, f"{row}.textContent")
    assert browser.run(tab, "document.querySelector('#r-here-application_1_0005 input').checked")
    assert browser.run(tab, "window.same")
    first = browser.run(tab, "document.querySelector('tbody tr').id")
    assert first == "r-here-application_1_0077"
    ticking = f"document.querySelector('#{first} [data-ticks]')"
    browser.wait_for(tab, f"{ticking}.ticks !== undefined")  # by the script
    assert browser.run(tab, f"{ticking}.textContent") == "3 d 04 h"
    # The keyboard alone: "/" goes to the search.
    browser.press(tab, "/", "/")
    assert browser.run(tab, "document.activeElement.id") == "q"
    browser.call("Input.insertText", tab, text="KeyError")
    browser.press(tab, "Enter", "\r")
    browser.wait_for(tab, "location.search.includes('q=KeyError')")
    browser.shows(tab, ">1 job<")
    browser.run(tab, "document.querySelector('th.sorts, th a[href*=\"sort=name\"]').click()")
    heading = "(document.querySelector('th[aria-sort]') || document.body).textContent"
    browser.wait_for(tab, f"location.search.includes('sort=name') && {heading}.startsWith('Job')")


def test_the_keyboard_stays_in_its_row_when_others_go_come_or_change_places(
    browser: Browser, portal: Tuple[FakePortal, str]
) -> None:
    made, url = portal
    held = made.index.held
    tab = browser.open(url)
    link = "document.querySelector('#r-here-application_1_0005 a[href]')"
    browser.wait_for(tab, f"{link} !== null")
    browser.run(tab, f"window.kept = {link}; window.kept.focus()")
    shown = "Array.from(document.querySelectorAll('tbody tr')).map(row => +row.id.slice(-4))"

    def shows(rows: List[Any]) -> None:
        held[:] = rows
        numbers = [int(row.app_id[-4:]) for row in rows]
        browser.wait_for(tab, f"{shown}.join() == '{','.join(map(str, numbers))}'")
        assert browser.run(tab, "document.activeElement === window.kept"), numbers
        assert browser.run(tab, f"{link} === window.kept"), numbers

    by_number = {int(row.app_id[-4:]): row for row in held}
    first = [int(row.app_id[-4:]) for row in held]
    rest = [number for number in first if number not in (1, 2, 3)]
    at = rest.index(5)
    for numbers in (
        rest,  # those before it are gone
        [1, *rest, 2],
        [5, *rest[at + 1 :], *rest[:at]],  # it comes before others
        [*reversed(rest), 3],
        [7, 5, 6],
    ):
        shows([by_number[number] for number in numbers])
    assert browser.complaints == []


def test_a_running_job_goes_on_and_ends_without_reloading(
    browser: Browser, portal: Tuple[FakePortal, str]
) -> None:
    made, url = portal
    source = running(made)
    tab = browser.open(url + JOB)
    browser.shows(tab, "worker:0 running", "RUNNING")
    browser.run(tab, "window.same = true")
    browser.wait_for(tab, "document.querySelector('.chart svg[tabindex]') !== null")
    browser.run(tab, "document.querySelector('.chart svg').focus()")
    assert browser.run(tab, "document.activeElement.nodeName") == "svg"
    events = (*source.held.events, an_event(3, f"worker:1 {NASTY}", "error"))
    source.held = source.held._replace(events=events)
    browser.wait_for(tab, "document.querySelector('.story .error') !== null")
    assert browser.run(tab, "document.activeElement.nodeName") == "svg"
    # A chart that was made larger stays so, with its button, when there is more to draw.
    browser.press(tab, "Enter", "\r")
    wide = "document.querySelector('.chart svg').getBoundingClientRect().height"
    assert browser.run(tab, wide) > 150
    events = (*events, an_event(5, "one more line"))
    source.held = source.held._replace(events=events)
    browser.wait_for(tab, "document.querySelector('.story').textContent.includes('one more')")
    assert browser.run(tab, wide) > 150
    assert browser.run(tab, "document.querySelector('.chart .larger').textContent") == "Smaller"
    source.is_running = False
    job = {**source.held.job, "state": "SUCCEEDED", "finished": 1.7e9 + 99}
    events = (*events, an_event(6, "the job has ended"))
    source.held = source.held._replace(job=job, events=events)
    browser.wait_for(tab, "document.querySelector('h1 + .state').textContent == 'SUCCEEDED'")
    assert browser.run(tab, "window.same")
    assert browser.run(tab, "document.querySelectorAll('.chart .across').length") == 1
    assert browser.complaints == []


def test_charts_are_zoomed_by_keyboard_and_by_mouse(
    browser: Browser, portal: Tuple[FakePortal, str]
) -> None:
    tab = browser.open(f"{portal[1]}{FAILED}metrics")
    browser.shape(tab, 1200)
    browser.wait_for(tab, "document.querySelectorAll('.chart .across').length == 2")
    whole = browser.run(tab, "document.querySelector('.chart svg').getAttribute('viewBox')")
    browser.run(tab, "document.querySelector('.chart svg').focus()")
    for key in ("ArrowLeft", "ArrowLeft"):
        browser.press(tab, key)
    values = browser.run(tab, "document.querySelector('.chart .now').textContent")
    assert "1.2" in values, "the value before the last one"
    browser.press(tab, "+", "+")
    boxes = browser.run(
        tab, "Array.from(document.querySelectorAll('.chart svg')).map(x => x.viewBox.baseVal.width)"
    )
    assert [round(box) for box in boxes] == [500000, 500000], "all of them"
    browser.press(tab, "Enter", "\r")
    assert browser.run(tab, "document.querySelectorAll('.chart[data-big]').length") == 1
    browser.press(tab, "0", "0")
    assert browser.run(tab, "document.querySelector('.chart svg').getAttribute('viewBox')")
    assert not browser.run(tab, "document.querySelector('.chart .now[data-still]') !== null")
    browser.press(tab, "Enter", "\r")
    frame = browser.run(
        tab, "JSON.stringify(document.querySelector('.chart svg').getBoundingClientRect())"
    )
    place = json.loads(frame)
    for kind, part in (("mousePressed", 0.2), ("mouseMoved", 0.5), ("mouseReleased", 0.6)):
        browser.call(
            "Input.dispatchMouseEvent", tab, type=kind, button="left", clickCount=1,
            x=place["left"] + part * place["width"], y=place["top"] + place["height"] / 2,
        )  # fmt: skip
    wide = browser.run(tab, "document.querySelector('.chart svg').viewBox.baseVal.width")
    assert 350000 < wide < 450000
    browser.run(tab, "document.querySelector('.chart .whole').click()")
    assert whole.split()[2] == "1000000"
    assert browser.run(tab, "document.querySelector('.chart svg').viewBox.baseVal.width") == 1e6
    assert browser.complaints == []


def test_a_log_is_followed_and_its_parts_are_found(
    browser: Browser, portal: Tuple[FakePortal, str]
) -> None:
    made, url = portal
    source = running(made)
    tab = browser.open(f"{url}{JOB}log/worker:0/stdout")
    browser.shows(tab, "hello")
    source.logs["worker:0", "stdout"] += "\x1b[31m<b>schön</b>\x1b[0m\n".encode()
    log = "document.querySelector('.log')"
    browser.wait_for(tab, f"{log}.textContent.includes('</b>')")
    assert browser.run(tab, f"{log}.textContent") == "hello\n<b>schön</b>\n"
    # To its end also when it grows past the window.
    source.logs["worker:0", "stdout"] += b"".join(b"more %d\n" % n for n in range(500))
    browser.wait_for(tab, f"{log}.textContent.includes('more 499')")
    browser.wait_for(tab, f"{log}.scrollHeight - {log}.scrollTop - {log}.clientHeight < 5")
    # One that comes later.
    tab = browser.open(f"{url}{JOB}log/worker:1/stdout")
    browser.shows(tab, "there is no stdout of worker:1")
    source.logs["worker:1", "stdout"] = b"late\n"
    browser.shows(tab, "late\n")
    # A huge one: its end first, a search in all of it, the line that was found.
    tab = browser.open(f"{url}{FAILED}log/worker:1/stderr")
    browser.shows(tab, "line 59999")
    browser.wait_for(tab, "document.querySelector('.tools button') !== null")  # the script runs
    browser.press(tab, "/", "/")
    browser.call("Input.insertText", tab, text="LINE 4242")
    browser.press(tab, "Enter", "\r")
    browser.shows(tab, "11 lines with")
    browser.run(tab, "document.querySelector('.hits a').click()")
    browser.wait_for(tab, "location.hash == '#hit'")
    assert browser.run(tab, "document.getElementById('hit').textContent") == "line 4242\n"
    assert "line 4243" in browser.run(tab, "document.querySelector('.log').textContent")
    assert browser.complaints == []


def test_without_a_script_everything_but_the_news_works(
    browser: Browser, portal: Tuple[FakePortal, str]
) -> None:
    url = portal[1]
    tab = browser.open("about:blank")
    browser.call("Emulation.setScriptExecutionDisabled", tab, value=True)
    shown: List[Any] = []
    for path, text in ((JOB, "<polyline"), (f"{FAILED}log/worker:1/stderr", "line 59999"),
                       ("/jobs?q=KeyError", ">1 job<"), (f"{JOB}end", "End the job")):  # fmt: skip
        browser.call("Page.navigate", tab, url=url + path)
        shown.append(browser.shows(tab, text))
    assert all("Follow</button>" not in text for text in shown)


def test_a_job_is_ended_by_a_form_and_the_keyboard(
    browser: Browser, portal: Tuple[FakePortal, str]
) -> None:
    made, url = portal
    tab = browser.open(f"{url}{JOB}end")
    browser.shows(tab, "cannot be undone")
    for _ in range(30):
        browser.press(tab, "Tab")
        if browser.run(tab, "document.activeElement.textContent") == "End the job":
            break
    browser.press(tab, "Enter", "\r")
    browser.shows(tab, "application_1_0001 is ending")
    assert made.endings.ended == ["application_1_0001"]
