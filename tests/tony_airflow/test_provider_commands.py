"""Airflow's own commands show what we bring, installed as we are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest

from tony_airflow.get_provider_info import get_provider_info

pytestmark = pytest.mark.airflow

INFO = get_provider_info()


def airflow(*words: str) -> List[Dict[str, Any]]:
    """What ``airflow providers ...`` prints, as JSON."""
    command = [str(Path(sys.executable).parent / "airflow"), "providers", *words, "-o", "json"]
    done = subprocess.run(
        command,
        env={**os.environ, "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: List[Dict[str, Any]] = json.loads(done.stdout[done.stdout.index("[") :])
    return found


def column(rows: List[Dict[str, Any]], name: str) -> Set[str]:
    assert rows and name in rows[0], rows[:1]
    return {str(row[name]) for row in rows}


def test_list() -> None:
    assert "tony-py" in column(airflow("list"), "package_name")


def test_links() -> None:
    assert set(INFO["extra-links"]) <= column(airflow("links"), "extra_link_class_name")


def test_hooks() -> None:
    (ours,) = [row for row in airflow("hooks") if row["connection_type"] == "tony"]
    assert ours["class"] == "tony_airflow.hooks.tony.TonyHook"
    assert ours["conn_id_attribute_name"] == "tony_conn_id"
    assert ours["hook_name"] == "TonY"


def test_triggers() -> None:
    listed = {module for one in INFO["triggers"] for module in one["python-modules"]}
    found = json.dumps(airflow("triggers"))
    assert all(module in found for module in listed)


def test_widgets() -> None:
    found = column(airflow("widgets"), "connection_parameter_name")
    (connection,) = INFO["connection-types"]
    wanted = {f"extra__tony__{name}" for name in connection["conn-fields"]}
    assert wanted <= found


def test_behaviours() -> None:
    assert "tony" in column(airflow("behaviours"), "field_behaviours")


def test_a_connections_hook_is_ours() -> None:
    """What the *Test* button of the connection's form calls."""
    from airflow.providers.common.compat.sdk import Connection

    hook = Connection(conn_id="prod", conn_type="tony").get_hook()
    assert (type(hook).__name__, hook.tony_conn_id) == ("TonyHook", "prod")
