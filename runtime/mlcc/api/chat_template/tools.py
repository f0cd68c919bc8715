"""Definitions of tools as plain as every chat template can write them.

Templates write out schemas by hand, for the schemas that transformers makes of Python functions.
Several fail on what JSON Schema also allows: a property without a type, a list of types, a default
that is no text. `plain_tools` leaves out what is beyond that; the schema that calls are held to
stays whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MOST_LEVELS = 16
"""Deeper schemas are shown without their parts."""


def plain_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools with plain schemas."""
    return [{**tool, "function": _plain_function(tool["function"])} for tool in tools]


def functions_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """The tools as the text that Firefunction's model card gives its template, `functions`."""
    functions = [tool["function"] for tool in tools]
    return json.dumps(functions, indent=4, ensure_ascii=False)


def _plain_function(function: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"properties": {}, **_plain(function["parameters"], MOST_LEVELS)}
    return {**function, "parameters": {**parameters, "type": "object"}}


def _plain(schema: Any, levels: int) -> dict[str, Any]:
    """A schema with type, description, enum of texts, properties and items, each if it has it."""
    given = schema if isinstance(schema, Mapping) else {}
    about = given.get("description")
    made: dict[str, Any] = {
        "type": _type(given),
        "description": about if isinstance(about, str) else "",
    }
    values = given.get("enum")
    if values and isinstance(values, list) and all(isinstance(value, str) for value in values):
        made["enum"] = values
    properties = given.get("properties")
    if levels and isinstance(properties, Mapping):
        made["properties"] = {name: _plain(one, levels - 1) for name, one in properties.items()}
        required = given.get("required")
        made["required"] = [*required] if isinstance(required, list) else []
    if levels and made["type"] == "array":
        made["items"] = _plain(given.get("items"), levels - 1)
    return made


def _type(schema: Mapping[str, Any]) -> str:
    """The first type that a value may have, besides null."""
    for option in [schema, *(schema.get("anyOf") or schema.get("oneOf") or ())]:
        found = option.get("type") if isinstance(option, Mapping) else None
        types = found if isinstance(found, list) else [found]
        if text := next((one for one in types if isinstance(one, str) and one != "null"), ""):
            return text
    return "object" if "properties" in schema else "string"
