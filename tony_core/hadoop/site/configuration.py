"""A site's configuration, read as Hadoop reads it, so that every client needs only its files.

Theory of operation
===================

The files (core-site.xml, hdfs-site.xml, yarn-site.xml) are looked for in YARN_CONF_DIR, then
HADOOP_CONF_DIR, then ``$HADOOP_HOME/etc/hadoop``, then /etc/hadoop/conf; each is taken from
the first folder that has it. They are read one after the other, and a later value replaces an
earlier one, unless that was ``final``. Deprecated names stand for the new ones. ``${name}`` in
a value is resolved when it is asked for: properties of the process (``user.name``), the
configuration, ``${env.NAME}`` and its defaults. At an unknown name resolving ends, and
what refers to itself stays as it is written, both as in Hadoop.

A program that knows a cluster by other means than files (a connection of Airflow's) says so in the
variable ``TONY_HADOOP``, a JSON object: its ``properties`` replace those of the files, final ones
too; ``source`` is who says them, for messages; and with ``"alone": true`` no file is read.

``xi:include`` brings in another file of the same folder. Anything else, a URL above all, is
refused: a client reads no configuration from a network. Entities are refused too.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple
from xml.etree import ElementTree
from xml.parsers import expat

from tony_core.hadoop.errors import ConfigurationError

FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
GIVEN = "TONY_HADOOP"

_INCLUDE = "{http://www.w3.org/2001/XInclude}include"
_FALLBACK = "{http://www.w3.org/2001/XInclude}fallback"
_DEEPEST_INCLUDE = 8
_MOST_SUBSTITUTIONS = 20  # Hadoop's own number

DEPRECATED: Mapping[str, str] = {
    "fs.default.name": "fs.defaultFS",
    "dfs.federation.nameservices": "dfs.nameservices",
    "dfs.federation.nameservice.id": "dfs.nameservice.id",
    "dfs.http.address": "dfs.namenode.http-address",
    "dfs.https.address": "dfs.namenode.https-address",
    "dfs.umaskmode": "fs.permissions.umask-mode",
    "dfs.umask": "fs.permissions.umask-mode",
    "dfs.permissions": "dfs.permissions.enabled",
    "dfs.block.size": "dfs.blocksize",
    "dfs.socket.timeout": "dfs.client.socket-timeout",
    "hadoop.configured.node.mapping": "net.topology.configured.node.mapping",
    "topology.script.file.name": "net.topology.script.file.name",
    "yarn.resourcemanager.zk-address": "hadoop.zk.address",
    "yarn.client.app-submission.poll-interval": (
        "yarn.client.application-client-protocol.poll-interval-ms"
    ),
}
"""Names that sites still write, and what they are called now."""

DEFAULTS: Mapping[str, str] = {
    "fs.defaultFS": "file:///",
    "hadoop.security.authentication": "simple",
    "hadoop.rpc.protection": "authentication",
    "dfs.http.policy": "HTTP_ONLY",
    "yarn.http.policy": "HTTP_ONLY",
    "yarn.resourcemanager.hostname": "0.0.0.0",
    "yarn.resourcemanager.ha.enabled": "false",
}
"""Hadoop's defaults of the properties that TonY reads."""

_SUBSTITUTION = re.compile(r"\$\{([^}$\s]+)\}")
_ENV = re.compile(r"^env\.([^:\-]+)(?:(:?-)(.*))?$", re.S)


class Property(NamedTuple):
    """A property's value, and where it is from."""

    value: str
    source: str
    final: bool = False


