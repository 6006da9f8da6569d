"""``--dry-run``: exactly what would be sent, with every secret masked."""

from __future__ import annotations

import json
from typing import Any, Dict

from tony_core.cli.output import line, print_json
from tony_core.client.submission import Prepared
from tony_core.job.mask import MASK, is_secret, mask_env, mask_settings, mask_text
from tony_core.job.spec import Job


def show(prepared: Prepared, as_json: bool) -> int:
    """Print it, and return the exit code 0."""
    data = as_data(prepared)
    if as_json:
        print_json(data)
        return 0
    from tony_core.job.xmlfile import job_to_xml

    line(f"scheduler: {data['scheduler']}")
    line(f"application: {data['app_id']} (an example; each submit gets its own)")
    line("request:")
    for text in json.dumps(data["request"], indent=2, default=str).splitlines():
        line(f"  {text}")
    line(
        f"files, staged below {data['staging_root']} ({data['upload_bytes']} bytes are new there):"
    )
    for item in data["artifacts"]:
        line(f"  {item['name']} ({item['use']}, {item['kind']}, {item['size']} bytes)")
        line(f"    from {item['source']}")
        line(f"    to   {item['uri']}")
    line("job (tony-final.xml):")
    line(job_to_xml(prepared.job, masked=True).rstrip())
    return 0


def as_data(prepared: Prepared) -> Dict[str, Any]:
    submission = prepared.submission
    artifacts = [
        {**item.to_json(), "source": mask_text(item.source), "uri": mask_text(item.uri)}
        for item in submission.artifacts
    ]
    return {
        "type": "dry-run",
        "scheduler": submission.scheduler,
        "app_id": prepared.app_id,
        "staging_root": prepared.root,
        "upload_bytes": prepared.plan.upload_bytes,
        "request": masked(dict(submission.details)),
        "artifacts": artifacts,
        "job": job_data(prepared.job),
    }


def job_data(job: Job) -> Dict[str, Any]:
    """A job with its secrets masked."""
    from tony_core.job.jsonfile import job_to_json

    seen = job.replace(settings=mask_settings(job.settings))
    program = seen.program
    data: Dict[str, Any] = json.loads(job_to_json(seen))["job"]
    data["program"]["shell_env"] = [list(pair) for pair in mask_env(dict(program.shell_env))]
    data["program"]["container_env"] = [
        list(pair) for pair in mask_env(dict(program.container_env))
    ]
    masked_data: Dict[str, Any] = masked(data)
    return masked_data


def masked(value: Any, name: str = "") -> Any:
    """Plain data with every secret in it hidden."""
    if isinstance(value, dict):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(item, name) for item in value]
    if isinstance(value, str) and value:
        return MASK if is_secret(name) else mask_text(value)
    return value
