"""The files of a plugin: what the runtime takes along for a job that uses it.

The top-level package or module of its entry point, whole, and nothing that it imports from
elsewhere: what nodes run needs the standard library alone. Of a namespace package, which
many distributions share, only the part that is the plugin's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Callable, Dict, List, Sequence, Tuple

from tony_core.plugins import INDEX, Plugin

_OURS = ("tony_core", "tony_executor")
Walk = Callable[[str], List[Tuple[str, str]]]


class CannotBring(Exception):
    """A plugin whose code cannot travel; the text says why and what to do."""


def files_of(plugin: Plugin, walk: Walk) -> Dict[str, str]:
    """Path in the runtime -> path here; ``walk`` lists (name, path) below a folder."""
    top = plugin.module.partition(".")[0]
    if top in _OURS:
        return {}
    if top in sys.stdlib_module_names or top in ("program", "__main__"):
        raise CannotBring(_words(plugin, f"the name {top} is taken on nodes; call it otherwise"))
    name = ""
    for part in plugin.module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError) as error:
            raise CannotBring(_words(plugin, f"{name} is not found: {error}")) from error
        if spec is None:
            raise CannotBring(_words(plugin, f"{name} is not installed here"))
        path = name.replace(".", "/")
        if spec.origin is None or not os.path.isfile(spec.origin):
            continue  # a namespace: what is the plugin's stands further below
        if not spec.origin.endswith(".py"):
            raise CannotBring(_words(plugin, f"{name} is no Python source ({spec.origin})"))
        if spec.submodule_search_locations is None:
            return {f"{path}.py": spec.origin}
        found = {}
        for folder in spec.submodule_search_locations:
            found.update({f"{path}/{below}": here for below, here in walk(folder)})
        return found
    raise CannotBring(_words(plugin, f"{plugin.module} stands in no file"))


def index_of(plugins: Sequence[Plugin]) -> bytes:
    """The file by which the node finds them."""
    groups: Dict[str, Dict[str, str]] = {}
    for plugin in sorted(plugins):
        groups.setdefault(plugin.group, {})[plugin.name] = plugin.target
    return json.dumps(groups, sort_keys=True).encode("ascii")


def _words(plugin: Plugin, why: str) -> str:
    return (
        f"{plugin.name} ({plugin.target}, by the entry point group {plugin.group}) cannot be"
        f" sent to the nodes: {why}"
    )


__all__ = ["INDEX", "CannotBring", "files_of", "index_of"]
