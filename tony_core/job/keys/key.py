"""What a key of the job file is: its kind, status, default and the field that it fills."""

from __future__ import annotations

from enum import Enum
from typing import Any, Callable, NamedTuple, Optional, Tuple

from tony_core.job.mask import ENV_PREFIXES, is_secret


class Kind(str, Enum):
    """How the text of a value is read."""

    TEXT = "text"
    INT = "whole number"
    BOOL = "true or false"
    MEMORY = "memory"
    DURATION = "duration"
    CHOICE = "one of"
    LIST = "comma list"
    ROLES = "comma list of roles"
    FILES = "comma list of files"
    ENVS = "comma list of NAME=value"
    RAW = "text, kept as it is"
    ACL = "users, a blank, groups"
    LIMIT = "whole number, -1 for no limit"
    PORTS = "port range"
    PATH = "path or URL"


class Off(Enum):
    """The meaning of ``off`` and 0 as a duration."""

    NO_LIMIT = None
    ZERO = 0.0
    FOREVER = 100 * 365 * 86400.0
    DEFAULT = "the key's default"  # a deadline that every job has


class Status(str, Enum):
    """The effect of a key in a job file."""

    LIVE = "live"  # read
    IGNORED = "ignored"  # accepted, of no effect here
    RENAMED = "renamed"  # read as another key
    REFUSED = "refused"  # an error, unless its value is what happens anyway


class Key(NamedTuple):
    """One line of the table.

    A key that ``fills`` a field of the job is that field's value; one that is ``part_of`` a field
    is read by a function of :mod:`tony_core.job.build` or ``build_roles``, which makes the field.
    """

    name: str
    kind: Kind
    doc: str
    default: Optional[str] = None  # None: nothing, or what the doc says
    unit: str = ""  # of a bare number: ms, s, MB
    status: Status = Status.LIVE
    alias: str = ""  # the key that a renamed one is read as
    fills: str = ""  # Record.field, or Record.record.field
    part_of: str = ""
    otherwise: str = ""  # the key that is read when this one is not set
    convert: Optional[Callable[[Any], Any]] = None  # from what the kind reads to the field's type
    off: Off = Off.NO_LIMIT
    choices: Tuple[str, ...] = ()
    at_least: Optional[int] = None
    placeholders: Tuple[str, ...] = ()  # sample values of JVM TonY's defaults: the same as unset

    @property
    def is_pattern(self) -> bool:
        """Whether the name holds placeholders."""
        return "<" in self.name

    @property
    def secret(self) -> bool:
        """Whether people may never see the value."""
        return is_secret(self.name) or self.name.startswith(ENV_PREFIXES)
