"""Where a job's buttons lead now, while it runs and when it has ended.

A job's page, and the TensorBoard behind it, go when its master goes. What stays is the portal,
where a site has one, and on YARN the application's page in the ResourceManager, with every
container's logs. The list of all tasks' logs is a part of the job's page while there is one, then
of the page in Airflow's own web server.
"""

from __future__ import annotations

from typing import Any, Dict
from urllib.parse import quote, urlsplit

from tony_airflow.connection import YARN, Site
from tony_airflow.links.tony import APPLICATION, LOG, LOGS, PAGE, PORTAL, TENSORBOARD
from tony_core.client.view import JobView, TaskView
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import rm_web
from tony_core.job.settings import is_remote


def links_of(view: JobView, application: str = "", kept: str = "") -> Dict[str, str]:
    """A job's links by name: only those that lead somewhere now.

    ``application`` is what :func:`application_page` gives, ``kept`` what :func:`history_page` does.
    """
    told = {name: url for name, url in view.links.items() if is_web(url)}
    found: Dict[str, str] = {}
    if application:
        found[APPLICATION] = _same_manager(application, told.get(PAGE, ""))
    if PORTAL in told:
        found[PORTAL] = told[PORTAL]
    if TENSORBOARD in told:
        found[TENSORBOARD] = told[TENSORBOARD]
    if not view.state.ended and PAGE in told:
        found[PAGE] = told[PAGE]
        found[LOGS] = f"{told[PAGE].rstrip('/')}/logs"
    elif view.state.ended and (PORTAL in found or APPLICATION in found or kept):
        found[PAGE] = found.get(PORTAL) or found.get(APPLICATION) or kept
    if view.state.ended and kept:
        found[LOGS] = f"{kept}logs"
    for task in view.tasks:
        log = _log_of(task, "" if view.state.ended else told.get(PAGE, ""))
        if not log and view.state.ended and kept:
            log = f"{kept}logs/{quote(task.task, safe='', errors='replace')}"
        if log:
            found[LOG + task.task] = log
    return found


def _log_of(task: TaskView, page: str) -> str:
    """Where a browser can read a task's log; what is only a folder somewhere, by the job's page."""
    if is_remote(task.log_url):
        return task.log_url if is_web(task.log_url) else ""
    return f"{page.rstrip('/')}/logs/{quote(task.task)}" if task.log_url and page else ""


def is_web(url: str) -> bool:
    """Whether a browser may be led there."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and url.startswith(f"{parts.scheme}://")
    except ValueError:
        return False


def history_page(ti: Any) -> str:
    """The page of a task instance's job in Airflow's own web server; from its root where Airflow
    does not know its address."""
    from airflow.providers.common.compat.sdk import conf
    from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

    section = "api" if AIRFLOW_V_3_0_PLUS else "webserver"
    base = str(conf.get(section, "base_url", fallback="") or "").rstrip("/")
    map_index = getattr(ti, "map_index", None)
    dag_id, run_id, task_id = (quote(x, safe="") for x in (ti.dag_id, ti.run_id, ti.task_id))
    return (
        f"{base}/tony/dags/{dag_id}/runs/{run_id}/tasks/{task_id}"
        f"/{-1 if map_index is None else map_index}/"
    )


def application_page(site: Site, app_id: str) -> str:
    """The application in the ResourceManager; empty where there is none."""
    if site.scheduler != YARN:
        return ""
    try:
        urls = rm_web(SiteConfiguration.load(site.env())).urls
    except ConfigurationError:
        return ""
    # Of a pair, either leads on to the one that is active.
    return f"{urls[0]}/cluster/app/{app_id}" if urls else ""


def _same_manager(application: str, page: str) -> str:
    """With the ResourceManager through which the job's page is seen: that one is active."""
    seen = urlsplit(page)
    if "/proxy/application_" not in seen.path and "/cluster/app/" not in seen.path:
        return application
    if seen.port != urlsplit(application).port:
        return application  # a proxy apart
    return f"{seen.scheme}://{seen.netloc}/cluster/app/{application.rpartition('/')[2]}"
