"""The addresses of a job's links, while it runs and when it has ended.

A job's page, and the TensorBoard behind it, end with its master. The portal stays, where a site has
one, and all links of a job that has ended lead there, on every scheduler. Without a portal there is
on YARN the application's page in the ResourceManager, with every container's logs; and the list of
all tasks' logs, a part of the job's page while it exists, is then one of the page in Airflow's own
web server.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import conf
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from tony_airflow.connection import YARN, Site
from tony_airflow.links.tony import APPLICATION, LOG, LOGS, PAGE, PORTAL, TENSORBOARD
from tony_core.client.portal_pages import log_page, tasks_page
from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import rm_web
from tony_core.job.settings import is_remote
from tony_core.job.spec import History
from tony_core.view import JobView, TaskView, is_web, web_links


def links_of(
    view: JobView, application: str = "", kept: str = "", portal: str = ""
) -> Dict[str, str]:
    """A job's links by name, without those that lead nowhere now.

    ``application`` is the result of :func:`application_page`, ``kept`` that of
    :func:`history_page`, ``portal`` that of :func:`portal_page`.
    """
    known = web_links(view.links)
    found: Dict[str, str] = {}
    if application:
        found[APPLICATION] = _same_manager(application, known.get(PAGE, ""))
    portal = known.get(PORTAL) or (portal if is_web(portal) else "")
    if portal:
        found[PORTAL] = portal
    if TENSORBOARD in known:
        found[TENSORBOARD] = known[TENSORBOARD]
    if not view.state.ended and PAGE in known:
        found[PAGE] = known[PAGE]
        found[LOGS] = f"{known[PAGE].rstrip('/')}/logs"
    elif view.state.ended and (PORTAL in found or APPLICATION in found or kept):
        found[PAGE] = found.get(PORTAL) or found.get(APPLICATION) or kept
    if view.state.ended and (portal or kept):
        found[LOGS] = tasks_page(portal) if portal else f"{kept}logs"
    for task in view.tasks:
        if view.state.ended and portal:
            log = log_page(portal, task.task) if task.log_refs() or task.log_url else ""
        else:
            log = _log_of(task, "" if view.state.ended else known.get(PAGE, ""))
        if not log and view.state.ended and kept and not portal:
            log = f"{kept}logs/{quote(task.task, safe='', errors='replace')}"
        if log:
            found[LOG + task.task] = log
    return found


def found_links(view: JobView, site: Site) -> Dict[str, str]:
    """The links to a job that a sensor has found: those that stay after its end."""
    application, portal = application_page(site, view.app_id), portal_page(site, view.app_id)
    found = links_of(view, application, portal=portal)
    return {name: url for name, url in found.items() if name in (APPLICATION, PORTAL)}


def lasting_links(view: JobView, seen: Mapping[str, str]) -> Dict[str, str]:
    """The links for a task's result: those that were ``seen``, with their addresses of now.

    Some that were seen lead nowhere when the job has ended, but show where it was.
    """
    return {**seen, **{name: url for name, url in links_of(view).items() if ":" not in name}}


def _log_of(task: TaskView, page: str) -> str:
    """The address of a task's log for a browser; a log in a folder is shown by the job's page."""
    if is_remote(task.log_url):
        return task.log_url if is_web(task.log_url) else ""
    return f"{page.rstrip('/')}/logs/{quote(task.task)}" if task.log_url and page else ""


def history_page(ti: Any) -> str:
    """The page of a task instance's job in Airflow's own web server.

    It is a path without a host where Airflow's configuration has no ``base_url``.
    """
    section = "api" if AIRFLOW_V_3_0_PLUS else "webserver"
    base = str(conf.get(section, "base_url", fallback="") or "").rstrip("/")
    map_index = getattr(ti, "map_index", None)
    dag_id, run_id, task_id = (quote(x, safe="") for x in (ti.dag_id, ti.run_id, ti.task_id))
    return (
        f"{base}/tony/dags/{dag_id}/runs/{run_id}/tasks/{task_id}"
        f"/{-1 if map_index is None else map_index}/"
    )


def application_page(site: Site, app_id: str) -> str:
    """The application's page in the ResourceManager; empty without one."""
    if site.scheduler != YARN:
        return ""
    try:
        urls = rm_web(SiteConfiguration.load(site.env())).urls
    except ConfigurationError:
        return ""
    # With two of them, either redirects to the active one.
    return f"{urls[0]}/cluster/app/{app_id}" if urls else ""


def portal_page(site: Site, app_id: str) -> str:
    """The job in the portal that the connection names; empty without one.

    A job that names a portal itself has its own link, once a page or history of it is read.
    """
    return History(portal_url=site.portal_url).job_page(app_id)


def _same_manager(application: str, page: str) -> str:
    """The page in the ResourceManager that serves the job's page: that one is active."""
    seen = urlsplit(page)
    if "/proxy/application_" not in seen.path and "/cluster/app/" not in seen.path:
        return application
    if seen.port != urlsplit(application).port:
        return application  # a proxy on a host of its own
    return f"{seen.scheme}://{seen.netloc}/cluster/app/{application.rpartition('/')[2]}"
