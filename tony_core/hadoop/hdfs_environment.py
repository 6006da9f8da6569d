"""TONY_HDFS: what a program needs to reach HDFS by itself, where its node has no Hadoop.

Read by ``program/tony_hdfs_client.py`` (``tony.checkpoints``, ``tony.dataset``)::

    {"default_fs": "hdfs://ns", "user": "ann", "namenodes": {"ns": ["http://h1:9870", ...]}}

``namenodes`` holds, for each file system by the authority of its URLs, where WebHDFS is: of a
highly available one every NameNode, in any order. It holds no secret.
"""

from __future__ import annotations

import json
from typing import Dict, List

from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.site.endpoints import name_service, viewfs_mounts

VARIABLE = "TONY_HDFS"


def hdfs_environment(conf: SiteConfiguration, user: str) -> str:
    """The value of TONY_HDFS; empty where the site has no HDFS."""
    default_fs = conf.text("fs.defaultFS")
    urls = [default_fs, *(f"hdfs://{name}" for name in conf.names("dfs.nameservices"))]
    if default_fs.startswith("viewfs:"):
        urls += viewfs_mounts(conf).values()
    namenodes: Dict[str, List[str]] = {}
    for url in urls:
        try:
            service = name_service(conf, url)
        except ConfigurationError:
            continue  # of several, one that nobody here can use
        namenodes[service.name] = list(service.web.urls)
    if not namenodes:
        return ""
    said = {"default_fs": default_fs, "user": user, "namenodes": namenodes}
    return json.dumps(said, separators=(",", ":"))
