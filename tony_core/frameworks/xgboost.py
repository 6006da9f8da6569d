"""XGBoost: where the tracker is, how many workers there are, and which one this is.

XGBoost reads none of that from the environment: it takes them as arguments of its
communicator. ``tony.xgboost_communicator()`` in the program's own module passes them on.
The tracker, which ranks the workers and introduces each to the next, is XGBoost's own and
needs its library, so it runs in the program of rank 0 and not in the master.

It binds its port without SO_REUSEADDR: we cannot hold that meanwhile. The workers listen at
ports of their own choice besides.
"""

from __future__ import annotations

from typing import Dict, List

from tony_core.frameworks.base import (
    Framework,
    FrameworkProblem,
    Gang,
    Peer,
    rank_of,
    ranks,
    require_gang,
)
from tony_core.job.spec import Job


class XGBoost(Framework):
    """Rank 0 runs the tracker."""

    name = "xgboost"
    release_ports = ("main",)

    def validate(self, job: Job) -> List[FrameworkProblem]:
        """All workers must come together, and one must run the tracker."""
        return require_gang(job, "XGBoost", "and the tracker's address", "XGBoost has one tracker")

    def environment(self, gang: Gang, peer: Peer) -> Dict[str, str]:
        """What ``tony.xgboost_communicator()`` reads; a role that does not train gets nothing."""
        number = rank_of(gang, peer)
        if number is None:
            return {}
        members = ranks(gang)
        return {
            "DMLC_TRACKER_URI": members[0].host,
            "DMLC_TRACKER_PORT": str(members[0].ports["main"]),
            # The tracker ranks by the text of these, so they have to be of one length.
            "DMLC_TASK_ID": f"{number:08d}",
            "DMLC_NUM_WORKER": str(len(members)),
            "TONY_XGBOOST_RANK": str(number),
        }
