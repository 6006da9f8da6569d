"""Holds data against the schemas of docs/json.md: the part of JSON Schema that stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List

DOCS = Path(__file__).resolve().parents[2] / "docs" / "json.md"
_BLOCK = re.compile(r"^```json (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_KNOWN = {
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "additionalProperties",
    "anyOf",
    "$ref",
}
_TYPES: Dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}


def documented() -> Dict[str, Any]:
    """Every schema of the page, by name."""
    return {name: json.loads(text) for name, text in _BLOCK.findall(DOCS.read_text())}


def wrong_with(data: Any, name: str) -> List[str]:
    """Everything in which the data is not as the page says."""
    schemas = documented()
    return _check(data, {"$ref": name}, schemas, "$")


def _check(data: Any, schema: Dict[str, Any], schemas: Dict[str, Any], at: str) -> List[str]:
    unknown = set(schema) - _KNOWN
    assert not unknown, f"this checker does not know {unknown}"
    if "$ref" in schema:
        return _check(data, schemas[schema["$ref"]], schemas, at)
    if "anyOf" in schema:
        tries = [_check(data, one, schemas, at) for one in schema["anyOf"]]
        return [] if [] in tries else [f"{at}: {data!r} is none of them: {tries}"]
    if "enum" in schema and data not in schema["enum"]:
        return [f"{at}: {data!r} is not one of {schema['enum']}"]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(data, kind) for kind in kinds):
        return [f"{at}: {data!r} is no {' or '.join(kinds)}"]
    found: List[str] = []
    if isinstance(data, dict):
        found += [
            f"{at}: {key} is missing" for key in schema.get("required", ()) if key not in data
        ]
        inner = schema.get("properties", {})
        rest = schema.get("additionalProperties", True)
        for key, value in data.items():
            if key in inner:
                found += _check(value, inner[key], schemas, f"{at}.{key}")
            elif rest is False:
                found.append(f"{at}: {key} is not documented")
            elif isinstance(rest, dict):
                found += _check(value, rest, schemas, f"{at}.{key}")
    if isinstance(data, list) and "items" in schema:
        for number, value in enumerate(data):
            found += _check(value, schema["items"], schemas, f"{at}[{number}]")
    return found


def _is(data: Any, kind: str) -> bool:
    if isinstance(data, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(data, int)
    if kind == "number":
        return isinstance(data, (int, float))
    return isinstance(data, _TYPES[kind])
