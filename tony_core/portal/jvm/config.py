"""The configuration beside a ``.jhist`` file, where it stands as it was submitted, masked. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Tuple
from xml.sax.saxutils import escape

from tony_core.files.location import masked
from tony_core.history.configuration import ConfigEntry
from tony_core.job.mask import mask_text, mask_value
from tony_core.job.units import parse_memory_mb
from tony_core.job.xmlfile import read_xml

#: The newer name first; ``config.xml`` is from before 0.3.5.
CONFIG_NAMES = ("tony-final.xml", "config.xml")
LARGEST = 4 << 20  # as of any job file

_ROLE = re.compile(r"tony\.([a-z][a-z0-9-]{0,100})\.(instances|memory|vcores|gpus)\Z")
#: What no XML may hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DEFAULTS = {"memory_mb": 2048, "vcores": 1, "gpus": 0}  # as that TonY has them


class JvmConfig(NamedTuple):
    """The properties of a job, and why there are none."""

    entries: Tuple[ConfigEntry, ...] = ()
    problems: Tuple[str, ...] = ()

    def get(self, key: str) -> str:
        """The last value of a key; empty where there is none."""
        return next((entry.value for entry in reversed(self.entries) if entry.key == key), "")

    def roles(self) -> Dict[str, Dict[str, int]]:
        """What each role asked for: ``instances``, ``memory_mb``, ``vcores``, ``gpus``."""
        found: Dict[str, Dict[str, int]] = {}
        for key, value, _ in self.entries:
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
    entries = tuple(
        ConfigEntry(entry.key, mask_value(entry.key, entry.text), masked(entry.origin))
        for entry in found
    )
    # What Hadoop writes and a job file may not have is no loss here.
    named = () if entries else tuple(mask_text(str(problem)) for problem in problems)
    return JvmConfig(entries, named)


def with_roles(config: JvmConfig, roles: Mapping[str, Any]) -> JvmConfig:
    """The same with the instances, memory, cores and GPUs of each role, as that TonY writes them.

    Dr. Elephant knows no defaults and no other units than m and g: a role without a memory that it
    can read ends its analysis.
    """
    known = {entry.key for entry in config.entries}
    added: List[ConfigEntry] = []
    memory: Dict[str, str] = {}
    for role, asked in roles.items():
        for kind in ("instances", "memory_mb", "vcores", "gpus"):
            value = asked.get(kind) if isinstance(asked, dict) else None
            if not isinstance(value, int) or isinstance(value, bool):
                continue
            key, text = f"tony.{role}.{kind}", str(value)
            if kind == "memory_mb":
                key, text = f"tony.{role}.memory", f"{value}m"
                memory[key] = text
            if key not in known:
                added.append(ConfigEntry(key, text))
    entries = [entry._replace(value=memory.get(entry.key, entry.value)) for entry in config.entries]
    return config._replace(entries=(*entries, *added))


def to_xml(entries: Iterable[ConfigEntry]) -> bytes:
    """A configuration in Hadoop's form."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<configuration>"]
    for entry in entries:
        key, value, source = (escape(_NOT_XML.sub("?", part), {"\r": "&#13;"}) for part in entry)
        origin = f"<source>{source}</source>" if source else ""
        lines.append(f"  <property><name>{key}</name><value>{value}</value>{origin}</property>")
    lines.append("</configuration>")
    return ("\n".join(lines) + "\n").encode()
