"""Layers of configuration, merged: defaults < site < job file < --conf < arguments.

Each value keeps where it came from. A renamed key is merged as the key it is read as, so
that the layers meet whatever name each of them uses.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence, Set, Tuple

from tony_core.job.keys.key import Status
from tony_core.job.keys.table import APPENDING, modern_name, table
from tony_core.job.problems import Problem, Severity, did_you_mean
from tony_core.job.xmlfile import Entry

CONF = "--conf"
ROLE_KEY = "tony.<role>."
SHIP_KEYTAB, TLS = "tony.kerberos.ship-keytab", "tony.task.tls"
# What XML cannot hold: control characters, lone surrogates (bytes that were no UTF-8).
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_KEY = re.compile(r"[^\s\x00-\x20\x7f]+")
_BARE_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
_REFERENCE = re.compile(r"\$\{([^\s{}$]+)\}")
_ENV = re.compile(r"env\.(?P<name>[^:\-]+)(?:(?P<mark>:?-)(?P<default>.*))?", re.DOTALL)
MOST_CHARACTERS = 256 * 1024


def merge(layers: Sequence[Sequence[Entry]], problems: List[Problem]) -> Dict[str, Entry]:
    """One entry for each key, the latest layer's; adds to ``problems`` what cannot be merged."""
    merged: Dict[str, Entry] = {}
    renamed: List[Entry] = []
    for layer in layers:
        seen: Dict[str, Entry] = {}
        sealed = {key: entry for key, entry in merged.items() if entry.final}
        # Of two names of one key in a layer the modern one wins, wherever it stands.
        for entry in sorted(layer, key=lambda entry: _with_modern_key(entry).key == entry.key):
            if not _is_valid(entry, problems):
                continue
            modern = _with_modern_key(entry)
            if modern.key != entry.key:
                renamed.append(entry)
            entry = modern
            twin = seen.get(entry.key)
            appends = entry.source == CONF and entry.key in APPENDING
            if twin is not None and not appends and twin.text.strip() != entry.text.strip():
                problems.append(
                    _problem(entry, f"set twice; this replaces {twin.where}", Severity.WARNING)
                )
            seen[entry.key] = entry
            final = sealed.get(entry.key)
            if final is not None:
                changes = final.text.strip() != entry.text.strip() or appends
                if changes and not entry.yields:
                    problems.append(
                        _problem(entry, f"is final in {final.where}: cannot be changed")
                    )
                continue
            before = merged.get(entry.key)
            if before is not None and appends and before.text.strip():
                text = f"{before.text.rstrip()},{entry.text.lstrip()}"
                where = before.where if CONF in before.where else f"{before.where}, {CONF}"
                entry = entry._replace(text=text, source=where)
            merged[entry.key] = entry
    if renamed:
        new = "; ".join(f"{e.key} ({e.where}) is now {_with_modern_key(e).key}" for e in renamed)
        problems.append(Problem(f"older names of keys: {new}", severity=Severity.WARNING))
    return merged


def add_implied(entries: Dict[str, Entry]) -> None:
    """Add what another key's value implies, where nothing sets it.

    A job that ships its keytab sends fresh tokens to its executors: not in clear.
    """
    ships = entries.get(SHIP_KEYTAB)
    scheduler = entries.get("tony.scheduler")
    if ships is None or ships.text.strip().lower() != "true":
        return
    if scheduler is None or scheduler.text.strip().lower() in ("", "local"):
        return  # which knows no tokens
    set_already = entries.get(TLS)
    if set_already is None or not set_already.text.strip():
        entries[TLS] = Entry(TLS, "true", SHIP_KEYTAB)


def parse_conf(words: Sequence[str], problems: List[Problem]) -> List[Entry]:
    """The entries of ``--conf k=v``."""
    entries = []
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            problems.append(Problem(f"{word!r} is not key=value", file=CONF))
        else:
            entries.append(Entry(key.strip(), text, CONF))
    return entries


