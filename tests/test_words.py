"""The words of this product: plain ones, in what users read and in what its owners search.

Ordinary English stays ordinary English. What is refused here are phrases without an actor, and
names from a private picture where the field has a term (``docs/glossary.md``).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import Iterator, List, Tuple

CHECKOUT = Path(__file__).resolve().parent.parent
ROOMS = ("tony_core", "executor", "program", "plugins", "dags", "tests", "benchmarks")

LEFT_OUT = ("tests/test_words.py",)
"""It has the refused words themselves."""

PHRASES = re.compile(
    r"\b(somebody|nobody|whoever|(?:is|are|was|were) (?:told|said)|is silence|in vain"
    r"|not to be had|one word too many|less than none)\b",
    re.IGNORECASE,
)
"""Sentences that hide who does what."""

WORDS_OF_PHRASES = re.compile(
    r"somebody|nobody|whoever|told|said|silence|vain|to be had|too many|than none", re.IGNORECASE
)
"""One word of each phrase, which no line break and no pair of quotes divides."""

METAPHORS = frozenset(
    """
    told tells said say says saying nobody somebody whoever heard hear hears hearing
    ahead alone earlier board gathering clearing intake front orders brought bringing asking
    holding past burying burial bury parcel door life pace reach opening wanting
    """.split()
)
"""Parts of a name that stand for a term of the field."""


def _texts(path: Path) -> Iterator[Tuple[int, str]]:
    """Every comment and every text of a module with the line that it begins in."""
    source = path.read_text()
    if not WORDS_OF_PHRASES.search(source):
        return  # nearly always, and the rest is slow
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _names(path: Path) -> Iterator[Tuple[int, str]]:
    """Every name that a module gives: itself, its classes, functions, arguments, variables."""
    yield 1, path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname


def _words_of(name: str) -> List[str]:
    name = name.replace("TensorBoard", "Tensorboard")
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def phrases_in(path: Path) -> List[str]:
    """The refused phrases of a module or a page, with their lines."""
    if path.suffix == ".py":
        lines = _texts(path)
    else:
        lines = iter(enumerate(path.read_text().splitlines(), 1))
    where = path.relative_to(CHECKOUT)
    return [
        f"{where}:{line}: {found[0]}"
        for line, text in lines
        if text != "nobody"  # the Unix account
        for found in PHRASES.finditer(text)
    ]


def metaphors_in(path: Path) -> List[str]:
    """The names of a module that have a refused word in them, with their lines."""
    where = path.relative_to(CHECKOUT)
    return [
        f"{where}:{line}: {name}"
        for line, name in _names(path)
        if not METAPHORS.isdisjoint(_words_of(name))
    ]


def modules() -> List[Path]:
    """Every module of the product, its tests and its benchmarks."""
    found = sorted(path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py"))
    left_out = [CHECKOUT / name for name in LEFT_OUT]
    return [path for path in found if not any(path.is_relative_to(one) for one in left_out)]


def pages() -> List[Path]:
    """Every page that people read."""
    return [
        path
        for folder in (CHECKOUT, CHECKOUT / "docs")
        for path in sorted(folder.glob("*.md"))
        if path.name != "CHANGELOG.md"  # older entries stay as they were written
    ]


def test_docs_and_messages_name_who_does_what() -> None:
    found = [line for path in (*modules(), *pages()) for line in phrases_in(path)]
    assert not found, "\n".join(found)


def test_names_are_the_fields_terms() -> None:
    found = [line for path in modules() for line in metaphors_in(path)]
    assert not found, "\n".join(found)
