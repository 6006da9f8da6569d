"""The documentation as data: pages, their blocks, links, anchors and command lines."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES: Dict[str, Path] = {
    str(path.relative_to(CHECKOUT)): path
    for path in sorted(
        [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("examples/**/*.md")]
    )
}

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^|\n)\n((?: {4}[^\n]*\n?)+)")
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(language: str) -> List[Block]:
    """Every block of that language, on all pages."""
    found = []
    for page, path in PAGES.items():
        text = path.read_text()
        for match in _FENCE.finditer(text):
            if match[1].strip() == language:
                line = text.count("\n", 0, match.start()) + 2
                found.append(Block(page, line, language, match[2]))
    return found


def lists(page: str) -> List[List[str]]:
    """The items of every list of a page, each as one line of text."""
    found: List[List[str]] = []
    text = _FENCE.sub("", PAGES[page].read_text())
    for paragraph in re.split(r"\n\s*\n", text):
        parts = re.split(r"^- ", paragraph, flags=re.MULTILINE)
        if len(parts) > 1:
            found.append([" ".join(part.split()) for part in parts[1:]])
    return found


def command_lines() -> List[Block]:
    """Every ``tony ...`` that stands on a page: after a prompt, indented, or in the text."""
    found = []
    for page, path in PAGES.items():
        text = path.read_text()
        prose = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
        lines = [
            line[2:]
            for match in _FENCE.finditer(text)
            if match[1].strip() == "console"
            for line in _unfolded(match[2])
            if line.startswith("$ ")
        ]
        for match in _INDENTED.finditer(prose):
            lines += [line.strip() for line in _unfolded(match[1])]
        lines += [span[1] for span in _SPAN.finditer(_INDENTED.sub("\n", prose))]
        for line in lines:
            command = line.partition("  #")[0].strip()
            if re.match(r"tony( |$)", command):
                found.append(Block(page, _line_of(text, line), "command", command))
    return found


def _unfolded(text: str) -> List[str]:
    return text.replace("\\\n", " ").splitlines()


def _line_of(text: str, piece: str) -> int:
    return text.count("\n", 0, max(0, text.find(piece))) + 1


def words_of(command: str) -> List[str]:
    """A command line's words as a shell gives them, without what follows the command."""
    words = []
    for word in shlex.split(command, comments=True):
        if word in ("|", ">", "&&", ";", "&"):
            break
        words.append(word)
    return words


def links(page: str) -> Iterator[str]:
    """Where the page's links lead, code left out."""
    text = _SPAN.sub("", _FENCE.sub("", PAGES[page].read_text()))
    for match in _LINK.finditer(text):
        yield match[1]


def anchors(path: Path) -> List[str]:
    """The anchors of a page's headings, as they are made on the web."""
    found = []
    for match in _HEADING.finditer(_FENCE.sub("", path.read_text())):
        words = re.sub(r"[^\w\- ]", "", match[1].lower())
        found.append(words.replace(" ", "-"))
    return found