def _is_valid(entry: Entry, problems: List[Problem]) -> bool:
    if _KEY.fullmatch(entry.key) is None or _FORBIDDEN.search(entry.key):
        message = f"{entry.key[:80]!r} is not a key: it holds blanks or control characters"
        problems.append(Problem(message, file=entry.source, line=entry.line))
        return False
    if _FORBIDDEN.search(entry.text):
        problems.append(_problem(entry, "the value holds a control character"))
        return False
    if len(entry.text) > MOST_CHARACTERS:
        problems.append(_problem(entry, f"the value is longer than {MOST_CHARACTERS} characters"))
        return False
    return True


def _with_modern_key(entry: Entry) -> Entry:
    key = table().by_name.get(entry.key)
    if key is None or key.status is not Status.RENAMED:
        return entry
    text = entry.text.strip()
    if key.unit and _BARE_NUMBER.fullmatch(text):
        text += key.unit
    return entry._replace(key=key.alias, text=text)


def _problem(entry: Entry, message: str, severity: Severity = Severity.ERROR) -> Problem:
    return Problem(message, entry.key, entry.source, entry.line, severity)


def check_known(
    entries: Mapping[str, Entry], problems: List[Problem], roles: Sequence[str] = ()
) -> None:
    """Refuse unknown ``tony.*`` keys; name those of no effect in one warning."""
    ignored: List[Entry] = []
    for entry in entries.values():
        if not entry.key.startswith("tony."):
            if re.match(r"(?i)(tony|tonny|toni|tny|ton)[._-]", entry.key):
                message = "does not begin with tony., so it has no effect"
                problems.append(_problem(entry, message, Severity.WARNING))
            continue
        found = table().find(entry.key)
        if found is None:
            problems.append(_problem(entry, "unknown key" + _hint(entry.key, roles)))
        elif found.key.status is Status.IGNORED:
            ignored.append(entry)
    if ignored:
        problems.append(Problem(_of_no_effect(ignored), severity=Severity.WARNING))


def _of_no_effect(entries: Sequence[Entry]) -> str:
    """The ignored keys, those of one reason together, each file named once."""
    reasons: Dict[str, List[str]] = {}
    named: Set[str] = set()
    for entry in entries:
        found = table().find(entry.key)
        reason = found.key.doc.rstrip(".") if found else ""
        again = entry.line is not None and entry.source in named
        where = f"line {entry.line}" if again else entry.where
        named.add(entry.source)
        reasons.setdefault(reason, []).append(f"{entry.key} ({where})")
    return "of no effect here: " + "; ".join(
        f"{', '.join(names)}: {reason[:1].lower()}{reason[1:]}" for reason, names in reasons.items()
    )


def _hint(name: str, roles: Sequence[str]) -> str:
    role, _, rest = name.removeprefix("tony.").partition(".")
    if role not in roles or "." in rest:
        return table().suggest(name, roles)
    words = [key.name[len(ROLE_KEY) :] for key in table().keys if key.name.startswith(ROLE_KEY)]
    near = did_you_mean(rest, words)
    return near.replace("mean ", f"mean tony.{role}.") or (
        f" (another resource type of the cluster is written tony.{role}.resource.{rest})"
    )


class _Failure(Exception):
    pass


class Substitution:
    """Hadoop's ``${...}``: other keys, ``${env.NAME}``, and a few properties of the user.

    Commands are for a shell, whose own ``${NAME}`` looks the same. A shell variable's name has
    no dot: so a name without one that is no key here stays as it is, and one with a dot that
    is not known is an error.
    """

    def __init__(
        self, entries: Mapping[str, Entry], env: Mapping[str, str], properties: Mapping[str, str]
    ) -> None:
        self._entries = entries
        self._env = env
        self._properties = properties
        self._done: Dict[str, str] = {}

    def all(self, problems: List[Problem]) -> Dict[str, Entry]:
        """Every entry with its references replaced; adds a problem for each failure."""
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
