"""Earlier tool calls written as the model writes them: for templates that drop them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.parsers.tools.base import ToolFormat
from mlcc.api.parsers.tools.hermes import TaggedJson
from mlcc.api.parsers.tools.marked_python import MarkedPython


def plain_text(format: ToolFormat, calls: Sequence[Mapping[str, Any]]) -> str:
    """Of a message's `tool_calls`. In a way that is not spelled here, they are plain JSON, a line
    each."""
    functions = [call["function"] for call in calls]
    if isinstance(format, MarkedPython):
        made = [_python(one["name"], one.get("arguments", {})) for one in functions]
        return format.trigger + format.between.join(made) + format.after
    if isinstance(format, TaggedJson):
        space = format.head.partition("{")[0]
        written = [space + _json(one) for one in functions]
        return format.trigger + format.between.join(written) + format.after
    return "\n".join(map(_json, functions))


def _json(function: Mapping[str, Any]) -> str:
    said = {"name": function["name"], "arguments": function.get("arguments", {})}
    return json.dumps(said, ensure_ascii=False)


def _python(name: str, given: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_value(value)}' for key, value in given.items())})"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
