"""Earlier tool calls in the model's notation, for templates that drop them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.parsers.tools.base import ToolFormat
from mlcc.api.parsers.tools.hermes import TaggedJson
from mlcc.api.parsers.tools.marked_python import MarkedPython


def plain_text(format: ToolFormat, calls: Sequence[Mapping[str, Any]]) -> str:
    """A message's `tool_calls` as text. Notations without a writer here become plain JSON, one call
    per line."""
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
    call = {"name": function["name"], "arguments": function.get("arguments", {})}
    return json.dumps(call, ensure_ascii=False)


def _python(name: str, given: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_value(value)}' for key, value in given.items())})"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
