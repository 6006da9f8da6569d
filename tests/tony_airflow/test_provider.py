"""The description for Airflow fits its own schemas, and the modules that exist."""

from __future__ import annotations

import configparser
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator

import airflow
import jsonschema
import pytest

from tests.importgraph import CHECKOUT
from tony_airflow.connection import site_of
from tony_airflow.get_provider_info import get_provider_info

AIRFLOW = Path(airflow.__file__).parent
INFO = get_provider_info()
(CONNECTION,) = INFO["connection-types"]


def schema(name: str) -> Any:
    return json.loads((AIRFLOW / name).read_text())


def found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_airflows_own_schema() -> None:
    jsonschema.validate(INFO, schema("provider_info.schema.json"))


def test_the_forms_behaviour() -> None:
    behaviour = {
        key.replace("-", "_"): value for key, value in CONNECTION["ui-field-behaviour"].items()
    }
    jsonschema.validate(behaviour, schema("customized_form_field_behaviours.schema.json"))


def modules() -> Iterator[str]:
    for kind in ("hooks", "operators", "sensors", "triggers"):
        for one in INFO.get(kind, []):
            yield from one["python-modules"]


@pytest.mark.parametrize("module", list(modules()))
def test_every_module_that_is_listed_is_there(module: str) -> None:
    importlib.import_module(module)


def test_every_class_that_is_listed_is_there() -> None:
    hook = found(CONNECTION["hook-class-name"])
    assert hook.conn_type == CONNECTION["connection-type"]
    assert hook.hook_name == CONNECTION["hook-name"]
    for path in INFO["extra-links"]:
        assert found(path)().name
    for one in INFO.get("task-decorators", []):
        assert callable(found(one["class-name"]))


def test_every_field_of_the_form_is_read() -> None:
    values: Dict[str, Any] = {
        "scheduler": "yarn",
        "hadoop_conf_dir": "/etc/hadoop",
        "hadoop": '{"a": "b"}',
        "conf": "{}",
        "keytab": "/etc/x.keytab",
        "proxy_user_final": True,
    }
    extra = {name: values.get(name, "x") for name in CONNECTION["conn-fields"]}

    class Connection:
        conn_id, conn_type = "prod", "tony"
        host = port = login = None
        extra = ""
        extra_dejson: Dict[str, Any] = {}

    Connection.extra = json.dumps(extra)
    site = site_of(Connection())
    for name in extra:
        if name != "conf":
            assert getattr(site, name), name


def test_the_entry_point_leads_here() -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(CHECKOUT / "setup.cfg", encoding="utf-8")
    declared = parser["options.entry_points"]["apache_airflow_provider"].split(" = ")
    assert declared[0].strip() == "provider_info"
    module, _, function = declared[1].strip().partition(":")
    assert getattr(importlib.import_module(module), function) is get_provider_info


def test_telling_it_imports_nothing_of_airflow() -> None:
    """It is asked in every process of Airflow as that starts."""
    program = (
        "import sys; from tony_airflow.get_provider_info import get_provider_info as g; g();"
        "print([m for m in sys.modules if m.split('.')[0] in ('airflow', 'tony_core')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CHECKOUT / "plugins" / "airflow",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_our_folder_never_shadows_airflow() -> None:
    """``plugins/airflow`` with an ``__init__.py`` would be taken for the real one."""
    assert not (CHECKOUT / "plugins" / "airflow" / "__init__.py").exists()
    assert not (CHECKOUT / "plugins" / "__init__.py").exists()
    assert CHECKOUT / "plugins" not in AIRFLOW.parents
