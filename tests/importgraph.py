"""Who imports whom in this checkout, read from the source without importing any of it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, Tuple

CHECKOUT = Path(__file__).resolve().parent.parent

PACKAGES: Mapping[str, Path] = {
    "tony_core": CHECKOUT / "tony_core",
    "tony_executor": CHECKOUT / "executor" / "tony_executor",
    "tony_airflow": CHECKOUT / "plugins" / "airflow" / "tony_airflow",
    "tony_azkaban": CHECKOUT / "plugins" / "azkaban" / "tony_azkaban",
}


@dataclass(frozen=True)
class Import:
    """``importer`` names ``imported`` (a module, or a name in one) in this line."""

    importer: str
    imported: str
    line: int
    typing_only: bool = False  # under ``if TYPE_CHECKING:``

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}, imports {self.imported}"


class Graph:
    """The modules of some packages and every import in them, those inside functions too."""

    def __init__(self, packages: Mapping[str, Path] = PACKAGES) -> None:
        self.files: Dict[str, Path] = {}
        for package, folder in packages.items():
            for path in sorted(folder.rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                self.files[".".join((package, *parts)).removesuffix(".__init__")] = path
        self._tops = frozenset(packages)
        self._imports = {name: list(self._read(name)) for name in self.files}

    def imports(self, module: str) -> List[Import]:
        """What a module imports."""
        return self._imports[module]

    def ours(self, name: str) -> bool:
        """Whether a dotted name is one of these packages'."""
        return name.partition(".")[0] in self._tops

    def modules(self, *prefixes: str) -> List[str]:
        """The modules that are, or are inside, one of these."""
        return [name for name in self.files if any(within(name, prefix) for prefix in prefixes)]

    def circles(self) -> List[List[str]]:
        """Modules that import each other, directly or not; imports for types do not count."""
        reached = {
            name: {
                self.module_of(found.imported)
                for found in self.imports(name)
                if self.ours(found.imported) and not found.typing_only
            }
            - {name}
            for name in self.files
        }
        while True:
            imported = {name for others in reached.values() for name in others}
            left = {
                name: others & reached.keys()
                for name, others in reached.items()
                if name in imported and others & reached.keys()
            }
            if left == reached:
                return [sorted((name, *others)) for name, others in sorted(left.items())]
            reached = left

    def module_of(self, name: str) -> str:
        """The module in which a dotted name of ours lives: ``a.b.C`` lives in ``a.b``."""
        while name not in self.files:
            name, dot, _ = name.rpartition(".")
            if not dot:
                raise LookupError("no such module of ours")
        return name

    def closure(self, roots: Iterable[str]) -> List[str]:
        """These modules and all of ours that they bring in when they run, parents included."""
        seen: Dict[str, None] = {}
        todo = list(roots)
        while todo:
            module = todo.pop()
            if module in seen:
                continue
            seen[module] = None
            parent = module.rpartition(".")[0]
            if parent:
                todo.append(parent)
            for found in self._imports[module]:
                if self.ours(found.imported) and not found.typing_only:
                    todo.append(self.module_of(found.imported))
                    todo += self._lazily(found.imported)
        return sorted(seen)

    def _lazily(self, name: str) -> Iterator[str]:
        """What a package brings in when one of its names is first asked for.

        Such a package shows the name to type checkers, and only to them.
        """
        module = self.module_of(name)
        for found in self._imports[module]:
            same = found.imported.rpartition(".")[2] == name.rpartition(".")[2]
            if module != name and same and found.typing_only and self.ours(found.imported):
                yield self.module_of(found.imported)

    def _read(self, module: str) -> Iterator[Import]:
        path = self.files[module]
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        quiet = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for statement in node.body
            for inner in ast.walk(statement)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(module, alias.name, node.lineno, node in quiet)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parts = package.split(".")
                    parts = parts[: len(parts) - node.level + 1]
                    base = ".".join([*parts, base] if base else parts)
                for alias in node.names:
                    yield Import(module, f"{base}.{alias.name}", node.lineno, node in quiet)


def within(name: str, prefix: str) -> bool:
    """Whether a dotted name is the prefix or inside it."""
    return name == prefix or name.startswith(prefix + ".")


def room_of(name: str, rooms: Iterable[str]) -> str:
    """The narrowest of the rooms that a dotted name is in, or an empty string."""
    return max((room for room in rooms if within(name, room)), key=len, default="")


def crossings(graph: Graph, allowed: Mapping[str, Tuple[str, ...]]) -> List[str]:
    """Every import from one room into another that the table does not allow, in words."""
    wrong = []
    for module in graph.files:
        room = room_of(module, allowed)
        for found in graph.imports(module):
            if not graph.ours(found.imported):
                continue
            target = graph.module_of(found.imported)
            into = room_of(target, allowed)
            # A package that holds rooms is imported with each of them and holds nothing else.
            if into and into != room and not within(room, into) and into not in allowed[room]:
                wrong.append(f"{found}: {room} may import {', '.join(allowed[room]) or 'nothing'}")
    return wrong
