"""The tables of an Azkaban 2.5 server in H2, as its statements name their columns.

The server makes its tables itself, from one ``create.TABLE.sql`` each in the folder that
``database.sql.scripts.dir`` names, beside ``database.properties`` with the version they are of.
These files are no part of the jar; so they are made here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Tuple

VERSION = "2.5"

_NAME = "VARCHAR(512)"
_TIME = "BIGINT"
_PROJECT = ("project_id INT", "version INT")
_ENCODED = ("modified_time BIGINT", "encoding_type TINYINT")

TABLES: Dict[str, Tuple[str, ...]] = {
    "properties": (
        f"name {_NAME}",
        "type INT",
        f"modified_time {_TIME}",
        f"value {_NAME}",
        "PRIMARY KEY (name, type)",
    ),
    "projects": (
        "id INT AUTO_INCREMENT PRIMARY KEY",
        f"name {_NAME}",
        "active BOOLEAN",
        f"modified_time {_TIME}",
        f"create_time {_TIME}",
        "version INT",
        f"last_modified_by {_NAME}",
        "description VARCHAR(4096)",
        "enc_type TINYINT",
        "settings_blob BLOB",
    ),
    # Its key is what makes the server's MERGE of a permission work.
    "project_permissions": (
        "project_id INT",
        f"modified_time {_TIME}",
        f"name {_NAME}",
        "permissions INT",
        "isGroup BOOLEAN",
        "PRIMARY KEY (project_id, name)",
    ),
    "project_versions": (
        *_PROJECT,
        f"upload_time {_TIME}",
        f"uploader {_NAME}",
        "file_type VARCHAR(64)",
        f"file_name {_NAME}",
        "md5 BINARY(16)",
        "num_chunks INT",
        "PRIMARY KEY (project_id, version)",
    ),
    "project_files": (
        *_PROJECT,
        "chunk INT",
        "size INT",
        "file BLOB",
        "PRIMARY KEY (project_id, version, chunk)",
    ),
    "project_flows": (
        *_PROJECT,
        f"flow_id {_NAME}",
        *_ENCODED,
        "json BLOB",
        "PRIMARY KEY (project_id, version, flow_id)",
    ),
    "project_properties": (
        *_PROJECT,
        f"name {_NAME}",
        *_ENCODED,
        "property BLOB",
        "PRIMARY KEY (project_id, version, name)",
    ),
    "project_events": (
        "project_id INT",
        "event_type TINYINT",
        f"event_time {_TIME}",
        f"username {_NAME}",
        "message VARCHAR(4096)",
    ),
    "execution_flows": (
        "exec_id INT AUTO_INCREMENT PRIMARY KEY",
        *_PROJECT,
        f"flow_id {_NAME}",
        "status TINYINT",
        f"submit_user {_NAME}",
        f"submit_time {_TIME}",
        f"update_time {_TIME}",
        f"start_time {_TIME}",
        f"end_time {_TIME}",
        "enc_type TINYINT",
        "flow_data BLOB",
    ),
    "execution_jobs": (
        "exec_id INT",
        *_PROJECT,
        f"flow_id {_NAME}",
        f"job_id {_NAME}",
        "attempt INT",
        f"start_time {_TIME}",
        f"end_time {_TIME}",
        "status TINYINT",
        "input_params BLOB",
        "output_params BLOB",
        "attachments BLOB",
        "PRIMARY KEY (exec_id, job_id, attempt)",
    ),
    "execution_logs": (
        "exec_id INT",
        f"name {_NAME}",
        "attempt INT",
        "enc_type TINYINT",
        "start_byte INT",
        "end_byte INT",
        "log BLOB",
        f"upload_time {_TIME}",
        "PRIMARY KEY (exec_id, name, attempt, start_byte)",
    ),
    "active_executing_flows": (
        "exec_id INT PRIMARY KEY",
        f"host {_NAME}",
        "port INT",
        f"update_time {_TIME}",
    ),
    "schedules": (
        "project_id INT",
        f"project_name {_NAME}",
        f"flow_name {_NAME}",
        "status TINYINT",
        f"first_sched_time {_TIME}",
        "timezone VARCHAR(64)",
        "period VARCHAR(16)",
        f"last_modify_time {_TIME}",
        f"next_exec_time {_TIME}",
        f"submit_time {_TIME}",
        f"submit_user {_NAME}",
        "enc_type TINYINT",
        "schedule_options BLOB",
        "PRIMARY KEY (project_id, flow_name)",
    ),
    "triggers": (
        "trigger_id INT AUTO_INCREMENT PRIMARY KEY",
        f"trigger_source {_NAME}",
        f"modify_time {_TIME}",
        "enc_type TINYINT",
        "data BLOB",
    ),
}


def write(folder: Path) -> None:
    """The scripts that a new server makes its tables with."""
    folder.mkdir(parents=True)
    (folder / "database.properties").write_text(f"version={VERSION}\n")
    for table, columns in TABLES.items():
        # The server takes a statement for ended at a semicolon that ends a line.
        text = f"CREATE TABLE {table} (\n  " + ",\n  ".join(columns) + "\n);\n"
        (folder / f"create.{table}.sql").write_text(text)
