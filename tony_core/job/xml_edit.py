"""Changes values in a job file, and leaves every other byte of it as it is. Pure.

Theory of operation
===================

A parser's tree forgets comments between fields, quotes and line ends. So the text itself is cut
into tags, text and comments, which is simple for what :func:`~tony_core.job.xmlfile.read_xml` has
accepted: well-formed, and without a document type. Of several properties of a key the one that
counts is changed. A key under an older name gets the newer name with its value, as the unit of a
bare number depends on the name. A new key stands at the end of the root, in the form of the last
property there.

The result is read again, and counts only if nothing but the changes differs (:class:`CannotEdit`
otherwise): what was cut decides nothing.
"""

from __future__ import annotations

import codecs
import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tony_core.job.keys.table import modern_name
from tony_core.job.problems import errors
from tony_core.job.xmlfile import Entry, read_xml

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(rb"""^<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]*)["']""")
_TOKEN = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[(?P<cdata>.*?)\]\]>|</(?P<end>[^\s>]+)\s*>"
    r"|<(?P<start>[^\s/>]+)(?P<attributes>(?:[^\"'>/]|\"[^\"]*\"|'[^']*')*)(?P<empty>/?)>"
    r"|(?P<text>[^<]+)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"([^\s=]+)\s*=\s*(\"[^\"]*\"|'[^']*')")
_REFERENCE = re.compile(r"&(?:#x([0-9A-Fa-f]+)|#([0-9]+)|(lt|gt|amp|quot|apos));")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
IN_TEXT = str.maketrans(_ESCAPES)  # what translate() makes of an element's text
_QUOTES = {'"': "&quot;", "'": "&apos;", "\n": "&#10;", "\t": "&#9;"}
_IN_ATTRIBUTE = str.maketrans({**_ESCAPES, **_QUOTES})
_LINE = re.compile(r"(?:\r\n|\n)[ \t]*\Z")
_SIMPLE = re.compile(
    r"<property\s*>(\s*)<name\s*>[^<]*</name\s*>(\s*)<value\s*>[^<]*</value\s*>"
    r".*?(\s*)</property\s*>",
    re.DOTALL,
)


class CannotEdit(Exception):
    """The file cannot be changed in place; the message says why."""


def set_values(data: bytes, values: Mapping[str, str], file: str = "the job file") -> bytes:
    """The file with these keys set to these values. Raises :class:`CannotEdit`."""
    wanted = {modern_name(key): value.strip() for key, value in values.items()}
    old = {key: entry.text.strip() for key, entry in entries_by_key(data, file).items()}
    bom, codec, text = _decode(data, file)
    edits = list(_edits(text, {k: v for k, v in wanted.items() if old.get(k) != v}))
    made = bom + _splice(text, edits).encode(codec, "xmlcharrefreplace")
    new: Mapping[str, Entry] = {}
    try:
        new = entries_by_key(made, file)
    except CannotEdit:
        pass  # refused below
    if {key: entry.text.strip() for key, entry in new.items()} != {**old, **wanted}:
        raise CannotEdit(
            f"{file}: its XML is of a form that cannot be changed safely; change it by hand"
        )
    return made


def entries_by_key(data: bytes, file: str = "the job file") -> Dict[str, Entry]:
    """The entry that counts of each key of a file, under the key's newest name."""
    entries, problems = read_xml(data, file)
    wrong = errors(problems)
    if wrong:
        raise CannotEdit(str(wrong[0]))
    ranked = sorted(entries, key=lambda entry: modern_name(entry.key) == entry.key)
    return {modern_name(entry.key): entry for entry in ranked}


def _decode(data: bytes, file: str) -> Tuple[bytes, str, str]:
    """The byte order mark, the encoding and the text."""
    bom, codec = next(((mark, name) for mark, name in _BOMS if data.startswith(mark)), (b"", ""))
    body = data[len(bom) :]
    declared = _DECLARED.match(body)
    codec = codec or (declared[1].decode() if declared else "utf-8")
    try:
        text = body.decode(codec)
        if text.encode(codec) == body:
            return bom, codec, text
    except (LookupError, UnicodeError):
        pass
    raise CannotEdit(f"{file}: its encoding ({codec}) cannot be kept; save it as UTF-8")


# ------------------------------------------------------------------ what stands where


class _Piece(NamedTuple):
    """Text between tags: where, what it means, and what stands around it."""

    begin: int
    end: int
    text: str
    is_cdata: bool = False


class _Element:
    """An element with the places of its tags."""

    def __init__(self, match: re.Match[str]) -> None:
        self.tag = match["start"]
        self.begin, self.inner = match.span()
        self.inner_end = self.end = self.inner  # until its end tag is found
        self.is_empty = bool(match["empty"])
        self.children: List[_Element] = []
        self.pieces: List[_Piece] = []  # of its children, too
        at = match.start("attributes")
        self.attributes = {
            one[1]: _Piece(at + one.start(2) + 1, at + one.end(2) - 1, _unescape(one[2][1:-1]))
            for one in _ATTRIBUTE.finditer(match["attributes"])
        }

    def edit(self, new: str) -> Iterator[Tuple[int, int, str]]:
        """Put a text in the place of its text; blanks around it and comments in it stay."""
        if self.is_empty:
            yield self.begin, self.end, f"<{self.tag}>{new.translate(IN_TEXT)}</{self.tag}>"
            return
        filled = [piece for piece in self.pieces if piece.text.strip()]
        if not filled:
            yield self.inner, self.inner, new.translate(IN_TEXT)
        for number, piece in enumerate(filled):
            text = "" if number else new
            if piece.is_cdata and "]]>" not in text:
                yield piece.begin, piece.end, f"<![CDATA[{text}]]>"
            else:
                yield piece.begin, piece.end, text.translate(IN_TEXT)


