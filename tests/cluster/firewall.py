"""A firewall between a client and the cluster's nodes, by the kernel's own packet filter.

It holds for the processes of one group that no other process has, and so for no one else on this
machine: with root's rights, a client that is started with that group (:attr:`Firewall.group`) can
open connections to the ResourceManagers, to HDFS and to the KDC only. The filter's table belongs to
the ``nft`` that made it: the kernel removes it when that process ends, whatever ended it.

Only root can; without root, ``nft``, or a kernel that has such filters the test is skipped with
that reason.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from types import TracebackType
from typing import List, Optional, Type

import pytest

from tests.cluster.hadoop.cluster import Hadoop
from tests.cluster.yarn.jobs import until

NFT = shutil.which("nft") or "/usr/sbin/nft"
CLIENTS_ROADS = ("rm", "nn", "dn", "kdc")
"""The daemons that a client may reach: all but the NodeManagers."""

_RULES = """\
add table inet {table} {{ flags owner; }}
add chain inet {table} out {{ type filter hook output priority 0; }}
add rule inet {table} out meta skgid != {group} accept
add rule inet {table} out meta l4proto != tcp accept
add rule inet {table} out tcp flags & (syn|ack) != syn accept
add rule inet {table} out ip daddr . tcp dport {{ {open} }} accept
add rule inet {table} out counter {verdict}
"""
_numbers = itertools.count()


def addresses_of(cluster: Hadoop) -> List[str]:
    """HOST:PORT of everything that a client may reach."""
    daemons = [name for prefix in CLIENTS_ROADS for name in cluster.names(prefix)]
    found = [address for name in daemons for address in (cluster.web(name), cluster.rpc(name))]
    return sorted({address for address in found if address})


class Firewall:
    """Closed while it is entered. ``drop``: packets vanish; ``reject with tcp reset``: refused."""

    def __init__(self, open_addresses: List[str], verdict: str = "drop") -> None:
        number = next(_numbers)
        self.group = 2_000_000_000 + os.getpid() * 100 + number % 100
        self._table = f"tony_test_{os.getpid()}_{number}"
        self._rules = _RULES.format(
            table=self._table,
            group=self.group,
            open=", ".join(address.replace(":", " . ") for address in open_addresses),
            verdict=verdict,
        )
        self._nft: Optional[subprocess.Popen[bytes]] = None

    @property
    def stopped(self) -> int:
        """The packets that it has stopped so far; -1 where there is no such filter."""
        done = subprocess.run(
            [NFT, "list", "table", "inet", self._table], capture_output=True, text=True
        )
        found = re.search(r"counter packets (\d+)", done.stdout)
        return int(found[1]) if found else -1

    def __enter__(self) -> Firewall:
        if os.geteuid() != 0 or not os.path.exists(NFT):
            pytest.skip("a real firewall needs root and nft (package nftables)")
        self._nft = subprocess.Popen(
            [NFT, "-i"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._nft.stdin is not None and self._nft.stdout is not None
        self._nft.stdin.write(self._rules.encode())
        self._nft.stdin.flush()
        try:
            until(lambda: self.stopped >= 0, "the filter", 10)
        except AssertionError:
            output = self._close().decode(errors="replace").strip()
            pytest.skip(f"this kernel filters no packets by group: {output[-300:]}")
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._close()
        until(lambda: self.stopped < 0, "the end of the filter", 30)

    def _close(self) -> bytes:
        nft, self._nft = self._nft, None
        return nft.communicate(timeout=30)[0] or b"" if nft is not None else b""
