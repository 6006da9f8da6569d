"""Hadoop's ``${...}``: other keys, ``${env.NAME}``, and a few properties of the user.

Commands are for a shell, whose own ``${NAME}`` looks the same. A shell variable's name has
no dot: so a name without one that is no key here is left alone, and one with a dot that
nobody knows is an error.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Tuple

from tony_core.job.keys import modern_name, table
from tony_core.job.problems import Problem
from tony_core.job.xmlreader import Entry

_REFERENCE = re.compile(r"\$\{([^\s{}$]+)\}")
_ENV = re.compile(r"env\.(?P<name>[^:\-]+)(?:(?P<mark>:?-)(?P<default>.*))?", re.DOTALL)
MOST_CHARACTERS = 256 * 1024


class _Failure(Exception):
    pass


class Substitution:
    """Values with their references replaced."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        env: Mapping[str, str],
        properties: Mapping[str, str],
    ) -> None:
        self._entries = entries
        self._env = env
        self._properties = properties
        self._done: Dict[str, str] = {}

    def all(self, problems: List[Problem]) -> Dict[str, Entry]:
        """Every entry with its text replaced; each failure is one problem."""
        out: Dict[str, Entry] = {}
        for key, entry in self._entries.items():
            try:
                out[key] = entry._replace(text=self._expand(entry.text, (key,)))
            except _Failure as failure:
                problems.append(Problem(str(failure), key, entry.source, entry.line))
                out[key] = entry
        return out

    def _expand(self, text: str, chain: Tuple[str, ...]) -> str:
        if "${" not in text:
            return text
        if len(chain) > 20:
            raise _Failure("${...} goes through more than 20 keys")
        expanded = _REFERENCE.sub(lambda match: self._value(match, chain), text)
        if len(expanded) > MOST_CHARACTERS:
            raise _Failure(f"${{...}} makes it longer than {MOST_CHARACTERS} characters")
        return expanded

    def _value(self, match: re.Match[str], chain: Tuple[str, ...]) -> str:
        name = modern_name(match[1])
        env = _ENV.fullmatch(name)
        if env is not None:
            return self._variable(env, (*chain, name))
        if name in chain:
            loop = " -> ".join((*chain[chain.index(name) :], name))
            raise _Failure(f"${{...}} goes in a circle: {loop}")
        if name in self._done:
            return self._done[name]
        if name in self._entries:
            value = self._expand(self._entries[name].text.strip(), (*chain, name))
            self._done[name] = value
            return value
        if name in self._properties:
            return self._properties[name]
        found = table().find(name)
        if found is not None and found.key.default is not None:
            return found.key.default
        if "." in name:
            raise _Failure(f"${{{name}}} is set nowhere")
        return match[0]

    def _variable(self, match: re.Match[str], chain: Tuple[str, ...]) -> str:
        name, mark, default = match["name"], match["mark"], match["default"]
        value = self._env.get(name)
        if value is None or (not value and mark == ":-"):
            if mark is None:
                raise _Failure(f"${{env.{name}}}: the environment has no {name}")
            return str(default)
        return self._expand(value, chain)
