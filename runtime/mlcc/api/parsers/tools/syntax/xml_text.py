"""Arguments between tags, one by one; the tool's schema decides how each value is parsed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Tools
from mlcc.api.parsers.tools.syntax.lark import Lark, literal
from mlcc.api.parsers.tools.syntax.python_text import schema_of


def is_text(schema: Any) -> bool:
    """Whether an argument is a text, which is unquoted; without a schema it is."""
    if not isinstance(schema, Mapping):
        return True
    kind = schema.get("type")
    if isinstance(kind, list):
        return "string" in kind
    if kind is None and "enum" in schema:
        return all(isinstance(value, str) for value in schema["enum"])
    return kind == "string" or (kind is None and not {"anyOf", "oneOf", "$ref"} & schema.keys())


def value_of(text: str, name: str, key: str, tools: Tools) -> Any:
    """An argument's value: JSON unless the schema allows a text; the text if it is not JSON."""
    schema = tools.get(name, {}).get("properties", {}).get(key)
    if is_text(schema):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text.strip(), text)


def body_of(
    parameters: Mapping[str, Any], lark: Lark, around: tuple[str, str, str], separator: str
) -> str:
    """A Lark expression for all arguments in order. around: the texts before a key, between key and
    value, and after the value."""
    before, middle, behind = around
    needed = parameters.get("required", ())
    items = []
    for key in parameters.get("properties", {}):
        schema = schema_of(parameters, key)
        head = lark.text(f"{before}{key}{middle}")
        if not is_text(schema):
            value = f"{lark.json(schema)} {lark.text(behind)}"
        elif "enum" in schema:
            choices = " | ".join(literal(str(choice)) for choice in schema["enum"])
            value = f"({choices}) {lark.text(behind)}"
        else:
            value = lark.until(behind)
        items.append((f"{head} {value}", key in needed))
    return lark.chain(items, separator)
