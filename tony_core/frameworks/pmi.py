"""A PMI-1 server: how MPICH's ranks find each other without mpiexec and without ssh.

Theory of operation
===================

PMI-1 is lines of ``cmd=NAME key=value ...`` on one connection per rank. MPI_Init puts a
rank's own address into a key-value space, waits at a barrier, and gets the addresses of
the others; from then on ranks talk to each other and this server is silent until
MPI_Finalize or MPI_Abort::

    rank                                       server
    cmd=initack pmiid=N                 ->
                                        <-     cmd=initack rc=0
                                        <-     cmd=set size=S / rank=R / debug=0
    cmd=init pmi_version=1 ...          ->     cmd=response_to_init ...
    cmd=get_maxes, get_appnum, get_my_kvsname, get_universe_size
    cmd=put kvsname=K key=A value=B     ->     cmd=put_result rc=0
    cmd=barrier_in                      ->     cmd=barrier_out      when all are in
    cmd=get kvsname=K key=A             ->     cmd=get_result rc=0 value=B
    cmd=finalize                        ->     cmd=finalize_ack
    cmd=abort exitcode=3                                            the session ends

:class:`PmiServer` is that and nothing else: lines in, replies out, no socket and no clock.
:mod:`tony_core.frameworks.pmi_service` gives it both.

**Authentication.** PMI-1 has one word that can carry a secret: the number ``pmiid`` by which a
rank names itself. So a rank's PMI_ID is not its rank but 31 random bits that only that rank gets;
a connection that names an unknown number is dropped, and the shell makes guessing slow. After that
the connection is as open as PMI-1 is under mpiexec: it is not encrypted.

**One world after another.** A container may run MPI twice (a check, then the program): a rank that
has finalized may begin again, in the next *world*, with keys of its own. One that left without
finalizing may not: its world is broken, and its executor reports why.

**Abort.** MPICH's MPI_Abort sends the command and *returns*: it trusts the process manager to
kill. The session ends, and with it every rank; until then nothing of that world is answered
any more, so that no rank gets through MPI_Finalize and ends as if all were well.

**What is refused.** MPI_Comm_spawn, with an answer (only the master starts processes);
name publishing.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Union

KVSNAME_MAX = 256
KEYLEN_MAX = 64
VALLEN_MAX = 1024
LINE_MAX = 4096  # the longest line is a put: name, key, value and the words between
UNNAMED_LINE_MAX = 64  # before a rank has named itself
_HELD_AT_FIRST, _HELD_PER_RANK = 1 << 22, 1 << 16  # characters of a world's keys and values


class Send(NamedTuple):
    connection: int
    line: str


class Drop(NamedTuple):
    connection: int
    reason: str
    is_unknown: bool = False  # it never named a rank


class Aborted(NamedTuple):
    """A rank called MPI_Abort."""

    rank: int
    exit_code: int
    message: str


class Joined(NamedTuple):
    """A rank has called MPI_Init."""

    connection: int
    rank: int


class Complete(NamedTuple):
    """All ranks of a world have joined."""


Outcome = Union[Send, Drop, Aborted, Joined, Complete]


class _World:
    """One MPI_COMM_WORLD: its key-value space and its barrier."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: Dict[str, str] = {}
        self.held = 0  # characters of them
        self.finalized: Set[int] = set()
        self.members: Dict[int, int] = {}  # rank -> connection
        self.at_barrier: Dict[int, int] = {}
        self.aborted = False


class _Rank:
    def __init__(self) -> None:
        self.worlds = 0  # how many it has begun
        self.connection: Optional[int] = None
        self.finalized = True  # nothing is open
        self.broken = False


