"""Airflow's plugin, which every process of Airflow imports by the entry point ``airflow.plugins``.

Only a web server asks for pages, so only there they are imported. The listener needs Airflow 3.3.
"""

from __future__ import annotations

from typing import Any, List

from airflow.plugins_manager import AirflowPlugin
from airflow.providers.common.compat.version_compat import (
    AIRFLOW_V_3_0_PLUS,
    AIRFLOW_V_3_3_PLUS,
)

PREFIX = "/tony"


class TonyPlugin(AirflowPlugin):  # type: ignore[misc, unused-ignore]
    """A page for the job of each task instance, and the listener that ends jobs of marked tasks."""

    name = "tony"

    @property
    def listeners(self) -> List[Any]:  # type: ignore[override, unused-ignore]
        """Airflow's call in every process; the listener acts only in an API server."""
        if not AIRFLOW_V_3_3_PLUS:
            return []
        from tony_airflow.pages import listener

        return [listener]

    @property
    def fastapi_apps(self) -> List[Any]:  # type: ignore[override, unused-ignore]
        """Airflow 3's call."""
        if not AIRFLOW_V_3_0_PLUS:
            return []
        from tony_airflow.pages.api_server import app

        return [{"app": app, "url_prefix": PREFIX, "name": "TonY"}]

    @property
    def flask_blueprints(self) -> List[Any]:  # type: ignore[override, unused-ignore]
        """Airflow 2's call."""
        if AIRFLOW_V_3_0_PLUS:
            return []
        from tony_airflow.pages.webserver import blueprint

        return [blueprint]
