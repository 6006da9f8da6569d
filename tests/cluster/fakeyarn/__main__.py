"""A fake YARN in a process of its own: ``python -m tests.cluster.fakeyarn FOLDER --nodes 1000``.

It says ``up`` when ``FOLDER/conf`` can be used (HADOOP_CONF_DIR), and ends with its input.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.cluster.fakeyarn.cluster import FakeYarn
from tony_core.hadoop.yarn.records import Capability


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--memory", type=int, default=16384, help="MB of each node")
    parser.add_argument("--vcores", type=int, default=64)
    parser.add_argument("--heartbeat", type=float, default=1.0, help="seconds")
    parser.add_argument("--real", action="store_true", help="run containers as processes")
    words = parser.parse_args()
    with FakeYarn(
        words.folder,
        nodes=words.nodes,
        node=Capability(words.memory, words.vcores),
        heartbeat_s=words.heartbeat,
        real=words.real,
    ):
        print("up", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