class SiteConfiguration:
    """The site's properties, and the folders that were searched."""

    def __init__(
        self,
        properties: Mapping[str, Property],
        *,
        looked_in: Sequence[str] = (),
        read: Sequence[str] = (),
        env: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._properties = dict(properties)
        self.looked_in = tuple(looked_in)
        self.files = tuple(read)
        self._env = os.environ if env is None else env

    @classmethod
    def load(
        cls,
        env: Optional[Mapping[str, str]] = None,
        *,
        conf_dir: Optional[str] = None,
        overrides: Optional[Mapping[str, str]] = None,
    ) -> SiteConfiguration:
        """The site's configuration as this environment names it, or of one folder."""
        env = os.environ if env is None else env
        given = _given(env)
        named = [("the folder given", conf_dir)] if conf_dir else list(_folders(env))
        if given.ignores_files:
            named = []
        properties: Dict[str, Property] = {}
        read = []
        for name in FILES:
            for _, folder in named:
                path = os.path.join(folder or "", name)
                if os.path.isfile(path):
                    _read(path, properties, [])
                    read.append(path)
                    break
        if given.properties:
            properties.update(given.properties)
            read.append(given.source)
        for key, value in (overrides or {}).items():
            properties[current_name(key)] = Property(value, "the job")
        looked = [f"{what} ({_there(folder)})" for what, folder in named]
        if given.properties:
            looked.insert(0, given.source)
        return cls(properties, looked_in=looked, read=read, env=env)

    @classmethod
    def of(cls, values: Mapping[str, str]) -> SiteConfiguration:
        """These properties and no file."""
        known = {current_name(key): Property(value, "given") for key, value in values.items()}
        return cls(known)

    def get(self, name: str, default: Optional[str] = None) -> Optional[str]:
        """A value with everything in it resolved."""
        raw = self._raw(current_name(name))
        if raw is None:
            raw = default
        return None if raw is None else self._resolve(name, raw).strip()

    def source(self, name: str) -> Optional[str]:
        """The file that a value is from; ``None`` when no file sets it."""
        found = self._properties.get(current_name(name))
        return found.source if found else None

    def text(self, name: str, default: str = "") -> str:
        """A value; empty or the default when there is none."""
        return self.get(name, default) or default

    def integer(self, name: str, default: int) -> int:
        """A whole number, hexadecimal with ``0x``."""
        text = self.text(name)
        if not text:
            return default
        try:
            return int(text, 16 if text.lower().lstrip("-").startswith("0x") else 10)
        except ValueError:
            raise self._wrong(name, text, "no whole number") from None

    def boolean(self, name: str, default: bool) -> bool:
        """``true`` or ``false``; anything else counts as not set, as in Hadoop."""
        return {"true": True, "false": False}.get(self.text(name).lower(), default)

    def names(self, name: str) -> List[str]:
        """A list separated by commas."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def where(self) -> str:
        """Where configuration was looked for and found, for a message."""
        read = f"read {', '.join(self.files)}" if self.files else "no file was found"
        looked = "; ".join(self.looked_in) or "nowhere"
        return f"Configuration was looked for in {looked}; {read}"

    def to_json(self) -> Dict[str, str]:
        """Every name that a file sets, resolved."""
        return {name: self.text(name) for name in sorted(self._properties)}

    # ---------------------------------------------------------------- values

    def _raw(self, name: str) -> Optional[str]:
        found = self._properties.get(name)
        return found.value if found else DEFAULTS.get(name)

    def _wrong(self, name: str, text: str, why: str) -> ConfigurationError:
        return ConfigurationError(f"{name} is {text!r} in {self.source(name)}: {why}")

    def _resolve(self, name: str, value: str) -> str:
        seen: Set[str] = set()
        resolved = value
        while resolved not in seen:
            match = _SUBSTITUTION.search(resolved)
            found = self._lookup(match.group(1)) if match else None
            if match is None or found is None:
                return resolved
            if len(seen) == _MOST_SUBSTITUTIONS:
                raise self._wrong(name, value, f"more than {_MOST_SUBSTITUTIONS} substitutions")
            seen.add(resolved)
            resolved = resolved[: match.start()] + found + resolved[match.end() :]
        return value

    def _lookup(self, name: str) -> Optional[str]:
        env = _ENV.match(name)
        if env:
            given = self._env.get(env.group(1))
            if env.group(2) == ":-":
                return given or env.group(3)
            return given if given is not None or env.group(2) is None else env.group(3)
        return self._system(name) or self._raw(current_name(name))

    def _system(self, name: str) -> Optional[str]:
        """Properties of a Java process that files refer to."""
        if name == "user.name":
            return user_name(self._env)
        if name == "user.home":
            return self._env.get("HOME")
        return {"java.io.tmpdir": "/tmp", "user.dir": os.curdir}.get(name)  # noqa: S108


def current_name(name: str) -> str:
    """The name that a deprecated one stands for."""
    name = name.strip()
    return DEPRECATED.get(name, name)


def user_name(env: Optional[Mapping[str, str]] = None) -> str:
    """The user name on a cluster without authentication: HADOOP_USER_NAME, or the login."""
    named = (os.environ if env is None else env).get("HADOOP_USER_NAME")
    if named:
        return named
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


class _Given(NamedTuple):
    """Properties given instead of, or over, those of the files."""

    properties: Mapping[str, Property]
    source: str = GIVEN
    ignores_files: bool = False


def _given(env: Mapping[str, str]) -> _Given:
    text = env.get(GIVEN)
    if not text:
        return _Given({})
    try:
        given = json.loads(text)
        source = str(given.get("source") or GIVEN)
        properties = {
            current_name(str(name)): Property(str(value), source)
            for name, value in given["properties"].items()
        }
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(
            f'{GIVEN} is not of the form {{"properties": {{"NAME": "VALUE"}}}}'
        ) from None
    return _Given(properties, source, given.get("alone") is True)


def _folders(env: Mapping[str, str]) -> Iterator[Tuple[str, Optional[str]]]:
    for name in ("YARN_CONF_DIR", "HADOOP_CONF_DIR"):
        yield name, env.get(name) or None
    for name in ("HADOOP_HOME", "HADOOP_PREFIX"):
        if env.get(name):
            yield f"{name}/etc/hadoop", os.path.join(env[name], "etc", "hadoop")
    yield "the usual place", "/etc/hadoop/conf"


def _there(folder: Optional[str]) -> str:
    if not folder:
        return "not set"
    if os.path.isdir(folder):
        return folder
    return f"{folder}, {'no folder' if os.path.exists(folder) else 'which does not exist'}"


# ------------------------------------------------------------------------------- files


def _read(path: str, into: Dict[str, Property], including: List[str]) -> None:
    if path in including or len(including) >= _DEEPEST_INCLUDE:
        raise ConfigurationError(f"{path} includes itself, by {' and '.join(including)}")
    try:
        root = _parse(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ElementTree.ParseError, expat.ExpatError, LookupError, ValueError) as error:
        raise ConfigurationError(f"{path} is not well-formed: {error}") from None
    if root.tag != "configuration":
        raise ConfigurationError(f"{path} holds <{root.tag}> instead of <configuration>")
    try:
        _elements(root, path, into, [*including, path])
    except RecursionError:
        raise ConfigurationError(f"{path} is nested too deeply") from None


def _elements(
    parent: ElementTree.Element, path: str, into: Dict[str, Property], including: List[str]
) -> None:
    for element in parent:
        if element.tag == "property":
            _property(element, path, into)
        elif element.tag == "configuration":
            _elements(element, path, into, including)
        elif element.tag == _INCLUDE:
            _include(element, path, into, including)


def _property(element: ElementTree.Element, path: str, into: Dict[str, Property]) -> None:
    found = {key: element.get(key) for key in ("name", "value", "final")}
    for child in element:
        if child.tag in found:
            found[child.tag] = child.text or ""
    if not found["name"] or found["value"] is None:
        return
    name = current_name(found["name"])
    if name in into and into[name].final:
        return  # an earlier file has made it final
    final = (found["final"] or "").strip().lower() == "true"
    into[name] = Property(found["value"], path, final)


def _include(
    element: ElementTree.Element, path: str, into: Dict[str, Property], including: List[str]
) -> None:
    href = element.get("href", "")
    folder = os.path.dirname(os.path.abspath(path))
    target = href[len("file://") :] if href.startswith("file:///") else href
    if not target or re.match(r"^[A-Za-z][A-Za-z0-9+.-]*:", target):
        raise ConfigurationError(
            f"{path} includes {href or 'nothing'}: only files of the same folder are read"
        )
    target = os.path.normpath(os.path.join(folder, target))
    if os.path.commonpath([target, folder]) != folder:
        raise ConfigurationError(
            f"{path} includes {href}, which is outside its folder: "
            "only files of the same folder are read"
        )
    if os.path.isfile(target):
        _read(target, into, including)
        return
    fallback = element.find(_FALLBACK)
    if fallback is None:
        raise ConfigurationError(f"{path} includes {href}, which does not exist")
    _elements(fallback, path, into, including)


def _parse(path: str) -> ElementTree.Element:
    """The elements of a file in which nothing has to be expanded or fetched."""
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate(None, "}")

    def named(name: str) -> str:
        return "{" + name if "}" in name else name

    def refuse(name: str, *_: object) -> None:
        raise ConfigurationError(f"{path} defines the entity {name}: entities are not read")

    parser.StartElementHandler = lambda name, attributes: builder.start(named(name), attributes)
    parser.EndElementHandler = lambda name: builder.end(named(name))
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse
    with open(path, "rb") as file:
        parser.ParseFile(file)
    return builder.close()
