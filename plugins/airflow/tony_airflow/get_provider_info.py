"""What Airflow is told of this package, by the entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any, Dict

INTEGRATION = "TonY"


def get_provider_info() -> Dict[str, Any]:
    """Read in every process of Airflow: plain data, nothing is imported for it."""
    return {
        "package-name": "tony-py",
        "name": "TonY",
        "description": "Distributed training on YARN, or on one machine, as a task among others.",
        "integrations": [{"integration-name": INTEGRATION, "tags": ["software"]}],
        "hooks": _modules("tony_airflow.hooks.tony"),
        "operators": _modules("tony_airflow.operators.tony"),
        "sensors": _modules("tony_airflow.sensors.tony"),
        "triggers": _modules("tony_airflow.triggers.tony", "tony_airflow.triggers.sensing"),
        "task-decorators": [
            {"name": "tony", "class-name": "tony_airflow.decorators.tony.tony_task"}
        ],
        "connection-types": [
            {
                "connection-type": "tony",
                "hook-class-name": "tony_airflow.hooks.tony.TonyHook",
                "hook-name": "TonY",
            }
        ],
        "extra-links": [
            f"tony_airflow.links.tony.{name}"
            for name in (
                "TensorBoardLink",
                "TaskLogsLink",
                "YarnApplicationLink",
                "PortalLink",
                "TaskLogLink",
            )
        ],
    }


def _modules(*names: str) -> Any:
    return [{"integration-name": INTEGRATION, "python-modules": list(names)}]
