"""URLs of YARN's pages and files, for people and for requests."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

from tony_core.hadoop.yarn.ids import ApplicationId, ContainerId
from tony_core.hadoop.yarn.messages import yarn


def application_page(rm_url: str, application: ApplicationId) -> str:
    """The ResourceManager's own page of an application."""
    return f"{rm_url}/cluster/app/{application}"


def proxied(rm_url: str, application: ApplicationId) -> str:
    """The root of the application's own pages, through the ResourceManager's proxy."""
    return f"{rm_url}/proxy/{application}/"


def container_logs(node_url: str, container: ContainerId, user: str) -> str:
    """The page of a container's logs on its node; those of aggregation are linked from it."""
    return f"{node_url}/node/containerlogs/{container}/{quote(user, safe='')}"


def url_message(location: str) -> yarn.URL:
    """A file's URL as a launch context says it."""
    parts = urlsplit(location)
    if not parts.scheme:
        raise ValueError(f"{location!r} names no file system (hdfs://...)")
    message = yarn.URL(scheme=parts.scheme, port=parts.port or -1, file=unquote(parts.path))
    if parts.hostname:
        # As it is written: the name of a pair of NameNodes may have capitals.
        host = parts.netloc.rpartition("@")[2]
        message = message.replace(host=host.rpartition(":")[0] if parts.port else host)
    if parts.username:
        message = message.replace(user_info=parts.netloc.rpartition("@")[0])
    return message


def location_of(message: yarn.URL) -> str:
    """The URL that a message stands for."""
    user = f"{message.user_info}@" if message.user_info else ""
    port = f":{message.port}" if message.port > 0 else ""
    authority = f"{user}{message.host}{port}"
    return f"{message.scheme}://{authority}{quote(message.file)}"
