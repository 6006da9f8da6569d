"""This package's description for Airflow, by the entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any, Dict

INTEGRATION = "TonY"


def get_provider_info() -> Dict[str, Any]:
    """Plain data, which imports nothing: every process of Airflow calls this."""
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
                "conn-fields": _form(),
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "password", "extra"],
                    "relabeling": {
                        "host": "ResourceManagers",
                        "port": "Their port",
                        "login": "User",
                    },
                    "placeholders": {
                        "host": "rm1.example.com,rm2.example.com (none with a folder, or local)",
                        "port": "8032",
                        "login": "whom the cluster takes the jobs for",
                    },
                },
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


def _form() -> Dict[str, Any]:
    """The fields of the connection's form; each is kept in its extra under the same name."""
    return {
        "scheduler": {
            "label": "Scheduler",
            "schema": {"type": ["string", "null"], "enum": ["yarn", "local"], "default": "yarn"},
            "description": "yarn, or local: the embedded one, on the worker's own machine",
        },
        "hadoop_conf_dir": _text(
            "Hadoop configuration folder",
            "on every worker and triggerer; without it and without ResourceManagers,"
            " HADOOP_CONF_DIR of their environment counts",
        ),
        "name_node": _text(
            "NameNode", "hdfs://HOST:PORT (fs.defaultFS), where there is no configuration folder"
        ),
        "principal": _text(
            "Principal",
            "the login on a cluster with Kerberos, with a keytab; without both, the ticket of"
            " airflow kerberos or of KRB5CCNAME counts",
        ),
        "keytab": _text("Keytab", "a file by its absolute path, on every worker and triggerer"),
        "proxy_user": _text(
            "Proxy user", "for whom the login acts, where hadoop.proxyuser.* allows it"
        ),
        "proxy_user_final": {
            "label": "Tasks choose no other user",
            "schema": {"type": "boolean", "default": False},
            "description": "refuse tasks whose proxy_user or run_as_owner names another user",
        },
        "hadoop": _text(
            "Hadoop properties",
            'any other property of the cluster: {"yarn.resourcemanager.webapp.address": "rm:8088"}',
            "multiline",
        ),
        "webhdfs_conn_id": _text(
            "WebHDFS connection", "a connection of the type webhdfs, for staging and checks"
        ),
        "queue": _text("Queue", "for jobs that name none"),
        "history_location": _text(
            "History location", "a folder or hdfs:// location where jobs that name none keep it"
        ),
        "portal_url": _text("Portal", "the address of the site's portal"),
        "home": _text("TONY_HOME", "the folder of the embedded scheduler"),
        "conf": _text(
            "TonY keys",
            'below every job file: {"tony.am.memory": "1g"}',
            "multiline",
        ),
    }


def _text(label: str, description: str, form: str = "") -> Dict[str, Any]:
    schema: Dict[str, Any] = {"type": ["string", "null"]}
    if form:
        schema["format"] = form
    return {"label": label, "schema": schema, "description": description}
