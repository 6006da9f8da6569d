"""Compare and trends in a real browser."""

from __future__ import annotations

import pytest

from tests.browser import Browser
from tests.history.test_compare import trained
from tests.portal.fakes import FakePortal
from tests.portal.pages.test_browser import axe
from tests.portal.pages.test_compare import DAG, a_job, nightly
from tests.portal.serving import served

pytestmark = pytest.mark.slow

_ENDS = "document.querySelector('.chart .across')"
ACROSS = f"[{_ENDS}.firstChild, {_ENDS}.lastChild].map(end => end.textContent).join(' to ')"


def await_page(browser: Browser, tab: str, *texts: str) -> None:
    """Until a page with these texts has come as a whole."""
    browser.shows(tab, *texts)
    browser.wait_for(tab, "document.readyState === 'complete'")
    browser.shows(tab, *texts)


def check_accessibility(browser: Browser, tab: str) -> None:
    browser.run(tab, f"{axe()};0")
    found = browser.run(
        tab,
        "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map("
        "one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 160)).join(' | ')))",
    )
    assert found == []
    assert browser.complaints == []


def test_jobs_chosen_in_the_list_are_compared(browser: Browser) -> None:
    jobs = [a_job(number, trained(number, [5.0, 4.0, 3.0, 2.0 / number])) for number in (1, 2, 3)]
    with served(FakePortal(*jobs).app) as url:
        tab = browser.open(url)
        await_page(browser, tab, "train-3")
        for number in (1, 2, 3):
            box = f"#r-here-application_1_000{number} input"
            browser.run(tab, f"document.querySelector('{box}').click()")
        browser.run(tab, "document.querySelector('form[action$=compare] button').click()")
        await_page(browser, tab, "Compare 3 jobs", "Where the time went")
        browser.wait_for(tab, "document.querySelectorAll('.chart polyline').length === 3")
        assert browser.run(tab, ACROSS) == "step 0 to step 300"
        check_accessibility(browser, tab)
        # The keyboard alone: to the chart, its first point, closer.
        browser.run(tab, "document.querySelector('.chart svg').focus()")
        for key in ("ArrowLeft", "+"):
            browser.press(tab, key)
        browser.wait_for(tab, f"{ACROSS} !== 'step 0 to step 300'")
        assert "step" in browser.run(tab, "document.querySelector('.chart .now').textContent")
        browser.run(tab, "document.querySelector('a[aria-label=\"Leave out C\"]').click()")
        await_page(browser, tab, "Compare 2 jobs")
        browser.shape(tab, 360, dark=True)
        assert browser.run(tab, "document.documentElement.scrollWidth") <= 360
        check_accessibility(browser, tab)
        browser.run(tab, "document.querySelector('.pick li:last-child a').click()")
        browser.wait_for(tab, "location.search.includes('by=time')")
        browser.wait_for(tab, f"{ACROSS} === '10 s to 40 s'")


LOOKS = """
(of => Array.from(document.querySelectorAll(of)).map(at => {
  const style = getComputedStyle(at), box = at.getBoundingClientRect();
  return [style.color, at.nodeName == 'I' ? style.backgroundImage : style.strokeDasharray,
          at.nodeName == 'I' ? box.width >= 12 && box.height >= 3 : box.width > 0];
}))
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_each_of_twenty_jobs_looks_different(browser: Browser, dark: bool) -> None:
    """In the chart, its legend and the heads of the tables."""
    numbers = range(1, 21)
    jobs = [a_job(number, trained(number, [5.0, 4.0, 2.0 / number])) for number in numbers]
    with served(FakePortal(*jobs).app) as url:
        tab = browser.open("about:blank")
        browser.shape(tab, 1300, dark=dark)
        chosen = "&".join(f"job=application_1_{number:04d}" for number in numbers)
        browser.call("Page.navigate", tab, url=f"{url}/compare?{chosen}")
        await_page(browser, tab, "Compare 20 jobs")
        for of in (".chart polyline", "h2 ~ .legend.mono i", "td.beside i", ".beside thead i"):
            looks = [tuple(each) for each in browser.run(tab, f"{LOOKS}({of!r})")][:20]
            assert len(set(looks)) == 20 and all(seen for *_, seen in looks), of
        browser.run(tab, "document.querySelector('.chart svg').focus()")
        browser.press(tab, "ArrowLeft")
        marks = browser.run(tab, f"{LOOKS}('.chart .now i')")
        assert len({tuple(each) for each in marks}) == 20, "the values at the cursor"
        check_accessibility(browser, tab)


@pytest.mark.parametrize(("width", "dark"), [(1300, True), (360, False)], ids=["wide", "phone"])
def test_a_trend_names_the_run_that_changed(browser: Browser, width: int, dark: bool) -> None:
    with served(FakePortal(*nightly()).app) as url:
        tab = browser.open("about:blank")
        browser.shape(tab, width, dark=dark)
        browser.call("Page.navigate", tab, url=f"{url}/trends?pipeline={DAG}")
        await_page(browser, tab, "What changed", "train-20", "--batch 128")
        browser.wait_for(tab, "document.querySelectorAll('.chart .across').length === 2")
        assert len(browser.run(tab, ACROSS)) == len("2026-01-31 to 2026-01-31")
        assert browser.run(tab, "document.documentElement.scrollWidth") <= width
        check_accessibility(browser, tab)
        browser.run(tab, "document.querySelector('.changed h3 a').click()")
        browser.wait_for(tab, "location.pathname.endsWith('/application_1_0020/')")
