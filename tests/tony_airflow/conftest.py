"""Airflow without a database: a home of its own, no examples, and connections by the environment.

This is read before any test module of this folder imports Airflow, which looks at its environment
once, as it is imported.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import warnings
from typing import Any, Callable

import pytest

_HOME = tempfile.mkdtemp(prefix="tony-airflow-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

for _name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
    del os.environ[_name]  # whatever Airflow this machine has is none of the tests' business
os.environ.update(
    {
        "AIRFLOW_HOME": _HOME,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": os.path.join(_HOME, "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{_HOME}/airflow.db",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": os.path.join(_HOME, "logs"),
    }
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Airflow thinks of itself as it is imported
    import airflow.providers.common.compat.sdk
    import airflow.sdk  # noqa: F401

Connect = Callable[..., str]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """``connect("prod", host=..., extra={...})``: a connection of the type tony; its id."""

    def make(conn_id: str = "tony_default", **fields: Any) -> str:
        connection = {"conn_type": "tony", **fields}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
        return conn_id

    return make