class _Field(NamedTuple):
    """The name or the value of a property: an element, else an attribute."""

    text: str
    place: object

    def edit(self, new: str) -> Iterator[Tuple[int, int, str]]:
        if isinstance(self.place, _Element):
            yield from self.place.edit(new)
        elif isinstance(self.place, _Piece):
            yield self.place.begin, self.place.end, new.translate(_IN_ATTRIBUTE)


class _Property(NamedTuple):
    element: _Element
    name: _Field
    value: _Field


def _tree(text: str) -> Optional[_Element]:
    """The root of a document."""
    root: Optional[_Element] = None
    opened: List[_Element] = []
    for match in _TOKEN.finditer(text):
        if match["start"]:
            made = _Element(match)
            if opened:
                opened[-1].children.append(made)
            root = root or made
            if not made.is_empty:
                opened.append(made)
        elif match["end"] and opened:
            closed = opened.pop()
            closed.inner_end, closed.end = match.span()
        elif match["cdata"] is not None or match["text"]:
            piece = _piece(match)
            for element in opened:
                element.pieces.append(piece)
    return root


def _piece(match: re.Match[str]) -> _Piece:
    if match["cdata"] is not None:
        return _Piece(*match.span(), match["cdata"], True)
    raw = match["text"]
    begin = match.start() + len(raw) - len(raw.lstrip())
    return _Piece(begin, max(begin, match.start() + len(raw.rstrip())), _unescape(raw))


def _properties(element: _Element) -> Iterator[_Property]:
    """As the reader finds them: in the root, and in a configuration within one."""
    for child in element.children:
        if child.tag == "configuration":
            yield from _properties(child)
        elif child.tag == "property":
            name, value = _field(child, "name"), _field(child, "value")
            if name is not None and value is not None and name.text.strip():
                yield _Property(child, name, value)


def _field(element: _Element, tag: str) -> Optional[_Field]:
    for child in element.children:
        if child.tag == tag:
            return _Field("".join(piece.text for piece in child.pieces), child)
    piece = element.attributes.get(tag)
    return None if piece is None else _Field(piece.text, piece)


# ------------------------------------------------------------------ what changes


def _edits(text: str, values: Mapping[str, str]) -> Iterator[Tuple[int, int, str]]:
    """Each part of the text that is replaced: where, and by what."""
    root = _tree(text)
    if root is None or not values:
        return
    known: Dict[str, _Property] = {}
    found = list(_properties(root))
    for each in sorted(found, key=lambda one: _key(one) == one.name.text.strip()):
        known[_key(each)] = each
    for key, value in values.items():
        if key in known:
            yield from known[key].value.edit(value)
            if known[key].name.text.strip() != key:
                yield from known[key].name.edit(key)
    added = {key: value for key, value in values.items() if key not in known}
    if added:
        yield _addition(text, root, added)


def _key(found: _Property) -> str:
    return modern_name(found.name.text.strip())


def _addition(text: str, root: _Element, values: Mapping[str, str]) -> Tuple[int, int, str]:
    """New properties at the end of the root, where what it holds ends."""
    newline = "\r\n" if "\r\n" in text else "\n"
    form, escapes = _form(text, root, newline)
    new = "".join(
        form.replace("{key}", key.translate(escapes)).replace("{value}", value.translate(escapes))
        for key, value in values.items()
    )
    if root.is_empty:
        tag = text[root.begin : root.end].removesuffix("/>").rstrip()
        return root.begin, root.end, f"{tag}>{new}{newline}</{root.tag}>"
    inner = text[root.inner : root.inner_end]
    at = root.inner + len(inner.rstrip())
    ends_line = newline if form.startswith(newline) and at == root.inner_end else ""
    return at, at, f"{new}{ends_line}"


def _form(text: str, root: _Element, newline: str) -> Tuple[str, Dict[int, str]]:
    """How the file writes its last property, with the marks of a key and a value."""
    own = [child for child in root.children if child.tag == "property"]
    if not own:
        inside = f"<name>{{key}}</name>{newline}    <value>{{value}}</value>"
        return f"{newline}  <property>{newline}    {inside}{newline}  </property>", IN_TEXT
    last = own[-1]
    before = text[: last.begin]
    line = _LINE.search(before)
    lead = line[0] if line else before[len(before.rstrip()) :]
    if "name" in last.attributes and "value" in last.attributes:
        return f'{lead}<property name="{{key}}" value="{{value}}"/>', _IN_ATTRIBUTE
    simple = _SIMPLE.fullmatch(text, last.begin, last.end)
    first, second, end = simple.groups() if simple else (f"{lead}  ", f"{lead}  ", lead)
    inside = f"{first}<name>{{key}}</name>{second}<value>{{value}}</value>{end}"
    return f"{lead}<property>{inside}</property>", IN_TEXT


def _splice(text: str, edits: Sequence[Tuple[int, int, str]]) -> str:
    out, at = [], 0
    for begin, end, new in sorted(edits):
        out += [text[at:begin], new]
        at = end
    return "".join([*out, text[at:]])


def _unescape(text: str) -> str:
    def whole(match: re.Match[str]) -> str:
        if match[3]:
            return _NAMED[match[3]]
        return chr(int(match[1], 16) if match[1] else int(match[2]))

    return _REFERENCE.sub(whole, text)
