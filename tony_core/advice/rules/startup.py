"""Time before a program runs: for containers, and until files are on the nodes. Pure."""

from __future__ import annotations

from typing import List, Optional

from tony_core.advice.advice import Advice
from tony_core.advice.facts import Facts
from tony_core.advice.thresholds import STAGING_GRADES, WAITING_GRADES, grade_above
from tony_core.history.story_lines import QUEUED, RUNNING, STAGING, STARTING, WAITING
from tony_core.job.spec import Tracking

_LONGEST = 200  # characters of a scheduler's reason
#: What brings files to the nodes.
_FILES = (
    "tony.containers.resources", "tony.client.python-venv", "tony.client.src-dir",
    "tony.docker.containers.image", "tony.application.hadoop.location", "tony.runtime.python",
)  # fmt: skip


def advise_startup(facts: Facts) -> List[Advice]:
    """On waits that are a large part of the job's time."""
    return [each for each in (_waiting(facts), _staging(facts)) if each is not None]


def _waiting(facts: Facts) -> Optional[Advice]:
    queued, waiting = facts.sums.get(QUEUED, 0.0), facts.sums.get(WAITING, 0.0)
    total = queued + waiting
    if total < facts.least.wait_s or not facts.sums.get(RUNNING):
        return None  # without a story all of a job's time looks like waiting
    severity = grade_above(total / facts.duration_s, WAITING_GRADES)
    if severity is None:
        return None
    spans = [span for span in facts.line.phases if span.kind == WAITING]
    reasons = [span.text for span in sorted(spans, key=lambda s: s.begin - s.end) if span.text]
    reason = reasons[0][:_LONGEST] if reasons else ""
    gangs = [
        role for role in facts.roles
        if role.instances > 1 and not role.is_elastic and role.tracking == Tracking.TRACKED
    ]  # fmt: skip
    todo = "Ask for less (memory, cores, GPUs of each task), or use another queue or time"
    if gangs and facts.is_gang:
        todo += (
            f"; with tony.{gangs[0].name}.min-instances the job begins with fewer tasks and takes"
            " the rest in when they come, where its framework can grow"
        )
    return Advice(
        "waiting",
        severity,
        "",
        f"The job waited {total:.0f} s of its {facts.duration_s:.0f} s for the scheduler"
        + (f": {reason}" if reason else "."),
        f"{todo}.",
        {"waited (s)": round(total, 1), "for its master (s)": round(queued, 1),
         "for containers (s)": round(waiting, 1), "duration (s)": round(facts.duration_s, 1)},
        (),
        {"duration_s": total - facts.least.wait_s},
    )  # fmt: skip


def _staging(facts: Facts) -> Optional[Advice]:
    staging, starting = facts.sums.get(STAGING, 0.0), facts.sums.get(STARTING, 0.0)
    sessions = max(1, len(facts.line.sessions))
    beyond = staging - facts.least.staging_s * sessions
    if beyond <= 0 or facts.duration_s <= 0:
        return None
    severity = grade_above(staging / facts.duration_s, STAGING_GRADES)
    if severity is None:
        return None
    files = [key for key in facts.config if key in _FILES or key.endswith(".resources")]
    named = f" ({', '.join(sorted(files))})" if files else ""
    return Advice(
        "staging",
        severity,
        "",
        f"Files and executors took {staging:.0f} s to get onto the nodes, of the job's"
        f" {facts.duration_s:.0f} s.",
        f"Bring less, and fewer large archives{named}: put data on a file system that programs"
        " read from, and environments that rarely change on the nodes or into an image.",
        {"staging (s)": round(staging, 1), "starting (s)": round(starting, 1),
         "sessions": float(sessions), "duration (s)": round(facts.duration_s, 1)},
        (),
        {"duration_s": beyond},
    )  # fmt: skip
