"""The records of a ``.jhist`` file, and the check of the schema that a file brings along. Pure.

An Avro file names its own schema, and a decoder follows it: one that holds itself, nests without
end or has items without a byte would take all time and memory. :func:`resolve` takes from it what
can be decoded in time and memory that its bytes bound, and says what to keep of it: fields and
events that we do not know are skipped, so that files of every version can be read.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Set, Tuple

NAMESPACE = "com.linkedin.tony.events"
INITED, FINISHED = "ApplicationInited", "ApplicationFinished"
TASK_STARTED, TASK_FINISHED = "TaskStarted", "TaskFinished"
#: The symbol of each event in the enum ``EventType``, in its order.
EVENT_TYPES: Mapping[str, str] = {
    INITED: "APPLICATION_INITED",
    FINISHED: "APPLICATION_FINISHED",
    TASK_STARTED: "TASK_STARTED",
    TASK_FINISHED: "TASK_FINISHED",
}

_OPTIONAL_TEXT = ["null", "string"]
_METRIC = {
    "type": "record",
    "name": "Metric",
    "fields": [{"name": "name", "type": "string"}, {"name": "value", "type": "double"}],
}
#: Of each record its fields, as the newest version has them; a reader of an older one skips what
#: it does not know, and finds all that it asks for.
_FIELDS: Mapping[str, Tuple[Tuple[str, Any], ...]] = {
    INITED: (
        ("applicationId", "string"),
        ("numTasks", "int"),
        ("host", "string"),
        ("containerID", "string"),
    ),
    FINISHED: (
        ("applicationId", "string"),
        ("finishedTasks", "int"),
        ("failedTasks", "int"),
        ("metrics", {"type": "array", "items": _METRIC}),
    ),
    TASK_STARTED: (
        ("taskType", "string"),
        ("taskIndex", "int"),
        ("host", "string"),
        ("containerID", "string"),
    ),
    TASK_FINISHED: (
        ("taskType", "string"),
        ("taskIndex", "int"),
        ("status", "string"),
        ("metrics", {"type": "array", "items": "Metric"}),
        ("containerDiagnostic", _OPTIONAL_TEXT),
    ),
}


def _declared(name: str) -> Dict[str, Any]:
    fields: List[Dict[str, Any]] = []
    for field, kind in _FIELDS[name]:
        default = {"default": None} if kind is _OPTIONAL_TEXT else {}
        fields.append({"name": field, "type": kind, **default})
    return {"type": "record", "name": name, "fields": fields}


#: What we write.
EVENT_SCHEMA: Mapping[str, Any] = {
    "namespace": NAMESPACE,
    "type": "record",
    "name": "Event",
    "fields": [
        {
            "name": "type",
            "type": {"type": "enum", "name": "EventType", "symbols": list(EVENT_TYPES.values())},
        },
        {"name": "event", "type": [_declared(name) for name in EVENT_TYPES]},
        {"name": "timestamp", "type": "long"},
    ],
}

# ---------------------------------------------------------------------------- a file's own schema

DEEPEST = 12
MOST_TYPES = 2000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}(?:\.[A-Za-z_][A-Za-z0-9_]{0,100}){0,12}\Z")
#: Each takes a byte at least: else a count in the file costs time and memory, and no bytes.
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
_WHOLE, _REAL, _TEXT = ("int", "long"), ("int", "long", "float", "double"), ("string",)
_KINDS: Mapping[str, Mapping[str, Tuple[str, ...]]] = {
    "Event": {"timestamp": _WHOLE},
    INITED: {"numTasks": _WHOLE, "host": _TEXT, "containerID": _TEXT, "applicationId": _TEXT},
    FINISHED: {"applicationId": _TEXT, "finishedTasks": _WHOLE, "failedTasks": _WHOLE},
    TASK_STARTED: {"taskType": _TEXT, "taskIndex": _WHOLE, "host": _TEXT, "containerID": _TEXT},
    TASK_FINISHED: {
        "taskType": _TEXT,
        "taskIndex": _WHOLE,
        "status": _TEXT,
        "containerDiagnostic": _TEXT,
    },
    "Metric": {"name": _TEXT, "value": _REAL},
}


class SchemaError(ValueError):
    """A schema by which nothing is decoded; the message says why."""


class Resolved(NamedTuple):
    """The two schemas of a decoder: what the file has, and what is kept of it."""

    writer: Mapping[str, Any]
    reader: Mapping[str, Any]


def resolve(schema: Any) -> Resolved:
    """What can be decoded safely by a file's schema; raises :class:`SchemaError`."""
    walk = _Walk()
    try:
        writer = walk.type(schema, "", 0)
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"its schema is none of Avro ({error})") from None
    if not isinstance(writer, dict) or writer["type"] != "record" or _short(writer) != "Event":
        found = writer.get("name", writer["type"]) if isinstance(writer, dict) else writer
        raise SchemaError(f"its records are {str(found)[:100]!r}, and not events of TonY")
    kept = _Kept(walk.named)
    reader = kept.record(writer)
    if {field["name"] for field in reader["fields"]} != {"event", "timestamp"}:
        raise SchemaError("its events have no content or no time")
    return Resolved(writer, reader)


def _short(record: Mapping[str, Any]) -> str:
    return str(record["name"]).rpartition(".")[2]


