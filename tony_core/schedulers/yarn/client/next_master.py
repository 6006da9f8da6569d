"""How a job's next master starts when the job's first tokens have ended.

Theory of operation
===================

YARN starts every attempt of a master with the credentials of the submission. Its node localizes
the master's private files by the tokens in them. A job that ships its keytab outlives these tokens;
from then on a node without the files in its cache fails to localize them, and an attempt fails
with them. Three things do not need the job's tokens:

- a PUBLIC file, which the node fetches as itself (a runtime that ``tony runtime publish`` wrote);
- the credentials themselves. So the runtime of such a job travels there, as the job does, and
  ``carried_runtime.UNPACK`` is the first program of the master's container;
- every file, where the ResourceManager obtains tokens of the user by itself (:data:`PRIVILEGES`):
  nodes then use those instead of the job's, to store logs, too.

:func:`plan_start` decides, from what is known before anything is staged:

============================  ==============  ====================================================
the master's file             travels as      a next master after the first tokens' end
============================  ==============  ====================================================
runtime, PUBLIC               PUBLIC file     starts
runtime, of the user's own    credentials     starts
runtime, too large for them   private file    needs tokens from the ResourceManager
the job                       credentials     starts
the job, too large for them   private file    needs tokens from the ResourceManager
``tony.am.resources``, files  private files   needs tokens from the ResourceManager
of the preprocessing command
============================  ==============  ====================================================

The bound on credentials is the ResourceManager's: it keeps an application in one node of its
ZooKeeper, of 1 MiB at most (yarn.resourcemanager.zk-max-znode-size.bytes), until it has ended.
"""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Optional, Tuple

from tony_core.durations import describe_duration
from tony_core.files.location import base_name
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.yarn.launch import PUBLIC, LocalFile
from tony_core.schedulers.yarn.job_credentials import JOB_FILE, LARGEST

MOST_CARRIED = 900 << 10
"""Of runtime and job together: the rest of 1 MiB is for tokens, keytab and the request."""

PRIVILEGES = "yarn.resourcemanager.proxy-user-privileges.enabled"
MAX_LIFETIME = "dfs.namenode.delegation.token.max-lifetime"
_AGGREGATION = "yarn.log-aggregation-enable"
_WEEK_MS = 7 * 86400 * 1000


class MasterStart(NamedTuple):
    """How a master gets what it starts from."""

    carries_runtime: bool = False  # in its credentials
    largest_job: int = LARGEST  # of a job there; a larger one is a file
    closed: Tuple[str, ...] = ()  # files that a node localizes by the job's tokens
    outlives_tokens: bool = False  # whether the job goes on when its first tokens have ended


def plan_start(
    files: Mapping[str, LocalFile],
    runtime: str,
    runtime_bytes: Optional[int],
    job_bytes: int,
) -> MasterStart:
    """Decide what travels in the master's credentials of a job that outlives its first tokens; see
    the table in the module's docstring.

    :param files: the master's local resources; ``runtime`` is the name of the one with our code.
    :param runtime_bytes: the size of the packed runtime; None if it cannot be packed.
    :param job_bytes: the size of the encoded job.
    """
    closed = [name for name, file in sorted(files.items()) if file.visibility != PUBLIC]
    room = MOST_CARRIED
    carries = runtime in closed and runtime_bytes is not None and runtime_bytes <= room - LARGEST
    if carries and runtime_bytes is not None:
        room -= runtime_bytes
        closed.remove(runtime)
    if job_bytes > room:
        closed.append(JOB_FILE)
    return MasterStart(carries, room, tuple(closed), outlives_tokens=True)


def find_warnings(start: MasterStart, conf: SiteConfiguration) -> List[str]:
    """What a job that outlives its first tokens loses on this cluster; empty if nothing.

    The client reads its own configuration. Only what it says there is known.
    """
    if not start.outlives_tokens or conf.boolean(PRIVILEGES, False):
        return []
    after = f"after the first {_first_tokens(conf)}"
    remedy = f"the administrator for {PRIVILEGES}=true (not set in {_where(conf)})"
    found = []
    if start.closed:
        found.append(
            f"a master that dies {after} cannot be replaced, and the job ends with it: a node"
            f" localizes {', '.join(start.closed)} by the job's first tokens. Ask {remedy}, or put"
            " these files where all users can read them"
        )
    if conf.boolean(_AGGREGATION, False):
        found.append(
            f"the cluster stores no logs of this job if it ends {after}: nodes write them to HDFS"
            f" by its first tokens. Read them while it runs (tony logs), or ask {remedy}"
        )
    return found


def describe_site(conf: SiteConfiguration) -> Tuple[bool, str]:
    """What the cluster does for jobs that outlive their first tokens, for ``tony doctor``: whether
    such a job loses nothing, and a sentence."""
    if conf.boolean(PRIVILEGES, False):
        return True, f"the ResourceManager obtains tokens for them ({PRIVILEGES})"
    logs = ", and no logs in HDFS" if conf.boolean(_AGGREGATION, False) else ""
    return False, (
        f"after the first {_first_tokens(conf)} they have no next master if theirs has files of its"
        f" own (tony.am.resources){logs}: {PRIVILEGES} is not set in {_where(conf)}"
    )


def _first_tokens(conf: SiteConfiguration) -> str:
    """How long a job's first tokens last, as far as the client's configuration says."""
    return describe_duration(conf.integer(MAX_LIFETIME, _WEEK_MS) / 1000)


def _where(conf: SiteConfiguration) -> str:
    named = [name for name in conf.files if base_name(name) == "yarn-site.xml"]
    return named[0] if named else "this machine's configuration"
