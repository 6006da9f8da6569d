"""One job: what it is and how it went, its tasks, metrics, story and configuration."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tony_core.advice.report import Report
from tony_core.charts import MEASURED, draw_charts, tasks_to_draw
from tony_core.client.advice import FEW_TASKS, MOST_TASKS
from tony_core.history.configuration import ConfigEntry
from tony_core.history.layout import ENDED
from tony_core.history.lost_work import tasks_to_measure
from tony_core.history.metric_file import Latest
from tony_core.history.timeline import timeline
from tony_core.portal.advice import Shown, read_report, show
from tony_core.portal.bars import Drawing, draw
from tony_core.portal.formats import show_json
from tony_core.portal.index.rows import JobRow
from tony_core.portal.job_source import JobSource
from tony_core.portal.pages.end import may_end
from tony_core.portal.rendering import StoryLine, read_story
from tony_core.portal.site import Problem, Site
from tony_core.portal.tensorboard import KEY as LOG_DIR_KEY
from tony_core.view import JobView, TaskView, web_links

TABS = (
    ("", "Overview"),
    ("tasks", "Tasks and logs"),
    ("metrics", "Metrics"),
    ("advice", "Advice"),
    ("story", "Story"),
    ("config", "Configuration"),
)
WAIT_S = 2  # of the page's own requests for news
TASKS_SHOWN = 25  # on the overview
MANY = 100  # tasks of a running job: its page gives the metrics of all, on their own page only
TASKS_OF_A_PAGE = 200
CHARTS_SHOWN = 4  # on the overview
CHARTS_OF_A_PAGE = 60
LINES_SHOWN = 60  # of the story, on the overview
LINES_OF_A_PAGE = 500
_ORDER = {"failed": 0, "lost": 1, "killed": 2, "running": 3}


class OpenJob(NamedTuple):
    """A job that a page was asked for."""

    row: JobRow
    source: JobSource
    view: JobView
    links: Mapping[str, str]
    problems: Tuple[str, ...]
    has_record: bool  # something is written of it; else only its row is known


class Course(NamedTuple):
    """How it went: what is made from story and metrics."""

    story: Tuple[StoryLine, ...]
    timeline: Mapping[str, Any]  # as api/timeline answers
    drawing: Drawing  # the same, drawn
    own_charts: str  # some, without what is measured of the machine
    problems: Tuple[str, ...]

    @property
    def last(self) -> int:
        """The number of the newest line."""
        return max((line.number for line in self.story[-20:]), default=0)


def routes(site: Site) -> List[Route]:
    """The pages below ``/jobs/ID/``."""

    def slash(request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{site.base(request)}{_path(request)}/{query}", 308)

    def page(path: str, show: Any) -> Route:
        return Route("/jobs/{app_id}/" + path, lambda request: show(site, request))

    return [
        Route("/jobs/{app_id}", slash),
        page("", show_overview),
        page("tasks", show_tasks),
        page("metrics", show_metrics),
        page("advice", show_advice),
        page("story", show_story),
        page("config", show_config),
    ]


def open_job(site: Site, request: Request) -> OpenJob:
    """The job that a URL names, as far as it can be read."""
    row, source = site.open(request)

    def make() -> Tuple[JobView, Mapping[str, str], Tuple[str, ...], bool]:
        record = source.record(events=False, metrics=False)
        view = source.view()
        links = {**web_links(view.links, "portal"), **web_links(source.links())}
        return view, links, record.problems, bool(record.job)

    with reading():
        found = site.cache.get(
            row,
            "job",
            make,
            lambda made: 4000 * (2 + len(made[0].tasks)),
            site.viewer(request).name,
            lambda made: not made[2],
        )
    return OpenJob(row, source, *found)


def course_of(site: Site, request: Request, job: OpenJob) -> Course:
    """How a job went."""

    def make() -> Course:
        tasks = [{"task": task.task, "tracking": task.tracking} for task in job.view.tasks]

        def choose(latest: Latest) -> Tuple[str, ...]:
            # What was lost with a session is measured in steps, which are metrics.
            lost = tasks_to_measure(tasks, latest) if job.view.session > 0 else ()
            return (*tasks_to_draw(tasks, _reported(latest)), *lost)

        are_costly = job.source.is_running and len(tasks) > MANY and job.view.session <= 0
        record = job.source.record(True, False if are_costly else choose, job.view)
        url = site.job_url(request, job.row, "api/metrics")
        own = {kind: _reported(record.metrics.get(kind)) for kind in ("task", "latest")}
        line = timeline(record, time.time() if job.source.is_running else None)
        return Course(
            read_story(record),
            line.to_json(),
            draw(line),
            draw_charts(tasks, own, CHARTS_SHOWN, url, line.breaks),
            record.problems,
        )

    def size_of(made: Course) -> int:
        return 300 * (len(made.story) + 8 * len(made.timeline["bars"])) + len(made.own_charts)

    with reading():
        return site.cache.get(
            job.row,
            "course",
            make,
            size_of,
            site.viewer(request).name,
            lambda made: not made.problems,
        )


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Explain what cannot be read now."""
    try:
        yield
    except (OSError, LookupError) as error:
        text = f"{str(error) or type(error).__name__}. Try again."
        raise Problem(503, "This job cannot be read now", text) from error