class PmiServer:
    """``ids[rank]`` is the secret number of that rank."""

    def __init__(self, ids: Sequence[int], name: str) -> None:
        if len(set(ids)) != len(ids):
            raise ValueError("two ranks have the same PMI_ID")
        self.size = len(ids)
        self._name = name
        self._rank_by_id = {number: rank for rank, number in enumerate(ids)}
        self._ranks = [_Rank() for _ in ids]
        self._worlds: List[_World] = []
        self._rank_by_connection: Dict[int, int] = {}
        self._multi: Dict[int, bool] = {}  # inside an mcmd, up to endcmd
        self._gone: Set[int] = set()

    # ------------------------------------------------------------------ queries

    def line_limit(self, connection: int) -> int:
        """The longest line that this connection may send."""
        return LINE_MAX if connection in self._rank_by_connection else UNNAMED_LINE_MAX

    def missing(self) -> List[int]:
        """The ranks that the newest world still waits for."""
        if not self._worlds:
            return []
        members = self._worlds[-1].members
        return [rank for rank in range(self.size) if rank not in members]

    # ------------------------------------------------------------------ events

    def received(self, connection: int, line: str) -> List[Outcome]:
        """Handle one whole line, without its end."""
        if connection in self._gone:
            return []
        if connection not in self._rank_by_connection:
            return self._introduce(connection, _parse(line))
        if self._world(self._rank_by_connection[connection]).aborted:
            return []
        if self._multi.get(connection):
            if line.strip() != "endcmd":
                return []
            self._multi[connection] = False
            return [
                Send(connection, "cmd=spawn_result rc=-1 msg=TonY_starts_the_processes_of_a_job")
            ]
        words = _parse(line)
        if "mcmd" in words:
            self._multi[connection] = True
            return []
        command = words.get("cmd", "")
        answer = getattr(self, f"_on_{command}", None) if command in _COMMANDS else None
        if answer is None:
            return self._drop(connection, f"unknown PMI command {line[:60]!r}")
        outcomes: List[Outcome] = answer(connection, self._rank_by_connection[connection], words)
        return outcomes

    def closed(self, connection: int) -> List[Outcome]:
        """Note that the connection is gone; the executor reports why a rank died."""
        self._gone.discard(connection)
        self._multi.pop(connection, None)
        number = self._rank_by_connection.pop(connection, None)
        if number is not None:
            rank = self._ranks[number]
            rank.connection = None
            rank.broken = not rank.finalized
        return []

    # ------------------------------------------------------------------ authentication

    def _introduce(self, connection: int, words: Dict[str, str]) -> List[Outcome]:
        number = self._rank_by_id.get(_number(words.get("pmiid")))
        if words.get("cmd") != "initack" or number is None:
            return self._drop(connection, "it named no rank of this session", is_unknown=True)
        rank = self._ranks[number]
        if rank.connection is not None:
            return self._drop(connection, f"rank {number} is connected already")
        if rank.broken:
            return self._drop(connection, f"rank {number} left without MPI_Finalize before")
        rank.connection = connection
        rank.finalized = False
        self._rank_by_connection[connection] = number
        if rank.worlds == len(self._worlds):
            self._worlds.append(_World(f"{self._name}-{rank.worlds}"))
        world = self._worlds[rank.worlds]
        rank.worlds += 1
        world.members[number] = connection
        outcomes: List[Outcome] = [
            Joined(connection, number),
            Send(connection, "cmd=initack rc=0"),
            Send(connection, f"cmd=set size={self.size}"),
            Send(connection, f"cmd=set rank={number}"),
            Send(connection, "cmd=set debug=0"),
        ]
        if len(world.members) == self.size:
            outcomes.append(Complete())
        return outcomes

    def _drop(self, connection: int, reason: str, is_unknown: bool = False) -> List[Outcome]:
        self._gone.add(connection)
        return [Drop(connection, reason, is_unknown)]

    def _world(self, rank: int) -> _World:
        return self._worlds[self._ranks[rank].worlds - 1]

    # ------------------------------------------------------------------ the commands

    def _on_init(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        rc = "0" if words.get("pmi_version") == "1" else "-1"
        return [Send(connection, f"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}")]

    def _on_get_maxes(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        limits = f"kvsname_max={KVSNAME_MAX} keylen_max={KEYLEN_MAX} vallen_max={VALLEN_MAX}"
        return [Send(connection, f"cmd=maxes {limits}")]

    def _on_get_appnum(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        return [Send(connection, "cmd=appnum appnum=0")]

    def _on_get_my_kvsname(
        self, connection: int, rank: int, words: Dict[str, str]
    ) -> List[Outcome]:
        return [Send(connection, f"cmd=my_kvsname kvsname={self._world(rank).name}")]

    def _on_get_universe_size(
        self, connection: int, rank: int, words: Dict[str, str]
    ) -> List[Outcome]:
        return [Send(connection, f"cmd=universe_size size={self.size}")]

    def _on_put(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        key, value = words.get("key", ""), words.get("value", "")
        world = self._world(rank)
        if words.get("kvsname") != world.name or not key:
            return [Send(connection, "cmd=put_result rc=-1 msg=no_such_space_or_no_key")]
        if len(key) > KEYLEN_MAX or len(value) > VALLEN_MAX:
            return [Send(connection, "cmd=put_result rc=-1 msg=too_long")]
        # With what Python needs for an entry; one that is replaced counts again.
        world.held += len(key) + len(value) + 256
        if world.held > _HELD_AT_FIRST + _HELD_PER_RANK * self.size:
            return [Send(connection, "cmd=put_result rc=-1 msg=too_many_keys")]
        world.values[key] = value
        return [Send(connection, "cmd=put_result rc=0 msg=success")]

    def _on_get(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        world = self._world(rank)
        value = world.values.get(words.get("key", ""))
        if words.get("kvsname") != world.name or value is None:
            return [Send(connection, "cmd=get_result rc=-1 msg=key_not_found value=unknown")]
        return [Send(connection, f"cmd=get_result rc=0 msg=success value={value}")]

    def _on_barrier_in(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        world = self._world(rank)
        world.at_barrier[rank] = connection
        if len(world.at_barrier) < self.size:
            return []
        waiting, world.at_barrier = world.at_barrier, {}
        return [Send(waiting[each], "cmd=barrier_out") for each in sorted(waiting)]

    def _on_finalize(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        self._ranks[rank].finalized = True
        world = self._world(rank)
        world.finalized.add(rank)
        if len(world.finalized) == self.size:
            world.values.clear()  # no rank asks again: there may be many worlds
        return [Send(connection, "cmd=finalize_ack")]

    def _on_abort(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        code = _number(words.get("exitcode"))
        message = words.get("message", words.get("error_msg", ""))
        if message == "abort":  # MPICH's own when the program gave none
            message = ""
        self._world(rank).aborted = True
        # An exit code is one byte, and an abort is never a success.
        return [Aborted(rank, (code & 0xFF) or 1, message)]

    def _on_publish_name(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        return [Send(connection, "cmd=publish_result rc=-1 msg=names_are_not_published_here")]

    def _on_unpublish_name(
        self, connection: int, rank: int, words: Dict[str, str]
    ) -> List[Outcome]:
        return [Send(connection, "cmd=unpublish_result rc=-1 msg=names_are_not_published_here")]

    def _on_lookup_name(self, connection: int, rank: int, words: Dict[str, str]) -> List[Outcome]:
        return [Send(connection, "cmd=lookup_result rc=-1 msg=names_are_not_published_here")]


_COMMANDS = frozenset(name[len("_on_") :] for name in vars(PmiServer) if name.startswith("_on_"))


def _parse(line: str) -> Dict[str, str]:
    """``cmd=put key=a value=b=c`` as a mapping; the value of a word may hold ``=``."""
    found: Dict[str, str] = {}
    for word in line.split():
        key, _, value = word.partition("=")
        found.setdefault(key, value)
    return found


def _number(text: Optional[str]) -> int:
    """Parse an integer; -1 for anything else."""
    try:
        return int(text or "")
    except ValueError:
        return -1