class _Walk:
    """Copies a schema: full names; no defaults, aliases or logical types."""

    def __init__(self) -> None:
        self.named: Dict[str, Dict[str, Any]] = {}
        self._open: Set[str] = set()
        self._count = 0

    def type(self, schema: Any, space: str, depth: int, in_union: bool = False) -> Any:
        self._count += 1
        if self._count > MOST_TYPES or depth > DEEPEST:
            raise SchemaError("its schema is too large or nests too deeply")
        if isinstance(schema, list):
            if in_union or not schema:
                raise SchemaError("its schema has a union in a union, or an empty one")
            return [self.type(branch, space, depth + 1, True) for branch in schema]
        if isinstance(schema, str):
            return self._by_name(schema, space, in_union)
        kind = schema["type"]
        if isinstance(kind, (dict, list)):  # {"type": {"type": ...}}
            return self.type(kind, space, depth + 1, in_union)
        if kind in ("array", "map"):
            item = "items" if kind == "array" else "values"
            return {"type": kind, item: self.type(schema[item], space, depth + 1)}
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(kind, schema, space, depth, in_union)
        return self._by_name(kind, space, in_union)

    def _by_name(self, name: str, space: str, in_union: bool) -> str:
        if name in _PRIMITIVES or (name == "null" and in_union):
            return name
        if name == "null":
            raise SchemaError("its schema has values that take no byte")
        full = name if "." in name or not space else f"{space}.{name}"
        if full not in self.named and name in self.named:
            full = name
        if full in self._open:
            raise SchemaError(f"its schema has a record that holds itself ({full[:100]})")
        if full not in self.named:
            raise SchemaError(f"its schema names an unknown type ({full[:100]!r})")
        return full

    def _definition(
        self, kind: str, schema: Mapping[str, Any], space: str, depth: int, in_union: bool
    ) -> Dict[str, Any]:
        name = schema["name"]
        if "." not in name:
            space = schema.get("namespace", space) or ""
            name = f"{space}.{name}" if space else name
        if not _NAME.match(name) or name in self.named or name in self._open:
            raise SchemaError(f"its schema has an odd name, or one twice ({name[:100]!r})")
        space = name.rpartition(".")[0]
        made: Dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": name}
        if kind == "enum":
            made["symbols"] = [str(symbol) for symbol in schema["symbols"]]
            if not all(map(_NAME.match, made["symbols"])):
                raise SchemaError("its schema has an odd name in an enum")
        elif kind == "fixed":
            made["size"] = schema["size"]
            if not isinstance(made["size"], int) or not 0 < made["size"] < 1 << 20:
                raise SchemaError("its schema has a fixed type of an odd size")
        else:
            self._open.add(name)
            made["fields"] = [self._field(field, space, depth) for field in schema["fields"]]
            self._open.discard(name)
            if not made["fields"] and not in_union:
                raise SchemaError("its schema has values that take no byte")
        self.named[name] = made
        return made

    def _field(self, field: Mapping[str, Any], space: str, depth: int) -> Dict[str, Any]:
        name = field["name"]
        if not _NAME.match(name) or "." in name:
            raise SchemaError(f"its schema has an odd name ({name[:100]!r})")
        return {"name": name, "type": self.type(field["type"], space, depth + 1)}


class _Kept:
    """Of a checked schema the part that we know, with each definition where it comes first."""

    def __init__(self, named: Mapping[str, Dict[str, Any]]) -> None:
        self._named = named
        self._made: Set[str] = set()

    def record(self, record: Mapping[str, Any]) -> Dict[str, Any]:
        known = _KINDS.get(_short(record), {})
        self._made.add(record["name"])
        fields = []
        for field in record["fields"]:
            name, kind = field["name"], field["type"]
            if name in known and self._is(kind, known[name]):
                fields.append({"name": name, "type": kind})
            elif name == "event" and _short(record) == "Event" and isinstance(kind, list):
                branches = [self._branch(branch) for branch in kind]
                fields.append({"name": name, "type": branches})
            elif name == "metrics" and _short(record) in (FINISHED, TASK_FINISHED):
                item = self._metric(kind)
                if item is not None:
                    fields.append({"name": name, "type": {"type": "array", "items": item}})
        return {"type": "record", "name": record["name"], "fields": fields}

    def _branch(self, branch: Any) -> Any:
        found = self._named.get(branch, {}) if isinstance(branch, str) else branch
        if found.get("type") != "record":
            raise SchemaError("its events may be something else than records")
        if found["name"] in self._made:
            return found["name"]
        return self.record(found)

    def _metric(self, kind: Any) -> Any:
        if not isinstance(kind, dict) or kind["type"] != "array":
            return None
        item = kind["items"]
        found = self._named.get(item, {}) if isinstance(item, str) else item
        if found.get("type") != "record" or _short(found) != "Metric":
            return None
        if found["name"] in self._made:
            return found["name"]
        return self.record(found)

    @staticmethod
    def _is(kind: Any, wanted: Tuple[str, ...]) -> bool:
        if isinstance(kind, list):
            return (
                set(kind) <= {"null", *wanted} if all(isinstance(k, str) for k in kind) else False
            )
        return isinstance(kind, str) and kind in wanted
