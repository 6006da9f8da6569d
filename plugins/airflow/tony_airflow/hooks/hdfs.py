"""HDFS as Airflow knows it: its provider's WebHDFSHook, by a connection of the type ``webhdfs``.

For what a DAG puts on HDFS or looks for there before a job. What a job itself brings is staged by
TonY's own client, as the user and to the file system of the job's scheduler.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator
from urllib.parse import unquote, urlsplit


@contextmanager
def files_of(conn_id: str) -> Iterator[Any]:
    """The hdfscli client of a WebHDFSHook, whose connections do not stay open."""
    from airflow.providers.apache.hdfs.hooks.webhdfs import WebHDFSHook

    client = WebHDFSHook(conn_id).get_conn()
    try:
        yield client
    finally:
        session = getattr(client, "_session", None)
        if session is not None:
            session.close()


def path_of(location: str) -> str:
    """The path that WebHDFS takes, of a path or an ``hdfs://`` location."""
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme else location
