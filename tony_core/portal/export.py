"""One job as one HTML file, which any browser opens without a network.

Style and script stand in the file; its policy allows these two by their hashes, and nothing else:
no request leaves the page, and a text of the job that got through the escaping would run nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from typing import Optional, Sequence

from markupsafe import Markup

from tony_core.advice.report import Report
from tony_core.charts import draw_charts
from tony_core.history.configuration import ConfigEntry
from tony_core.history.figures import job_figures
from tony_core.history.reader import JobHistory
from tony_core.history.timeline import timeline
from tony_core.portal.advice import show
from tony_core.portal.bars import draw
from tony_core.portal.formats import show_json
from tony_core.portal.rendering import make_templates, read_story
from tony_core.static import SCRIPT, STYLE, read_asset
from tony_core.view import JobView, web_links

MOST_TASKS = 5_000
MOST_BARS = 500
MOST_LINES = 20_000
MOST_CHARTS = 60
_END_OF_ELEMENT = re.compile(r"</(?=style|script)", re.IGNORECASE)


def export_page(
    record: JobHistory,
    view: JobView,
    config: Sequence[ConfigEntry] = (),
    problems: Sequence[str] = (),
    now: Optional[float] = None,
    report: Report = Report(),
) -> str:
    """The page; ``problems``: why there is no configuration."""
    style, script = _inlined(STYLE), _inlined(SCRIPT)
    line = timeline(record)
    drawing = draw(line, MOST_BARS)
    story = read_story(record)
    tasks = [{"task": task.task} for task in view.tasks]
    return (
        make_templates()
        .get_template("export.html")
        .render(
            policy=policy(style, script),
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704
            view=view,
            figures=job_figures(record, line),
            drawing=drawing._replace(more_tasks=0),
            more_bars=drawing.more_tasks,
            links=web_links(view.links, "page"),
            tasks=view.tasks[:MOST_TASKS],
            charts=Markup(draw_charts(tasks, record.metrics, MOST_CHARTS, "", line.breaks)),  # noqa: S704 - escapes
            result=show_json(view.result),
            story=story[:MOST_LINES],
            lines=len(story),
            config=config,
            advice=show(report),
            problems=[*record.problems, *problems],
            written=time.time() if now is None else now,
        )
    )


def policy(style: str, script: str) -> str:
    """What the page may do: be styled and run by exactly these texts."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)};"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inlined(name: str) -> str:
    """One of our own files, as it may stand in an element."""
    return _END_OF_ELEMENT.sub(r"<\\/", read_asset(name))
