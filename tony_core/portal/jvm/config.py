"""The configuration beside a ``.jhist`` file, where it stands as it was submitted, masked. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple
from xml.sax.saxutils import escape

from tony_core.job.mask import mask_text, mask_value
from tony_core.job.units import parse_memory_mb
from tony_core.job.xmlfile import read_xml

#: The newer name first; ``config.xml`` is from before 0.3.5.
CONFIG_NAMES = ("tony-final.xml", "config.xml")
LARGEST = 4 << 20  # as of any job file

_ROLE = re.compile(r"tony\.([a-z][a-z0-9-]{0,100})\.(instances|memory|vcores|gpus)\Z")
_DEFAULTS = {"memory_mb": 2048, "vcores": 1, "gpus": 0}  # as that TonY has them


class JvmConfig(NamedTuple):
    """The properties of a job, masked, and why there are none."""

    entries: Tuple[Tuple[str, str], ...] = ()
    problems: Tuple[str, ...] = ()

    def get(self, key: str) -> str:
        """The last value of a key; empty where there is none."""
        return next((value for name, value in reversed(self.entries) if name == key), "")

    def roles(self) -> Dict[str, Dict[str, int]]:
        """What each role asked for: ``instances``, ``memory_mb``, ``vcores``, ``gpus``."""
        found: Dict[str, Dict[str, int]] = {}
        for key, value in self.entries:
            match = _ROLE.match(key)
            if match is None or match[1] == "am":
                continue
            kind = "memory_mb" if match[2] == "memory" else match[2]
            try:
                number = parse_memory_mb(value) if kind == "memory_mb" else int(value[:9])
            except ValueError:
                continue
            found.setdefault(match[1], {})[kind] = number
        return {
            role: {"instances": asked["instances"], **_DEFAULTS, **asked}
            for role, asked in found.items()
            if asked.get("instances", 0) > 0
        }

    def to_xml(self) -> bytes:
        """In Hadoop's form."""
        return to_xml(self.entries)


def read_jvm_config(data: bytes, name: str) -> JvmConfig:
    """The configuration out of a file of Hadoop's form. Never raises."""
    found, problems = read_xml(data, name)
    entries = tuple((entry.key, mask_value(entry.key, entry.text)) for entry in found)
    # What Hadoop writes and a job file may not have (several sources of one key) is no loss here.
    named = () if entries else tuple(mask_text(str(problem)) for problem in problems)
    return JvmConfig(entries, named)


def with_roles(config: JvmConfig, roles: Mapping[str, Any]) -> JvmConfig:
    """The same with the instances, memory, cores and GPUs of each role, where it names none.

    Dr. Elephant knows no defaults: a role without a memory of its own ends its analysis.
    """
    known = {key for key, _ in config.entries}
    added: List[Tuple[str, str]] = []
    for role, asked in roles.items():
        if not isinstance(asked, dict):
            continue
        for kind, key, unit in (
            ("instances", "instances", ""),
            ("memory_mb", "memory", "m"),
            ("vcores", "vcores", ""),
            ("gpus", "gpus", ""),
        ):
            value, name = asked.get(kind), f"tony.{role}.{key}"
            if isinstance(value, int) and name not in known:
                added.append((name, f"{value}{unit}"))
    return config._replace(entries=(*config.entries, *added))


def to_xml(entries: Tuple[Tuple[str, str], ...]) -> bytes:
    """A configuration in Hadoop's form."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<configuration>"]
    for key, value in entries:
        name, text = (escape(part, {"\r": "&#13;"}) for part in (key, value))
        lines.append(f"  <property><name>{name}</name><value>{text}</value></property>")
    lines.append("</configuration>")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")
