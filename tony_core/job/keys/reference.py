"""``python -m tony_core.job.keys.reference > docs/keys.md``: the reference page of the table."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple

from tony_core.job.keys import application, from_jvm, roles, site, timeouts, tracking
from tony_core.job.keys.key import Key, Kind, Status
from tony_core.job.keys.table import RESERVED_ROLES, table

_PARTS: Tuple[Tuple[str, List[Key]], ...] = (
    ("Roles, containers and the application master", roles.KEYS),
    ("The application", [*application.KEYS, *timeouts.KEYS]),
    ("The site", [*site.KEYS, *tracking.KEYS, *from_jvm.KEYS]),
)
_HEAD = """\
# Keys of a job file

This page is made from the key table: `python -m tony_core.job.keys.reference > docs/keys.md`.

A bare number is in the unit of its key; `2g`, `1.5g`, `512m`, `1t` and `500ms`, `30s`, `10m`,
`2h`, `1d` say their own. `off`, `0` and `-1` are the same for every duration: no deadline where
there can be none, otherwise no time at all, or the default; other negative durations are refused.
`<role>`, `<group>` and `<resource>` stand for a name of yours, `<any>` for whatever follows. Role
names are lower case letters, digits and `-`; these words are no roles:
"""


def reference() -> str:
    """The page, in Markdown."""
    reserved = ", ".join(f"`{word}`" for word in sorted(RESERVED_ROLES))
    lines = [_HEAD + reserved + "."]
    for title, keys in _PARTS:
        live = [key for key in keys if key.status in (Status.LIVE, Status.REFUSED)]
        lines += ["", f"## {title}", "", "| key | default | kind | what it says |"]
        lines.append("|---|---|---|---|")
        lines += [_row(key) for key in live]
    lines += ["", "## Older names", "", "| key | is now |", "|---|---|"]
    lines += [f"| `{k.name}` | `{k.alias}` |" for k in table().keys if k.status is Status.RENAMED]
    lines += ["", "## Accepted, of no effect here", "", "| key | why |", "|---|---|"]
    lines += [f"| `{k.name}` | {k.doc} |" for k in table().keys if k.status is Status.IGNORED]
    return "\n".join(lines) + "\n"


def _row(key: Key) -> str:
    default = f"`{key.default}`" if key.default is not None else ""
    doc = key.doc.replace("|", "\\|")
    return f"| `{key.name}` | {default} | {kind_of(key)} | {doc} |"


def kind_of(key: Key) -> str:
    """The form of a value, in a few words."""
    if key.kind is Kind.CHOICE:
        return "one of " + ", ".join(key.choices)
    if key.unit:
        return f"{key.kind.value} ({key.unit})"
    return str(key.kind.value)


def as_dict(key: Key) -> Dict[str, Any]:
    """A line of the table for JSON."""
    return {
        "name": key.name,
        "kind": kind_of(key),
        "default": key.default,
        "unit": key.unit or None,
        "status": key.status.value,
        "alias": key.alias or None,
        "doc": key.doc,
        "reads": key.fills or key.part_of or None,
    }


if __name__ == "__main__":
    sys.stdout.write(reference())
