"""One job for programs: the very API that its master's page has, and a little more."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Dict, List, Mapping, Tuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tony_core.jsontext import write_value
from tony_core.portal.index.rows import Query
from tony_core.portal.job_source import JobSource
from tony_core.portal.pages.job import OpenJob, course_of, open_job, reading, report_of
from tony_core.portal.site import Problem, Site, check_query, json_answer, json_bytes
from tony_core.prometheus import CONTENT_TYPE, write_job

LONGEST_WAIT_S = 30.0
LIVE_STATES = ("ACCEPTED", "RUNNING")
MOST_TARGETS = 2000  # for one Prometheus
TARGETS_OF_A_PAGE = 200
LOOK_S = 1.0  # between two looks for news


def routes(site: Site) -> List[Route]:
    """``api/...`` below a job."""

    def with_job(answer: Any) -> Any:
        return lambda request: json_answer(answer(open_job(site, request)))

    def metrics(request: Request) -> Response:
        row, source = site.open(request)
        viewer = site.viewer(request).name
        problems: List[str] = []

        def make() -> bytes:
            record = source.record(events=False)
            problems.extend(record.problems)
            return write_value(record.metrics).encode()

        def find() -> bytes:
            return site.cache.get(row, "metrics", make, len, viewer, lambda made: not problems)

        with reading():
            return json_bytes(source.metrics_json() or find())

    def tasks(request: Request) -> Response:
        job = open_job(site, request)
        viewer = site.viewer(request).name
        return json_bytes(
            site.cache.get(
                job.row,
                "tasks",
                lambda: write_value(tasks_json(job)).encode(),
                len,
                viewer,
                lambda made: not job.problems,
            )
        )

    def advice(request: Request) -> Response:
        job = open_job(site, request)
        report = report_of(site, request, job)
        return json_answer({"app_id": job.row.app_id, **report.to_json()})

    def course(request: Request) -> Response:
        return json_answer(course_of(site, request, open_job(site, request)).timeline)

    def exposition(request: Request) -> Response:
        job = open_job(site, request)
        viewer = site.viewer(request).name
        made = site.cache.get(
            job.row,
            "exposition",
            lambda: write_job(job.view, time.time(), job.row.figures.get("waiting_s")),
            len,
            viewer,
            lambda made: not job.problems,
        )
        return Response(made, media_type=CONTENT_TYPE)

    def targets(request: Request) -> Response:
        check_query(request)
        return json_answer(find_targets(site, request))

    async def events(request: Request) -> Response:
        check_query(request, "since", "wait", "location")
        since = _number(request, "since")
        wait = min(LONGEST_WAIT_S, _number(request, "wait"))
        _, source = await site.run(request, site.open, request)
        lines, following = await _await_events(site, request, source, int(since), wait)
        return json_answer({"events": list(lines), "next": following})

    def config(request: Request) -> Response:
        _, source = site.open(request)
        try:
            entries, problems = source.config(), []
        except (OSError, ValueError) as error:
            entries, problems = (), [str(error)]
        found = [entry._asdict() for entry in entries]
        return json_answer({"config": found, "problems": problems})

    return [
        Route("/jobs/{app_id}/api/job", with_job(job_json)),
        Route("/jobs/{app_id}/api/tasks", tasks),
        Route("/jobs/{app_id}/api/metrics", metrics),
        Route("/jobs/{app_id}/api/timeline", course),
        Route("/jobs/{app_id}/api/events", events),
        Route("/jobs/{app_id}/api/config", config),
        Route("/jobs/{app_id}/api/advice", advice),
        Route("/jobs/{app_id}/api/prometheus", exposition),
        Route("/prometheus/targets", targets),
    ]


def job_json(job: OpenJob) -> Mapping[str, Any]:
    """As the master's page has it, and whose files it is from."""
    found: Dict[str, Any] = job.view.to_page_json()
    if not job.has_record and job.row.state:
        found["state"] = job.row.state
    more = {
        "owner": job.row.owner,
        "location": job.row.location,
        "figures": dict(job.row.figures),
        "problems": list(job.problems),
    }
    return {**found, **more}


def find_targets(site: Site, request: Request) -> List[Mapping[str, Any]]:
    """The running jobs that the viewer may see, as Prometheus' ``http_sd`` reads them.

    Each is a target at this portal, which shows its figures by the viewer's rights: a scraper
    needs no way to the masters. The id is the target's ``instance``; what else is known of a job
    is in meta labels, since the job's own samples have it too.
    """
    found: Dict[Tuple[str, str], Mapping[str, Any]] = {}
    has_several = len(site.settings.locations) > 1
    query = Query(state=LIVE_STATES, limit=TARGETS_OF_A_PAGE)
    viewer = site.viewer(request)
    for _ in range(MOST_TARGETS // TARGETS_OF_A_PAGE):
        page = site.index.page(query, viewer)
        for row in page.rows:
            labels = {
                "__scheme__": request.url.scheme,
                "__metrics_path__": (
                    f"{site.base(request)}/jobs/{quote(row.app_id, safe='')}/api/prometheus"
                ),
                "instance": row.app_id,
                "__meta_tony_name": row.name,
                "__meta_tony_user": row.owner,
                "__meta_tony_queue": row.queue,
                "__meta_tony_pipeline": row.pipeline,
            }
            if has_several:
                labels["__param_location"] = row.location
            target = {"targets": [request.url.netloc], "labels": labels}
            if not row.has_ended:  # its scheduler may know better than the index
                found.setdefault((row.location, row.app_id), target)
        if not page.next or not page.rows:
            break
        query = query._replace(after=page.next)
    return list(found.values())


def tasks_json(job: OpenJob) -> Mapping[str, Any]:
    """As the master's page has them."""
    return {"tasks": [task.to_json() for task in job.view.tasks]}


async def _await_events(
    site: Site, request: Request, source: JobSource, since: int, wait: float
) -> Tuple[List[Mapping[str, Any]], int]:
    """The story from ``since`` on, as soon as it goes on; holds no thread meanwhile."""
    deadline = time.monotonic() + wait
    while True:
        lines, following = await site.run(request, source.events, since)
        left = deadline - time.monotonic()
        if lines or left <= 0 or not source.is_running or await request.is_disconnected():
            return lines, following
        await asyncio.sleep(min(LOOK_S, left))


def _number(request: Request, name: str) -> float:
    text = request.query_params.get(name, "0")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0 <= value < 1e15:
        return value
    raise Problem(400, "Odd address", f"{name}={text!r} is not a number")
