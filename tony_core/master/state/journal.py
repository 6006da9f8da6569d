"""What a next master must know and could not find out: the journal, and ``master.json``.

The journal holds three things. The session machine's record: what depends on it happens only when
it is durable (:mod:`tony_core.master.state.journal_gate`). The executors' addresses: written with
a delay, since losing one costs a moment only (``master.json`` is the second way). And the job's end
once it is decided: a master that dies before it reports the end to the scheduler leaves only that
report to its successor. It is one small file, replaced atomically, in the job's state folder
(:mod:`tony_core.master.state.folder`).
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from tony_core.files.location import is_remote, join
from tony_core.jsontext import is_number, read_object
from tony_core.master.state.folder import StateFolder, state_folder
from tony_core.protocol.job_secret import unpack_secret
from tony_core.protocol.tunnel import KEY_FILE, ClientKey, client_key
from tony_core.schedulers.port import AppState
from tony_core.unexpected_errors import log_to_stderr

JOURNAL = "journal.json"
MASTER_FILE = "master.json"
VERSION = 1
LOCAL_DELAY_S = 0.2  # of new addresses; later ones are written with them
REMOTE_DELAY_S = 1.0  # longer, since a write on its way delays the next record
ADDRESSES_A_S = 5000  # written on average: each write has all of them


class JournalError(Exception):
    """The journal exists and cannot be read: nothing can be taken over safely."""


class JournalContent(NamedTuple):
    attempt: int = 0
    record: Mapping[str, Any] = {}
    executors: Mapping[str, str] = {}  # container id -> host:port
    end: Optional[Mapping[str, Any]] = None  # {"state", "diagnostics"} once it is decided
    began: Optional[float] = None  # the job's first Begin, seconds since the epoch
    tracked: Mapping[str, str] = {}  # the job's run at its tracker


class Journal:
    """The journal of one master attempt."""

    def __init__(
        self,
        state_dir: str,
        attempt: int,
        on_change: Callable[[], None] = lambda: None,
        log: Callable[[str], None] = log_to_stderr,
    ) -> None:
        self.folder: StateFolder = state_folder(state_dir, on_change, log)
        self._attempt = attempt
        self._record: Mapping[str, Any] = {}
        self._executors: Dict[str, str] = {}
        self._end: Optional[Mapping[str, Any]] = None
        self._began: Optional[float] = None
        self.tracked: Mapping[str, str] = {}
        self.dirty = False  # addresses changed since the last write
        self._delay_s = REMOTE_DELAY_S if is_remote(state_dir) else LOCAL_DELAY_S

    def read(self) -> JournalContent:
        """Read what a previous attempt wrote; an empty :class:`JournalContent` if there is none.

        Raises :class:`JournalError`, and ``OSError`` where its place does not answer.
        """
        try:
            text = self.folder.get(JOURNAL)
        except FileNotFoundError:
            return JournalContent()
        except zlib.error as error:
            raise JournalError(f"{join(self.folder.folder, JOURNAL)}: {error}") from error
        try:
            content = parse_journal(text)
        except ValueError as error:
            raise JournalError(f"{join(self.folder.folder, JOURNAL)}: {error}") from error
        self._record, self._executors = content.record, dict(content.executors)
        self._end, self._began, self.tracked = content.end, content.began, content.tracked
        return content

    def write(self, record: Mapping[str, Any]) -> None:
        """Save the machine's record: durable when this returns or :attr:`pending` turns false."""
        self._record = record
        self.save()

    def began(self, at: float) -> None:
        """Note when the job began (wall clock), for the next write."""
        self._began = at

    def track(self, run: Mapping[str, str]) -> None:
        """Note the job's run at its tracker; the master saves it as it does addresses."""
        self.tracked = run
        self.dirty = True

    def ended(self, state: str, diagnostics: str) -> None:
        """Save the job's end: durable when this returns or :attr:`pending` turns false."""
        self._end = {"state": state, "diagnostics": diagnostics}
        self.save()

    def address(self, container_id: str, address: str) -> None:
        """Note where an executor listens; the master saves it after :attr:`address_delay_s`."""
        if self._executors.get(container_id) != address:
            self._executors[container_id] = address
            self.dirty = True

    def forget(self, container_id: str) -> None:
        """Remove the address of an executor whose container has ended."""
        if self._executors.pop(container_id, None) is not None:
            self.dirty = True

    @property
    def address_delay_s(self) -> float:
        """How long new addresses wait for others; longer with many executors."""
        return max(self._delay_s, len(self._executors) / ADDRESSES_A_S)

    def save(self) -> None:
        data = {
            "version": VERSION,
            "attempt": self._attempt,
            "record": self._record,
            "executors": self._executors,
            "end": self._end,
            "began": self._began,
            "tracked": self.tracked,
        }
        # The preprocess step's output may be secret, and a request's URL may be logged.
        private = self._record.get("parameters") is not None
        text = json.dumps(data, separators=(",", ":"))
        self.folder.put(JOURNAL, text.encode(), soon=not private)
        self.dirty = False

    @property
    def pending(self) -> bool:
        """Whether the newest version is not durable yet."""
        return self.folder.pending(JOURNAL)

    def close(self, timeout_s: float) -> List[str]:
        """Wait at most so long for the last write; return what is not written, and why."""
        return self.folder.close(timeout_s)


