"""Airflow's plugin: by the entry point ``airflow.plugins`` every process of Airflow imports this.

Only a web server asks for its pages, so only there they are made; marks are for Airflow 3.3's.
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
    """A page for the job of each task instance, and what a person's mark does to it."""

    name = "tony"

    @property
    def listeners(self) -> List[Any]:  # type: ignore[override, unused-ignore]
        """Every process's call; what listens does something in an API server alone."""
        if not AIRFLOW_V_3_3_PLUS:
            return []
        from tony_airflow.pages import marks

        return [marks]

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
