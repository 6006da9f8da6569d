"""What a job takes along for its tracker: certificates, and the submitter's credentials.

Credentials are in the submitter's environment under MLflow's own names. They go with the job only
where that environment names the job's very server (``MLFLOW_TRACKING_URI``): a job file that names
another one must not get them, and may be another's than the environment is. Or the job gives them
to its programs (``--shell_env``): then its master has them, too. They travel as the rest of the
job does, readable by its owner's processes alone, and are masked wherever people read.
"""

from __future__ import annotations

import os.path
import re
from typing import Dict, List, Mapping
from urllib.parse import urlsplit

from tony_core.job.problems import Problem, Severity, problem_at
from tony_core.job.spec import Job

URI, EXPERIMENT = "tony.mlflow.tracking-uri", "tony.mlflow.experiment"
CREDENTIALS = {
    "username": "MLFLOW_TRACKING_USERNAME",
    "password": "MLFLOW_TRACKING_PASSWORD",
    "token": "MLFLOW_TRACKING_TOKEN",
}
LONGEST_EXPERIMENT = 500
MOST_BYTES = 1 << 20
_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----", re.ASCII
)


def with_credentials(job: Job, env: Mapping[str, str]) -> Job:
    """The job with the credentials for its tracker."""
    if not job.mlflow.tracking_uri:
        return job
    own = dict((*job.program.container_env, *job.program.shell_env))
    given: Mapping[str, str] = {}
    if any(own.get(name) for name in CREDENTIALS.values()):
        elsewhere = own.get("MLFLOW_TRACKING_URI", "")
        given = own if not elsewhere or _same_server(elsewhere, job.mlflow.tracking_uri) else {}
    elif _same_server(env.get("MLFLOW_TRACKING_URI", ""), job.mlflow.tracking_uri):
        given = env
    found = {field: given.get(name, "") for field, name in CREDENTIALS.items()}
    return job.replace(mlflow=job.mlflow._replace(**found))


def check_tracking(job: Job, env: Mapping[str, str]) -> List[Problem]:
    """What is wrong with a job's tracker."""
    mlflow = job.mlflow
    if not mlflow.tracking_uri:
        return []
    problem = _wrong_uri(mlflow.tracking_uri)
    if problem:
        return [problem_at(job, URI, problem)]
    found: List[Problem] = []
    if not mlflow.experiment or len(mlflow.experiment) > LONGEST_EXPERIMENT:
        text = f"a name of an experiment has 1 to {LONGEST_EXPERIMENT} characters"
        found.append(problem_at(job, EXPERIMENT, text))
    is_given = bool(mlflow.password or mlflow.token)
    if is_given and mlflow.tracking_uri.startswith("http://"):
        text = "the credentials go to this server without TLS: use https where others may listen"
        found.append(problem_at(job, URI, text, Severity.WARNING))
    here = [name for name in CREDENTIALS.values() if env.get(name)]
    if here and not is_given:
        text = (
            f"{', '.join(here)} of this environment is not sent there: MLFLOW_TRACKING_URI beside"
            " it does not name this server. Set it to the same address"
        )
        found.append(problem_at(job, URI, text, Severity.WARNING))
    return found


def _wrong_uri(text: str) -> str:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        return f"this is not a URL: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "expected the address of an MLflow server, http://HOST:PORT or https://HOST"
    if "@" in parts.netloc:
        return (
            "an address must not hold a name or password: set MLFLOW_TRACKING_USERNAME and"
            " MLFLOW_TRACKING_PASSWORD in the environment"
        )
    if parts.query or parts.fragment or not text.isascii() or not text.isprintable():
        return "an address of a server has no ?, # or characters beside those of a URL"
    return ""


def _same_server(one: str, other: str) -> bool:
    return bool(one) and _parts(one) == _parts(other)


def _parts(text: str) -> Dict[str, object]:
    try:
        parts = urlsplit(text.strip())
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return {"text": text}
    return {
        "scheme": parts.scheme, "host": parts.hostname, "port": port,
        "path": parts.path.rstrip("/"),
    }  # fmt: skip


def read_certificates(path: str) -> str:
    """The certificates of a file, and nothing else of it; empty where there are none."""
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as stream:
            text = stream.read(MOST_BYTES).decode("ascii", "replace")
    except OSError:
        return ""
    return "".join(f"{block}\n" for block in _CERTIFICATE.findall(text))
