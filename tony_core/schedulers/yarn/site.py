"""The few properties of a site that its nodes need, picked from all that the client has read.

Nothing on a node needs HADOOP_CONF_DIR: what the master and the executors have to know (where
the ResourceManagers and the NameNodes are, and how they want to be spoken to) is resolved where
the job is submitted and travels with it. Everything else stays here; above all, whatever a site
keeps in its files that is nobody's business.

Runs on the nodes' Python (3.8 syntax), standard library only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Mapping

if TYPE_CHECKING:
    from tony_core.hadoop.site.configuration import SiteConfiguration

_FILES = (
    r"fs\.defaultFS",
    r"fs\.viewfs\.mounttable\..+",
    r"fs\.permissions\.umask-mode",
    r"dfs\.nameservices",
    r"dfs\.ha\.namenodes\..+",
    r"dfs\.namenode\.(rpc|http|https)-address(\..+)?",
    r"dfs\.http\.policy",
    r"dfs\.client\.use\.datanode\.hostname",
    r"dfs\.blocksize",
    r"dfs\.replication",
)
"""Of HDFS: for the master and for executors."""

_CLUSTER = (
    r"hadoop\.rpc\.protection",
    r"hadoop\.security\.authentication",
    r"yarn\.resourcemanager\.(ha\.enabled|ha\.rm-ids|cluster-id)",
    r"yarn\.resourcemanager\.hostname(\..+)?",
    r"yarn\.resourcemanager\.(scheduler\.)?address(\..+)?",
    r"yarn\.resourcemanager\.webapp\.(https\.)?address(\..+)?",
    r"yarn\.resourcemanager\.am\.max-attempts",
    r"yarn\.web-proxy\.address",
    r"yarn\.(acl\.enable|admin\.acl)",
    r"hadoop\.http\.(filter\.initializers|staticuser\.user)",
    r"hadoop\.http\.authentication\.(type|simple\.anonymous\.allowed)",
    r"yarn\.http\.policy",
    r"yarn\.scheduler\.include-port-in-node-name",
    r"yarn\.am\.liveness-monitor\.expiry-interval-ms",
)
"""Of YARN: for the master alone."""

_FOR_EXECUTORS = re.compile("|".join(_FILES))
_FOR_MASTER = re.compile("|".join(_FILES + _CLUSTER))


def for_master(conf: SiteConfiguration) -> Dict[str, str]:
    """What the master needs, resolved; ``SiteConfiguration.of`` reads it on the node."""
    return _picked(conf.to_json(), _FOR_MASTER)


def for_executors(site: Mapping[str, str]) -> Dict[str, str]:
    """What executors need, of what the master has: where files are."""
    return _picked(site, _FOR_EXECUTORS)


def _picked(values: Mapping[str, str], wanted: re.Pattern[str]) -> Dict[str, str]:
    return {name: value for name, value in values.items() if value and wanted.fullmatch(name)}
