"""A job of history as HTML: text without scripts, every link relative or checked."""

from __future__ import annotations

import os
import time
from html import escape
from typing import (
    Any,
    Callable,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)
from urllib.parse import quote

from tony_airflow.pages.history import Connections, Log, PageNotFound, RecordedJob, TaskInstanceKey
from tony_core.job.mask import mask_text
from tony_core.view import JobView, TaskView, web_links

EVENTS = 300  # the last ones
TASKS = 500
_UP = "../" * 8  # from a job's page to the root of Airflow's

STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:80em;color:#222;background:#fff}"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin-top:1.6em}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}"
    "pre{background:#f5f5f5;padding:.8em;overflow:auto;white-space:pre-wrap}.soft{color:#777}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}pre{background:#242424}"
    "a{color:#8ab4f8}}"
)


def headers(nonce: str) -> Mapping[str, str]:
    """Each page's headers: no script, no frame, no cache, no referrer to another site."""
    return {
        "Content-Security-Policy": (
            f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none';"
            " frame-ancestors 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


class PageResponse(NamedTuple):
    """A page as an HTTP response."""

    text: str
    status: int
    headers: Mapping[str, str]


def render_page(
    ti_key: TaskInstanceKey,
    xcom: Callable[[str], Any],
    connections: Connections,
    *,
    logs: bool = False,
    task: Optional[str] = None,
) -> PageResponse:
    """The job of a task instance; with ``logs`` all its tasks' logs, or those of one ``task``."""
    nonce = os.urandom(16).hex()
    try:
        with RecordedJob(ti_key, xcom, connections) as job:
            if task is not None:
                text = logs_page(job.view, task, job.logs(task), nonce)
            elif logs:
                text = all_logs_page(job.view, job.last_lines(), nonce)
            else:
                text = job_page(ti_key, job.view, job.record.events, nonce)
        return PageResponse(text, 200, headers(nonce))
    except PageNotFound as error:
        return PageResponse(not_found_page(str(error), nonce), 404, headers(nonce))


def job_page(
    ti_key: TaskInstanceKey, view: JobView, events: Sequence[Mapping[str, Any]], nonce: str
) -> str:
    """A job: how it ended, its tasks, their metrics, its events."""
    fields: List[Tuple[str, str]] = [
        ("Application", view.app_id),
        ("User", view.user),
        ("Queue", view.queue),
        ("Framework", view.framework),
        ("Submitted", _clock(view.submitted)),
        ("Ended", _clock(view.finished) if view.state.ended else ""),
        ("Took", _seconds(view.duration_s(time.time())) if view.state.ended else ""),
    ]
    state = view.state.value
    parts = [
        f"<h1>{_text(view.name or view.app_id)} <span class=soft>{_text(state)}</span></h1>",
        f"<p><a href={_href(task_of(ti_key))}>The task in Airflow</a></p>",
        "" if view.state.ended else "<p class=soft>As history last recorded it.</p>",
        _table((), [(name, _text(text)) for name, text in fields if text]),
        f"<pre>{_text(view.diagnostics)}</pre>" if view.diagnostics else "",
        _links(view.links),
        "<h2>Tasks</h2>",
        _tasks(view.tasks),
        _metrics(view.tasks),
        "<h2>What happened</h2>",
        _table((), [_event(event) for event in events[-EVENTS:]]),
    ]
    return _page(f"{view.name or view.app_id}: {state}", "".join(parts), nonce)


def logs_page(view: JobView, task: str, logs: Iterable[Log], nonce: str) -> str:
    """The ends of the logs of one task of a job."""
    parts = [f"<h1>{_text(task)}</h1><p><a href='../'>{_text(view.name or view.app_id)}</a></p>"]
    for log in logs:
        parts.append(f"<h2>{_text(log.stream)} <span class=soft>{_text(log.container)}</span></h2>")
        if log.lines:
            lines = "\n".join(log.lines)
            parts.append(f"<pre>{_text(lines)}</pre>")
        else:
            parts.append(f"<p class=soft>{_text(log.problem or 'nothing was written')}</p>")
    if len(parts) == 1:
        parts.append("<p class=soft>nothing was written: it has had no container</p>")
    return _page(f"{task} of {view.name or view.app_id}", "".join(parts), nonce)


def all_logs_page(view: JobView, ends: Mapping[str, Sequence[Log]], nonce: str) -> str:
    """Links to every task's logs, and the last lines of some."""
    parts = [
        f"<h1>Logs of {_text(view.name or view.app_id)}"
        f" <span class=soft>{_text(view.state.value)}</span></h1>",
        f"<p><a href='./'>{_text(view.app_id)}</a></p>",
        _tasks(view.tasks),
    ]
    for task, logs in ends.items():
        for log in logs:
            if log.lines or log.problem:
                lines = "\n".join(log.lines)
                text = f"<pre>{_text(lines)}</pre>" if lines else _text(log.problem)
                parts.append(f"<h2>{_text(task)} <span class=soft>{_text(log.stream)}</span></h2>")
                parts.append(text)
    return _page(f"Logs of {view.name or view.app_id}", "".join(parts), nonce)


def not_found_page(why: str, nonce: str) -> str:
    """The page that says why there is no job to show."""
    return _page("No job", f"<h1>No job</h1><p>{_text(why)}</p>", nonce)


def task_of(ti_key: TaskInstanceKey) -> str:
    """The address of the task instance in Airflow's own pages, relative to a job's page."""
    mapped = f"/mapped/{ti_key.map_index}" if ti_key.map_index >= 0 else ""
    names = [quote(name, safe="") for name in (ti_key.dag_id, ti_key.run_id, ti_key.task_id)]
    return f"{_UP}dags/{names[0]}/runs/{names[1]}/tasks/{names[2]}{mapped}"


def _page(title: str, body: str, nonce: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{_text(title)}</title><style nonce="{nonce}">{STYLE}</style></head>'
        f"<body>{body}</body></html>"
    )


def _tasks(tasks: Sequence[TaskView]) -> str:
    rows = []
    for task in tasks[:TASKS]:
        log = f"<a href={_href('logs/' + quote(task.task, safe='', errors='replace'))}>log</a>"
        code = "" if task.exit_code is None else str(task.exit_code)
        cells = (task.node, code, task.cause, _seconds(task.duration_s))
        rows.append((_text(task.task), _text(task.state), *map(_text, cells), log))
    more = len(tasks) - TASKS
    return _table(("Task", "State", "Node", "Exit code", "Cause", "Took", ""), rows) + (
        f"<p class=soft>and {more} more</p>" if more > 0 else ""
    )


def _metrics(tasks: Sequence[TaskView]) -> str:
    rows = [
        (_text(task.task), _text(name), _text(f"{value:g}"))
        for task in tasks[:TASKS]
        for name, value in task.reported.items()
    ][:TASKS]
    head = "<h2 id=metrics>Metrics</h2>"
    return head + (_table((), rows) if rows else "<p class=soft>None was reported.</p>")


def _links(links: Mapping[str, str]) -> str:
    found = [
        f"<a rel='noreferrer noopener' href={_href(url)}>{_text(name)}</a>"
        for name, url in web_links(links).items()
    ]
    return f"<p>{' '.join(found)}</p>" if found else ""


def _event(event: Mapping[str, Any]) -> Tuple[str, str]:
    at = event.get("time")
    return _text(_clock(at)), _text(event.get("text") or "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """``rows`` are HTML already."""
    first = "<tr>" + "".join(f"<th>{_text(name)}</th>" for name in head) + "</tr>" if head else ""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{first}{body}</table>"


def _text(value: Any) -> str:
    return escape(mask_text(str(value)).encode("utf-8", "replace").decode())


def _href(url: str) -> str:
    return '"' + escape(url.encode("utf-8", "replace").decode()) + '"'


def _clock(at: Any) -> str:
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        return ""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at)) if at else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _seconds(value: Any) -> str:
    return "" if value is None else f"{value:.1f} s"