def show_overview(site: Site, request: Request) -> Response:
    """What a person wants to know first: how it is, why, and where the time went."""
    job = open_job(site, request)
    course = course_of(site, request, job)
    tasks = _troubled_first(job.view.tasks)
    return _render(
        site,
        request,
        job,
        "job_overview.html",
        "",
        course,
        tasks=tasks[:TASKS_SHOWN],
        story=list(reversed(course.story[-LINES_SHOWN:])),
        lines=len(course.story),
        charts=Markup(course.own_charts),  # noqa: S704 - draw_charts escapes
        result=show_json(job.view.result),
        drawing=course.drawing,
        has_tensorboard=_has_tensorboard(site, job),
        # Of more tasks it takes a while, and a running job's master has to send all metrics.
        advice=Shown()
        if job.source.is_running or len(job.view.tasks) > FEW_TASKS
        else show(report_of(site, request, job)),
    )


def report_of(site: Site, request: Request, job: OpenJob) -> Report:
    """What it could change."""

    def make() -> Tuple[Report, bool]:
        return read_report(job.source, job.view)

    with reading():
        return site.cache.get(
            job.row,
            "advice",
            make,
            lambda made: 2000 * (1 + len(made[0].advice)),
            site.viewer(request).name,
            lambda made: made[1],
        )[0]


def _has_tensorboard(site: Site, job: OpenJob) -> bool:
    """Whether the portal may start a TensorBoard: of a job that has ended and names its events."""
    if site.tensorboards is None or job.source.is_running:
        return False
    try:
        return any(entry.key == LOG_DIR_KEY and entry.value for entry in job.source.config())
    except (OSError, LookupError, ValueError):
        return False


def show_tasks(site: Site, request: Request) -> Response:
    """Every container of every task, with its logs."""
    job = open_job(site, request)
    state = request.query_params.get("state", "")
    words = request.query_params.get("q", "").lower().split()
    found = [
        task
        for task in job.view.tasks
        if state in ("", task.state)
        and all(word in f"{task.task} {task.node} {task.container}".lower() for word in words)
    ]
    begin = _number(request, "from")
    return _render(
        site,
        request,
        job,
        "job_tasks.html",
        "tasks",
        tasks=found[begin : begin + TASKS_OF_A_PAGE],
        found=len(found),
        begin=begin,
        step=TASKS_OF_A_PAGE,
        values={name: request.query_params.get(name, "") for name in ("location", "state", "q")},
    )


