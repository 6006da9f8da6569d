"""The job's page as HTML, from the very data that its JSON answers hold. Pure.

Whole without a script: the script only fetches :func:`inside` again when the story goes on.
Every text is escaped; every URL is relative, because the page lives behind proxies.
"""

from __future__ import annotations

import time
from html import escape
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote

from tony_core.charts import draw_charts
from tony_core.durations import show_duration
from tony_core.measures import PEAK_RSS_MB, RSS_MB
from tony_core.static import SCRIPT, STYLE, read_asset
from tony_core.view import is_web, name_link

TENSORBOARD = "tensorboard/?tensorboardColab=true"  # asks TensorBoard to use GET only
ROWS = 200
ENDS = 20  # tasks whose last lines are shown
UUID_SHOWN = 12  # characters, which tell the GPUs of a node apart
_ORDER = {"failed": 0, "lost": 1, "killed": 2, "running": 3}


def page(
    job: Mapping[str, Any],
    tasks: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    nonce: str,
    next_event: int,
    to_tensorboard: bool = False,
    waits: bool = True,
    breaks: Sequence[float] = (),
) -> str:
    """The whole page; ``waits``: whether the server holds requests until there is news.

    ``breaks``: when further sessions began.
    """
    over = job["state"] != "RUNNING"
    title = escape(f"{job['name']} · {job['state'].lower()}")
    refresh = ""
    if to_tensorboard:
        refresh = f'<meta http-equiv="refresh" content="0; url={TENSORBOARD}">'
    elif not over:
        refresh = '<noscript><meta http-equiv="refresh" content="10"></noscript>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{title}</title>{refresh}<style nonce="{nonce}">{read_asset(STYLE)}</style></head>'
        f'<body><main data-part="inside" data-next="{next_event}" data-over="{int(over)}"'
        f' data-wait="{5 * waits}">'
        f"{inside(job, tasks, metrics, events, breaks)}</main>"
        f'<script nonce="{nonce}">{read_asset(SCRIPT)}</script></body></html>'
    )


def logs_page(
    job: Mapping[str, Any],
    tasks: Sequence[Mapping[str, Any]],
    read_ends: Callable[[str], Mapping[str, str]],
    nonce: str,
) -> str:
    """Every task's logs: links to them, and of the first tasks, failed ones before others, the
    last lines where ``read_ends`` finds them by the log's URL."""
    name = escape(str(job["name"]))
    shown = sorted(tasks, key=lambda task: _ORDER.get(str(task["state"]), 4))
    parts = []
    for number, task in enumerate(shown):
        parts.append(
            f"<h2>{escape(str(task['task']))} {_state(str(task['state']))}</h2>"
            f"<p>{_logs(task) or 'no container yet'}</p>"
        )
        ends = read_ends(str(task["log_url"])) if number < ENDS else {}
        for stream, text in ends.items():
            if text:
                parts.append(f'<div class="card">{stream}<pre>{escape(text)}</pre></div>')
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>Logs · {name}</title><style nonce="{nonce}">{read_asset(STYLE)}</style></head>'
        f'<body><main><div class="top"><h1>Logs of {name}</h1>{_state(str(job["state"]))}</div>'
        f'<p><a href="job">{escape(str(job["app_id"]))}</a></p>{"".join(parts)}'
        "</main></body></html>"
    )


def inside(
    job: Mapping[str, Any],
    tasks: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    breaks: Sequence[float] = (),
) -> str:
    """The part of the page that changes."""
    return "".join(
        (
            _head(job),
            _links(job),
            _problems(job),
            _facts(job, tasks),
            _tasks(job, tasks),
            _charts(tasks, metrics, breaks),
            _story(events),
            _foot(job),
        )
    )


def _foot(job: Mapping[str, Any]) -> str:
    """Where the same is as data, and where advice is: to work it out here costs the job's time."""
    portal = str(job["links"].get("portal") or "").rstrip("/")
    where = f'<a href="{escape(portal)}/advice">in the portal</a>, or by ' if is_web(portal) else ""
    return (
        '<footer>The same as JSON: <a href="api/job">job</a>, <a href="api/tasks">tasks</a>,'
        ' <a href="api/events">events</a>, <a href="api/metrics">metrics</a>. What the job could'
        f" change: {where}<code>tony advise {escape(str(job['app_id']))}</code></footer>"
    )


def _head(job: Mapping[str, Any]) -> str:
    percent = f"{job['progress'] * 100:.0f} %"
    return (
        f'<div class="top"><h1>{escape(str(job["name"]))}</h1>{_state(str(job["state"]))}'
        f'<span class="soft">{escape(str(job["description"]))}</span></div>'
        f'<progress max="1" value="{float(job["progress"]):.4f}">{percent}</progress>'
    )


def _state(state: str) -> str:
    return f'<span class="state s-{escape(state.lower())}">{escape(state)}</span>'


def _links(job: Mapping[str, Any]) -> str:
    out = []
    for name, url in job["links"].items():
        if name == "page":
            continue
        if name == "tensorboard":
            url = TENSORBOARD
        elif not is_web(str(url)):
            continue
        out.append(f'<a href="{escape(str(url))}">{escape(name_link(name))}</a>')
    return f'<p class="links">{"".join(out)}</p>' if out else ""


def _problems(job: Mapping[str, Any]) -> str:
    out = ""
    if job["waiting"]:
        out += f'<div class="card wait">Waiting: {escape(str(job["waiting"]))}</div>'
    if job.get("trouble"):
        out += f'<div class="card wait">{escape(str(job["trouble"]))}</div>'
    if job["diagnostics"]:
        bad = "" if job["state"] in ("SUCCEEDED", "RUNNING") else " bad"
        out += f'<div class="card{bad}"><pre>{escape(str(job["diagnostics"]))}</pre></div>'
    return out