def parse_journal(data: bytes) -> JournalContent:
    """Parse a journal; raise ValueError where it is damaged or of another version."""
    found = read_object(data)
    if found.get("version") != VERSION:
        raise ValueError(f"version {found.get('version')!r}, this master reads {VERSION}")
    for name in ("attempt", "record", "executors", "end", "began"):
        if name not in found:
            raise ValueError(f"{name} is missing")
    record, executors = found["record"], found["executors"]
    _expect(_is_count(found["attempt"]), "attempt")
    _expect(isinstance(record, dict), "record")
    _expect(isinstance(executors, dict) and _are_texts(executors.values()), "executors")
    _expect(found["began"] is None or _is_number(found["began"]), "began")
    end = found["end"]
    if end is not None:
        _expect(isinstance(end, dict) and isinstance(end.get("diagnostics"), str), "end")
        _expect(end.get("state") in _STATES, "end.state")
    for name, is_right in _RECORD.items():
        if name in record:
            _expect(is_right(record[name]), f"record.{name}")
    if record and not record.get("outcome") and "session" not in record:
        raise ValueError("record.session is missing")
    tracked = found.get("tracked", {})  # a journal of an older version has none
    _expect(isinstance(tracked, dict) and _are_texts(tracked.values()), "tracked")
    return JournalContent(found["attempt"], record, executors, end, found["began"], tracked)


def _expect(is_right: bool, name: str) -> None:
    if not is_right:
        raise ValueError(f"{name} is not what a master writes")


def _is_number(value: Any) -> bool:
    return is_number(value, 1e15)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value) and value >= -1


def _are_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and _are_texts(value)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_quick(value: Any) -> bool:
    """Whether it is a quick failure: role, exit code, last line of stderr."""
    if value is None or value == []:
        return True
    if not isinstance(value, list) or len(value) != 3:
        return False
    return isinstance(value[0], str) and _is_number(value[1]) and isinstance(value[2], str)


def _are_budgets(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    counts = (value.get(name, 0) for name in ("user_used", "system_used", "restarts_in_row"))
    steps = (value.get(name) for name in ("furthest", "reached", "furthest_saved", "saved"))
    return (
        all(_is_count(count) for count in counts)
        and all(step is None or _is_number(step) for step in steps)
        and _is_quick(value.get("last_quick"))
    )


def _are_tries(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(one, dict)
        and _is_count(one.get("restarts"))
        and "last_quick" in one
        and _is_quick(one["last_quick"])
        for one in value.values()
    )


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_count(count) for count in value.values())


def _are_stalls(value: Any) -> bool:
    """Whether they are the episodes with lines: by group, who lags and how many lines."""
    return isinstance(value, dict) and all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and _is_count(one[1])
        for one in value.values()
    )


_STATES = tuple(state.value for state in AppState)
#: The fields that the session machine restores, each with its check.
_RECORD: Mapping[str, Callable[[Any], bool]] = {
    "session": _is_count,
    "elapsed_s": _is_number,
    "budgets": _are_budgets,
    "parameters": _is_text_or_none,
    "released": _are_counts,
    "started": _is_list_of_texts,
    "outside": _is_list_of_texts,
    "done": _is_list_of_texts,
    "untracked": _is_list_of_texts,
    "returning": _is_list_of_texts,
    "alone": _are_tries,
    "stalled": _are_stalls,
    "outcome": lambda value: value is None or value in _STATES,
    "diagnostics": _is_text_or_none,
    "root": lambda value: isinstance(value, dict),
    "result": _is_text_or_none,
}


def write_client_key(folder: StateFolder, secret: bytes, page_url: str) -> None:
    """Leave the key of the owner's tunnels where only the owner may read it."""
    key = ClientKey(client_key(unpack_secret(secret).secret), page_url)
    folder.put(KEY_FILE, key.to_json(), mode=0o600, sync=False)


def write_master_file(
    folder: StateFolder, attempt: int, host: str, port: int, page_url: str, kill_grace_s: float
) -> None:
    """Publish where this master listens, for executors and clients.

    ``kill_grace_s`` is how long a client that kills the job should wait for its programs to exit.
    """
    data = {
        "attempt": attempt,
        "host": host,
        "port": port,
        "page_url": page_url,
        "kill_grace_s": kill_grace_s,
    }
    # Other users of this machine may read it; on a shared file system only the owner may.
    mode = 0o600 if is_remote(folder.folder) else 0o644
    folder.put(MASTER_FILE, json.dumps(data).encode(), mode=mode, sync=False)
