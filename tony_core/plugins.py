"""What other distributions bring, by entry point; on nodes, by an index beside our code.

Where a distribution is installed its entry points are looked up as usual. On a node nothing
is installed: the client puts the package of a plugin that a job uses into the runtime, and
with it the file :data:`INDEX`, which says of each group and name what to import. Where that
file stands nothing else is looked at.

Runs on the nodes' Python with the standard library only.
"""

from __future__ import annotations

import importlib
import json
import os
from typing import Any, Dict, NamedTuple, Optional

INDEX = "tony-plugins.json"
_ABOVE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Plugin(NamedTuple):
    """One entry point."""

    group: str
    name: str
    target: str  # module:attribute

    @property
    def module(self) -> str:
        """What is imported for it."""
        return self.target.partition(":")[0].strip()

    def load(self) -> Any:
        """The object that the entry point names; lets its module's exceptions through."""
        found: Any = importlib.import_module(self.module)
        # An entry point may name extras behind its object: mine:Mine [gpu]
        for name in self.target.partition(":")[2].partition("[")[0].strip().split("."):
            found = getattr(found, name)
        return found


def installed(group: str) -> Dict[str, Plugin]:
    """Every plugin of a group by its name, in lower case."""
    index = _index()
    if index is not None:
        return {name: Plugin(group, name, target) for name, target in index.get(group, {}).items()}
    import importlib.metadata as metadata  # costs 30 ms: only when it is not one of ours

    found: Dict[str, Plugin] = {}
    # Not entry_points(group=...): Python 3.9 has another signature.
    for distribution in metadata.distributions():
        for entry in distribution.entry_points:
            if entry.group == group:
                name = entry.name.lower()
                found.setdefault(name, Plugin(group, name, entry.value))
    return found


def _index() -> Optional[Dict[str, Dict[str, str]]]:
    try:
        with open(os.path.join(_ABOVE, INDEX), encoding="ascii") as stream:
            index: Dict[str, Dict[str, str]] = json.load(stream)
            return index
    except FileNotFoundError:
        return None
