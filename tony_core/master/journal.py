"""What a next master must know and could not find out: the journal, and master.json.

The journal holds the session machine's record (written ahead: what follows
:meth:`Journal.write` is done only when it is there, see :mod:`tony_core.master.ahead`), the
executors' addresses (written soon: a lost address costs a moment, since ``master.json`` is
the second way), and the job's end once it is decided, so that a master that dies between the
end and the scheduler's hearing of it leaves nothing to redo. One small file, replaced
atomically, in the job's state folder (:mod:`tony_core.master.statefolder`).
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Optional

from tony_core.dataclass import dataclass, field
from tony_core.faults import log_to_stderr
from tony_core.files.location import is_remote, join
from tony_core.master.statefolder import StateFolder, state_folder

JOURNAL = "journal.json"
MASTER_FILE = "master.json"
VERSION = 1
NEAR_S = 0.2  # how long a new address may wait to be written on this machine
FAR_S = 1.0  # and elsewhere, where a write on its way delays one that is waited for
ADDRESSES_A_S = 5000  # that are written, on average: all of them each time


class JournalError(Exception):
    """The journal is there and cannot be read: nothing can be taken over safely."""


@dataclass(frozen=True)
class Past:
    """What the earlier master left."""

    attempt: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)
    executors: Mapping[str, str] = field(default_factory=dict)  # container id -> host:port
    end: Optional[Mapping[str, Any]] = None  # {"state", "diagnostics"} once it was decided
    began: Optional[float] = None  # the job's first Begin, seconds since the epoch


class Journal:
    """The journal of one master attempt."""

    def __init__(
        self, state_dir: str, attempt: int, log: Callable[[str], None] = log_to_stderr
    ) -> None:
        self.folder: StateFolder = state_folder(state_dir, log)
        self._attempt = attempt
        self._record: Mapping[str, Any] = {}
        self._executors: Dict[str, str] = {}
        self._end: Optional[Mapping[str, Any]] = None
        self._began: Optional[float] = None
        self.dirty = False  # addresses changed since the last write
        self._soon_s = FAR_S if is_remote(state_dir) else NEAR_S

    def read(self) -> Past:
        """What is there; an empty :class:`Past` if nothing is; ``OSError`` if nobody can tell."""
        try:
            text = self.folder.get(JOURNAL)
        except FileNotFoundError:
            return Past()
        try:
            data = json.loads(text)
            if data["version"] != VERSION:
                raise ValueError(f"version {data['version']}, this master reads {VERSION}")
            past = Past(
                attempt=int(data["attempt"]),
                record=data["record"],
                executors=data["executors"],
                end=data["end"],
                began=data["began"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(f"{join(self.folder.folder, JOURNAL)}: {error}") from error
        self._record, self._executors = past.record, dict(past.executors)
        self._end, self._began = past.end, past.began
        return past

    def write(self, record: Mapping[str, Any]) -> None:
        """The machine's record; there when this returns, or when it is no longer pending."""
        self._record = record
        self.save()

    def began(self, at: float) -> None:
        """When the job began (wall clock); goes out with the next write."""
        self._began = at

    def ended(self, state: str, diagnostics: str) -> None:
        """The job's end is decided; there when this returns, or no longer pending."""
        self._end = {"state": state, "diagnostics": diagnostics}
        self.save()

    def address(self, container_id: str, address: str) -> None:
        """Where an executor listens; :meth:`save` follows soon."""
        if self._executors.get(container_id) != address:
            self._executors[container_id] = address
            self.dirty = True

    def forget(self, container_id: str) -> None:
        """Its container ended."""
        if self._executors.pop(container_id, None) is not None:
            self.dirty = True

    @property
    def soon_s(self) -> float:
        """How long new addresses wait for others; longer where all of them are many."""
        return max(self._soon_s, len(self._executors) / ADDRESSES_A_S)

    def save(self) -> None:
        """Replace the file."""
        data = {
            "version": VERSION,
            "attempt": self._attempt,
            "record": self._record,
            "executors": self._executors,
            "end": self._end,
            "began": self._began,
        }
        # What the preprocessing told every task may be anything: not for a request's address.
        private = self._record.get("parameters") is not None
        text = json.dumps(data, separators=(",", ":"))
        self.folder.put(JOURNAL, text.encode(), soon=not private)
        self.dirty = False

    @property
    def pending(self) -> bool:
        """Whether what was saved last is still on its way."""
        return self.folder.pending(JOURNAL)

    def close(self, timeout_s: float) -> List[str]:
        """Wait so long for what is on its way; what is not there, and why."""
        return self.folder.close(timeout_s)


def write_master_file(
    folder: StateFolder, attempt: int, host: str, port: int, page_url: str, kill_grace_s: float
) -> None:
    """Tell executors and clients where this master listens: soon, nobody waits for it.

    And how long its programs have when the job is killed: so long who kills it should wait.
    """
    data = {
        "attempt": attempt,
        "host": host,
        "port": port,
        "page_url": page_url,
        "kill_grace_s": kill_grace_s,
    }
    # Elsewhere than on the user's own machine it is nobody's business.
    mode = 0o600 if is_remote(folder.folder) else 0o644
    folder.put(MASTER_FILE, json.dumps(data).encode(), mode=mode, sync=False)