def show_metrics(site: Site, request: Request) -> Response:
    """Every metric."""
    job = open_job(site, request)
    viewer = site.viewer(request).name
    problems: List[str] = []

    def make() -> str:
        tasks = [{"task": task.task} for task in job.view.tasks]
        has_breaks = job.view.session > 0  # only the story says when
        record = job.source.record(
            has_breaks, lambda latest: tasks_to_draw(tasks, latest), job.view
        )
        problems.extend(record.problems)
        breaks = timeline(record).breaks if has_breaks else ()
        url = site.job_url(request, job.row, "api/metrics")
        return draw_charts(tasks, record.metrics, CHARTS_OF_A_PAGE, url, breaks)

    with reading():
        charts = site.cache.get(job.row, "charts", make, len, viewer, lambda made: not problems)
    shown = Markup(charts)  # noqa: S704 - draw_charts escapes
    return _render(site, request, job, "job_metrics.html", "metrics", charts=shown)


def show_advice(site: Site, request: Request) -> Response:
    """What it could change so that it costs less."""
    job = open_job(site, request)
    advice = show(report_of(site, request, job))
    return _render(
        site,
        request,
        job,
        "job_advice.html",
        "advice",
        advice=advice,
        most_tasks=MOST_TASKS,
    )


def show_story(site: Site, request: Request) -> Response:
    """The whole story, from its beginning."""
    job = open_job(site, request)
    course = course_of(site, request, job)
    begin = _number(request, "from")
    return _render(
        site,
        request,
        job,
        "job_story.html",
        "story",
        course,
        story=course.story[begin : begin + LINES_OF_A_PAGE],
        lines=len(course.story),
        begin=begin,
        step=LINES_OF_A_PAGE,
    )


def show_config(site: Site, request: Request) -> Response:
    """The configuration that it ran with, and where each value came from."""
    job = open_job(site, request)
    try:
        entries: Sequence[ConfigEntry] = job.source.config()
        problem = ""
    except (OSError, LookupError, ValueError) as error:
        entries, problem = (), str(error)
    changed = [entry for entry in entries if entry.source not in ("", "default")]
    shows_all = bool(request.query_params.get("all")) or not changed
    return _render(
        site,
        request,
        job,
        "job_config.html",
        "config",
        entries=entries if shows_all else changed,
        problem=problem,
        shows_all=shows_all,
        changed=len(changed),
        number_of_entries=len(entries),
    )


def _render(
    site: Site,
    request: Request,
    job: OpenJob,
    template: str,
    tab: str,
    course: Optional[Course] = None,
    **values: Any,
) -> Response:
    row, source, view, links, problems, has_record = job
    if not source.is_running:
        links = {name: url for name, url in links.items() if name != "page"}
    state = view.state.value if has_record else row.state
    has_button = source.is_running and state not in ENDED and may_end(site, request, row)
    return site.render(
        request,
        template,
        row=row,
        view=view,
        source=source,
        state=state,
        is_running=source.is_running,
        links=links,
        problems=course.problems if course else problems,
        job_tabs=TABS,
        tab=tab,
        next_event=course.last if course else None,
        events_url=site.job_url(request, row, "api/events"),
        wait=WAIT_S,
        may_end=has_button,
        counts=view.counts,
        figures=dict(row.figures),
        **values,
    )


def _reported(found: Any) -> Dict[str, Dict[str, Any]]:
    """By task what it has of metrics, without those of the machine; no task that has no others."""
    if not isinstance(found, dict):
        return {}
    own = {
        task: {name: value for name, value in known.items() if name not in MEASURED}
        for task, known in found.items()
        if isinstance(known, dict)
    }
    return {task: known for task, known in own.items() if known}


def _troubled_first(tasks: Sequence[TaskView]) -> Tuple[TaskView, ...]:
    if len(tasks) <= TASKS_SHOWN:
        return tuple(tasks)
    return tuple(sorted(tasks, key=lambda task: _ORDER.get(task.state, 4)))


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0") or "0"
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    raise Problem(400, "This address asks for something odd", f"{name}={text!r} is no number")


def _path(request: Request) -> str:
    return request.url.path.removeprefix(str(request.scope.get("root_path", "")))
