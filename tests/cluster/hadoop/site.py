"""Hadoop's configuration files, as Hadoop reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Mapping
from xml.etree import ElementTree
from xml.sax.saxutils import escape

Properties = Dict[str, str]


def write_site(path: Path, properties: Mapping[str, str]) -> None:
    """One file of ``<property>`` elements; whole or not at all for who reads meanwhile."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<configuration>"]
    for name, value in sorted(properties.items()):
        lines += [
            "  <property>",
            f"    <name>{escape(name)}</name>",
            f"    <value>{escape(value)}</value>",
            "  </property>",
        ]
    lines += ["</configuration>", ""]
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text("\n".join(lines))
    scratch.replace(path)


def read_site(path: Path) -> Properties:
    """The names and values of a file that ``write_site`` wrote."""
    found: Properties = {}
    for element in ElementTree.parse(path).getroot().iter("property"):
        found[element.findtext("name") or ""] = element.findtext("value") or ""
    return found
