"""What of the client's environment a job on this machine starts with.

On a cluster a job sees the nodes' environment and what its job file gives. Here the node is
the user's own machine: programs are found as in the shell that submitted (PATH, so a virtual
environment that is active there is used), libraries too, and the proxy and the clusters that
the machine is set up for stay reachable. Everything else (tokens, keys, whatever else a shell
exports) does not travel; a job gets it by ``--shell_env`` or ``--container_env``.
"""

from __future__ import annotations

from typing import Dict, Mapping

PASSED = frozenset(
    """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR
    LD_LIBRARY_PATH VIRTUAL_ENV CONDA_PREFIX
    JAVA_HOME HADOOP_HOME HADOOP_CONF_DIR YARN_CONF_DIR HADOOP_COMMON_HOME HADOOP_HDFS_HOME
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY
    XDG_CACHE_HOME XDG_RUNTIME_DIR
    """.split()
)


def passed(env: Mapping[str, str]) -> Dict[str, str]:
    """The part that travels; a PATH in any case."""
    found = {name: value for name, value in env.items() if name in PASSED or name.startswith("LC_")}
    found.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    return found