def _facts(job: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> str:
    budgets = job["budgets"]
    pairs: List[Tuple[str, str]] = [
        ("Application", job["app_id"]),
        ("User", job["user"]),
        ("Queue", job["queue"]),
        ("Session", str(max(0, job["session"]))),
        ("Started", _clock(job["started"], date=True)),
        ("Ran" if job["finished"] else "Running for", _length(job, tasks)),
        ("Progress", f"{job['progress'] * 100:.0f} %"),
        ("Restarts left", f"{budgets.get('user_left')} of {budgets.get('user_limit')}"),
    ]
    if job["attempt"] > 1:
        pairs.append(("Master", f"attempt {job['attempt']}"))
    if job["tags"]:
        pairs.append(("Tags", ", ".join(job["tags"])))
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>" for name, value in pairs
    )
    return f'<dl class="card facts">{items}</dl>'


def _tasks(job: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> str:
    counts: Dict[str, int] = {}
    for task in tasks:
        counts[task["state"]] = counts.get(task["state"], 0) + 1
    shown = list(tasks)
    if len(shown) > ROWS:
        shown.sort(key=lambda task: _ORDER.get(str(task["state"]), 4))
        shown = shown[:ROWS]
    rest = len(tasks) - len(shown)
    words = ", ".join(f"{count} {escape(state)}" for state, count in counts.items())
    more = f'<p class="soft">and {rest} more: <a href="api/tasks">all</a></p>' if rest else ""
    if job["state"] == "RUNNING":
        words += "".join(
            f" · {escape(role)} {size['there']} of {size['least']}..{size['most']}"
            for role, size in job.get("elastic", {}).items()
        )
    return (
        f"<h2>Tasks · {words}</h2><div class='scroll'><table><thead><tr><th>Task<th>State"
        "<th>Node<th>Exit<th>Time<th>Progress<th>Memory<th>Logs</tr></thead><tbody>"
        + "".join(_row(task) for task in shown)
        + f"</tbody></table></div>{more}"
    )


def _row(task: Mapping[str, Any]) -> str:
    exit_code = "" if task["exit_code"] is None else str(task["exit_code"])
    if task["signal"]:
        exit_code += f" (signal {task['signal']})"
    progress = "" if task["progress"] is None else f"{task['progress'] * 100:.0f} %"
    if task.get("step") is not None:
        progress += f" step {task['step']}"
    memory = task["measures"].get(RSS_MB) or task["usage"].get(PEAK_RSS_MB)
    name = str(task["task"])
    names = [f"GPU {each}" if each.isdecimal() else each[:UUID_SHOWN] for each in task["gpus"]]
    gpus = f'<br><span class="soft">{escape(", ".join(names))}</span>' if names else ""
    words = ""
    if task.get("restarts"):
        words = f'<br><span class="soft">restarted {task["restarts"]} x</span>'
    if task["message"] or task["stderr_tail"]:
        text = "\n".join([*filter(None, [str(task["message"])]), *task["stderr_tail"]])
        words += (
            f'<details id="d-{escape(name)}"><summary>last lines</summary>'
            f"<pre>{escape(text)}</pre></details>"
        )
    return (
        f'<tr><td class="mono">{escape(name)}{words}<td>{_state(str(task["state"]))}'
        f"<td>{escape(str(task['node']))}{gpus}<td class=num>{escape(exit_code)}"
        f"<td class=num>{show_duration(task['duration_s'])}<td class=num>{escape(progress)}"
        f"<td class=num>{f'{memory:.0f} MB' if memory else ''}<td>{_logs(task)}</tr>"
    )


def _logs(task: Mapping[str, Any]) -> str:
    if not task["runs"] and not task["container"]:
        return ""
    out = [f'<a href="{_log(task, task, name)}">{name}</a>' for name in ("stdout", "stderr")]
    previous_runs = [run for run in task["runs"] if run["container"] != task["container"]]
    for run in previous_runs[-5:]:
        url = _log(task, run, "stderr")
        out.append(f'<a class="soft" href="{url}">session {int(run["session"])}</a>')
    return " ".join(out)


def _log(task: Mapping[str, Any], run: Mapping[str, Any], name: str) -> str:
    """Where a stream of one of a task's containers is: at its node's own web server, or here."""
    url = str(run["log_url"])
    if is_web(url):
        return escape(f"{url.rstrip('/')}/{name}")
    query = "" if run is task else f"?container={quote(str(run['container']))}"
    return f"logs/{quote(str(task['task']))}/{name}{query}"


def _charts(
    tasks: Sequence[Mapping[str, Any]], metrics: Mapping[str, Any], breaks: Sequence[float]
) -> str:
    charts = draw_charts(tasks, metrics, breaks=breaks)
    return f"<h2>Metrics</h2>{charts}" if charts else ""


def _story(events: Sequence[Mapping[str, Any]]) -> str:
    lines = "".join(
        f'<li class="{escape(str(event["weight"]))}">'
        f'<span class="soft mono">{_clock(event["time"])}</span>'
        f'<span class="text">{escape(str(event["text"]))}</span></li>'
        for event in reversed(events)
    )
    return f'<h2>Story</h2><ol class="story">{lines}</ol>'


def _clock(at: Optional[float], date: bool = False) -> str:
    if at is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S", time.localtime(at))


def _length(job: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> str:
    if not job["started"]:
        return ""
    # The tasks' times are by the master's clock, which is never set back.
    known = [t["started"] + t["duration_s"] for t in tasks if t.get("started") is not None]
    return show_duration((job["finished"] or max([time.time(), *known])) - job["started"])
