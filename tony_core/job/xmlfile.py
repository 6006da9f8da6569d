"""Hadoop's configuration XML, read with suspicion (no entities, DTDs, includes or network) and
written.

What Hadoop passes over (a property without a name or a value, an element that it does not know) is
passed over with a warning, and refused where it looks like a typing error.
"""

from __future__ import annotations

import re
from typing import Any, List, NamedTuple, Optional, Tuple

from tony_core.job.mask import mask_settings
from tony_core.job.problems import Problem, Severity, did_you_mean, errors
from tony_core.job.spec import Job
from tony_core.printable import printable

MOST_BYTES = 4 * 1024 * 1024  # a job file is some kilobytes
Element = Any  # lxml's; its stubs take every tag for text, comments too
_FIELDS = ("name", "value", "final", "description", "source", "tag")  # what Hadoop knows
# JVM TonY's own defaults declare these keys without a value, and its users copy that file.
_DECLARED_ONLY = (
    "tony.other.namenodes",
    "tony.application.node-label",
    "tony.application.hdfs-conf-path",
    "tony.application.yarn-conf-path",
    "tony.application.mapred-conf-path",
    "tony.application.hadoop.location",
    "tony.application.hadoop.classpath",
)
_XINCLUDE = "{http://www.w3.org/2001/XInclude}"
# A carriage return too: else a reader makes a line feed of it.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})


class Entry(NamedTuple):
    """One ``<property>``, or one word of the command line."""

    key: str
    text: str
    source: str  # a path or URL, or the word of the command line
    line: Optional[int] = None
    final: bool = False
    origin: str = ""  # a property's own <source>: where its writer had the value from
    yields: bool = False  # to a final value, of which it is no change

    @property
    def where(self) -> str:
        """``file:line``."""
        return self.source if self.line is None else f"{self.source}:{self.line}"


def read_xml(data: bytes, file: str) -> Tuple[List[Entry], List[Problem]]:
    """Every property in the order of the file, and what is wrong with it. Never raises."""
    if len(data) > MOST_BYTES:
        return [], [Problem(f"is larger than {MOST_BYTES // 1024 // 1024} MB", file=file)]
    from lxml import etree  # the dearest import of all; many jobs have no file

    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False
    )
    try:
        root: Element = etree.fromstring(data, parser)
        document: Any = root.getroottree().docinfo
    except etree.XMLSyntaxError as error:
        reason = re.sub(r", line \d+, column \d+$", "", str(error.msg))
        return [], [Problem(f"is not well-formed XML: {reason}", file=file, line=error.lineno)]
    except (etree.LxmlError, ValueError, LookupError) as error:
        return [], [Problem(f"is not XML: {error}", file=file)]
    if document.doctype or document.internalDTD is not None:
        message = "has a DOCTYPE; document types and entities are not accepted"
        return [], [Problem(message, file=file, line=1)]
    return _Reader(file).read(root)


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.entries: List[Entry] = []
        self.problems: List[Problem] = []

    def read(self, root: Element) -> Tuple[List[Entry], List[Problem]]:
        from lxml import etree

        for element in root.iter():
            if isinstance(element.tag, str) and element.tag.startswith(_XINCLUDE):
                self._problem("includes another file (xi:include), which is not accepted", element)
            elif element.tag is etree.Entity:
                self._problem(f"refers to the entity {element.text}; not accepted", element)
        if errors(self.problems):
            return [], self.problems
        if root.tag != "configuration":
            self._problem(f"starts with <{root.tag}> instead of <configuration>", root)
            return [], self.problems
        self._configuration(root)
        return self.entries, self.problems

    def _configuration(self, element: Element) -> None:
        for child in element:
            if not isinstance(child.tag, str):
                continue  # a comment or processing instruction
            if child.tag == "property":
                self._property(child)
            elif child.tag == "configuration":
                self._configuration(child)  # as Hadoop does; the parser bounds the depth
            else:
                hint = did_you_mean(child.tag, ["property"])
                self._unknown(f"holds <{child.tag}> where only <property> may stand", hint, child)

    def _property(self, element: Element) -> None:
        for child in element:
            if isinstance(child.tag, str) and child.tag not in _FIELDS:
                hint = did_you_mean(child.tag, _FIELDS)
                self._unknown(f"a property holds <{child.tag}>, which means nothing", hint, child)
        name = self._field(element, "name")
        value = self._field(element, "value")
        if name is None or not name.strip():
            self._problem("a property without a <name> is skipped", element, Severity.WARNING)
            return
        if value is None:
            if name.strip().startswith("tony.") and name.strip() not in _DECLARED_ONLY:
                message = f"{name.strip()} has no <value> and is skipped"
                self._problem(message, element, Severity.WARNING)
            return
        final = (self._field(element, "final") or "").strip().lower() == "true"
        line = element.sourceline
        named = element.find("name")
        if named is not None and named.sourceline is not None:
            line = named.sourceline
        sources = element.findall("source")  # Hadoop writes one for each file, the origin first
        origin = str(sources[0].xpath("string()")).strip() if sources else ""
        self.entries.append(Entry(name.strip(), value, self.file, line, final, origin))

    def _field(self, element: Element, name: str) -> Optional[str]:
        children = element.findall(name)
        if len(children) > 1:
            self._problem(f"a property has more than one <{name}>", children[1])
        if children:
            return str(children[0].xpath("string()"))  # without comments inside it
        attribute = element.get(name)
        return None if attribute is None else str(attribute)

    def _unknown(self, message: str, hint: str, element: Element) -> None:
        """An element that means nothing; refused where it is nearly one that does."""
        self._problem(message + hint, element, Severity.ERROR if hint else Severity.WARNING)

    def _problem(self, message: str, element: Element, severity: Severity = Severity.ERROR) -> None:
        line = element.sourceline
        self.problems.append(Problem(message, file=self.file, line=line, severity=severity))


def job_to_xml(job: Job, masked: bool = True) -> str:
    """The job's settings with their sources; defaults are left out.

    ``masked`` hides secrets: what people can read is always masked, and no job can be made
    of it again.
    """
    settings = mask_settings(job.settings) if masked else job.settings
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<configuration>"]
    for item in settings:
        if item.source == "default":
            continue
        lines.append("  <property>")
        lines.append(f"    <name>{item.key.translate(_ESCAPES)}</name>")
        lines.append(f"    <value>{item.value.translate(_ESCAPES)}</value>")
        if item.final:
            lines.append("    <final>true</final>")
        lines.append(f"    <source>{printable(item.source).translate(_ESCAPES)}</source>")
        lines.append("  </property>")
    lines.append("</configuration>")
    return "\n".join(lines) + "\n"
