"""The fields of tools: definitions, `tool_choice`, and tool calls in messages; `tool_use` combines
them. `mlcc.api.parsers.tools` has each model's notation of calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from mlcc.api.schema.schema import (
    ANYTHING,
    Custom,
    Flag,
    Json,
    Many,
    Object,
    Text,
    honoured,
    metadata,
    not_built,
    refuse,
)
from mlcc.errors import InvalidRequestError, UnsupportedError, printable
from mlcc.util.fast_dataclass import fast_dataclass

MOST_TOOLS = 512
MOST_CALLS = 256
"""Most calls of one message."""
_VALUES = ("const", "default")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_SCHEMAS = ("items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf", "not")
"""Keywords of JSON Schema that have a value, schemas by name, and a schema or a list of them."""
MOST_LEVELS = 32
"""Most levels of an earlier call's arguments that templates write as JSON."""
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
INSTEAD = "send 'tools' and 'tool_choice', which took its place"


def _name(value: Json, where: str) -> str:
    """A name by OpenAI's rules, plus the dots, colons and slashes of other servers' tools."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise refuse(NAME, value, where)
    return value


def _arguments(value: Json, where: str) -> dict[str, Any]:
    """Arguments of an earlier call, as an object: JSON's text, or the value itself. A model may
    have written anything, and a client may have cut it off. Templates need an object, so what is
    none, or cannot be written, is passed on as text, the argument `arguments`."""
    text = Text().check(value, where) if isinstance(value, str) else json.dumps(value)
    try:
        found = json.loads(text or "{}")
        if isinstance(found, dict) and _is_writable(found):
            return found
    except (ValueError, RecursionError):
        found = text
    return {} if found is None else {"arguments": text}


def _is_writable(value: Any) -> bool:
    """Whether a template can write an object: it has few levels, and its texts are Unicode."""
    level, depth = [value], 0
    while level and depth < MOST_LEVELS:
        parts = [[*one.values()] if isinstance(one, dict) else one for one in level]
        level = [part for one in parts for part in one if isinstance(part, (dict, list))]
        depth += 1
    if level:
        return False
    try:
        return bool(json.dumps(value, ensure_ascii=False).encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _parameters(value: Json, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise refuse(PARAMETERS, value, where)
    schema = without_nulls(value)
    _check(isinstance(schema.get("properties", {}), Mapping), f"{where}.properties", "an object")
    _check(isinstance(schema.get("required", []), list), f"{where}.required", "an array")
    for name, inner in schema.get("properties", {}).items():
        good = not isinstance(inner, Mapping) or isinstance(inner.get("enum", []), list)
        _check(good, f"{where}.properties.{printable(name[:40])}.enum", "an array")
    return schema


def without_nulls(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without keywords that are null, which many libraries send for "absent"."""
    made = {key: value for key, value in schema.items() if value is not None or key in _VALUES}
    for key, value in made.items():
        if key in _NAMED_SCHEMAS and isinstance(value, Mapping):
            made[key] = {name: _inner(one) for name, one in value.items()}
        elif key in _SCHEMAS:
            made[key] = [*map(_inner, value)] if isinstance(value, list) else _inner(value)
    return made


def _inner(schema: Any) -> Any:
    return without_nulls(schema or {}) if schema is None or isinstance(schema, Mapping) else schema


def _check(good: bool, where: str, wants: str) -> None:
    if not good:
        raise InvalidRequestError(f"'{where}' must be {wants}", param=where, code="invalid_value")


def _function_type(value: Json, where: str) -> str:
    if isinstance(value, str) and value != "function":
        raise UnsupportedError(
            f"'{where}' is {value[:40]!a}, and only tools of type 'function' are built; leave this "
            "tool out",
            param=where,
            code="unsupported_parameter",
        )
    return str(Text(("function",)).check(value, where))


NAME = Custom("a name of at most 128 letters, digits and _ . : / -", _name, (Text(),))
PARAMETERS = Custom("a JSON Schema of an object", _parameters, (ANYTHING,))
FUNCTION_TYPE = Custom("'function'", _function_type, (Text(("function",)),))

TOOL_FUNCTION = Object(
    "ToolFunction",
    (
        honoured("name", NAME, "The tool's name.", required=True),
        honoured("description", Text(), "The tool's purpose, for the model."),
        honoured("parameters", PARAMETERS, "The schema of its arguments; without, it takes none."),
        honoured(
            "strict",
            Flag(),
            "Refuse a schema that cannot be enforced in full, instead of enforcing a part of it.",
        ),
    ),
)
TOOL = Object(
    "Tool",
    (
        honoured("type", FUNCTION_TYPE, required=True),
        honoured("function", TOOL_FUNCTION, "The function.", required=True),
    ),
)
CALLED_FUNCTION = Object(
    "CalledFunction",
    (
        honoured("name", Text(allow_empty=False), "The tool's name.", required=True),
        honoured(
            "arguments",
            Custom("JSON as a string", _arguments, (Text(),)),
            "As JSON's text.",
        ),
    ),
)
TOOL_CALL = Object(
    "MessageToolCall",
    (
        honoured("id", Text(), "The id that the tool's message refers to."),
        honoured("type", FUNCTION_TYPE),
        honoured("function", CALLED_FUNCTION, "The called function.", required=True),
        metadata("index"),
    ),
)
MESSAGE_TOOLS = (
    honoured("tool_calls", Many(TOOL_CALL, 0, MOST_CALLS), "An assistant's tool calls."),
    honoured("tool_call_id", Text(), "The call that a tool's message answers."),
    honoured("function_call", CALLED_FUNCTION, "The older form of one tool call."),
)
"""Rows of a message."""

NAMED_FUNCTION = Object("NamedFunction", (honoured("name", Text(), required=True),))
NAMED_TOOL = Object(
    "NamedTool",
    (
        honoured("type", FUNCTION_TYPE, required=True),
        honoured("function", NAMED_FUNCTION, "The function to call.", required=True),
    ),
)
ALLOWED = Object(
    "AllowedToolsList",
    (
        honoured(
            "mode", Text(("auto", "required")), "Whether a tool must be called.", required=True
        ),
        honoured(
            "tools",
            Many(NAMED_TOOL, 1, MOST_TOOLS),
            "The allowed tools, from `tools`.",
            required=True,
        ),
    ),
)
ALLOWED_TOOLS = Object(
    "AllowedTools",
    (
        honoured("type", Text(("allowed_tools",)), required=True),
        honoured("allowed_tools", ALLOWED, "The tools that may be called.", required=True),
    ),
)
MODES = Text(("auto", "none", "required"))


def _choice(value: Json, where: str) -> Any:
    if isinstance(value, str):
        return MODES.check(value, where)
    if not isinstance(value, Mapping):
        raise refuse(CHOICE, value, where)
    if value.get("type") == "allowed_tools":
        return ALLOWED_TOOLS.check(value, where)
    if "function" in value and "type" not in value:
        raise InvalidRequestError(
            f"'{where}.type' is missing; it must be 'function'",
            param=f"{where}.type",
            code="missing_required_parameter",
        )
    return NAMED_TOOL.check(value, where)


CHOICE = Custom(
    "'auto', 'none', 'required', or an object that names a function or allowed tools",
    _choice,
    (MODES, NAMED_TOOL, ALLOWED_TOOLS),
)
TOOLS = (
    honoured("tools", Many(TOOL, 0, MOST_TOOLS), "Functions that the model may call."),
    honoured(
        "tool_choice",
        CHOICE,
        "auto = the model decides; none; required = at least one call; or a named function.",
    ),
    honoured("parallel_tool_calls", Flag(), "false: one call at most in an answer."),
    not_built("functions", [], advice=INSTEAD),
    not_built("function_call", "none", "auto", advice=INSTEAD),
)
"""Rows of a chat request."""


Mode = Literal["auto", "required"]


@fast_dataclass(frozen=True)
class Tool:
    """A function that the model may call."""

    name: str
    parameters: Mapping[str, Any]
    """JSON Schema of its arguments."""
    strict: bool = False
    """Whether the schema must be enforced in full."""
    field: str = ""
    """Path of the tool in the request, for errors."""


@fast_dataclass(frozen=True)
class ToolUse:
    """The tools of a request. If `tools` is empty, nothing may be called."""

    tools: tuple[Tool, ...] = ()
    """Tools that may be called."""
    mode: Mode = "auto"
    """required = at least one call."""
    parallel: bool = True
    """Whether an answer may have several calls."""
    shown: tuple[Mapping[str, Any], ...] = ()
    """All tools of the request, for the template."""
    field: str = "tools"
    """The field that demands enforced arguments, for errors."""

    @property
    def must_hold(self) -> bool:
        """Whether the request is refused if no grammar can be enforced."""
        return self.mode == "required" or any(tool.strict for tool in self.tools)


NO_TOOLS = ToolUse()
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


def tool_use(fields: Mapping[str, Any]) -> ToolUse:
    """The tools of checked fields. Raises InvalidRequestError for unknown names."""
    given, choice = fields.get("tools") or [], fields.get("tool_choice")
    tools = {
        entry["function"]["name"]: _tool(entry["function"], f"tools[{i}]")
        for i, entry in enumerate(given)
    }
    if len(tools) < len(given):
        raise _wrong("tools", "has two tools of one name; give each its own")
    if not tools:
        if choice not in (None, "auto", "none"):
            raise _wrong("tool_choice", "wants a tool called, and 'tools' has none")
        return NO_TOOLS
    parallel = fields.get("parallel_tool_calls", True)
    shown = tuple(map(_shown, given))
    if choice == "none":  # as OpenAI: the model knows its tools, and calls none
        return ToolUse((), shown=shown)
    every = tuple(tools.values())
    if choice in (None, "auto", "required"):
        mode: Mode = "required" if choice == "required" else "auto"
        return ToolUse(every, mode, parallel, shown, "tool_choice" if choice else "tools")
    if choice["type"] == "function":
        named = _known(tools, choice["function"]["name"], "tool_choice.function.name")
        return ToolUse((named,), "required", False, shown, "tool_choice")
    allowed = choice["allowed_tools"]
    where = "tool_choice.allowed_tools.tools"
    names = dict.fromkeys(entry["function"]["name"] for entry in allowed["tools"])
    some = tuple(_known(tools, name, where) for name in names)
    return ToolUse(some, allowed["mode"], parallel, shown, "tool_choice")


def _tool(function: Mapping[str, Any], where: str) -> Tool:
    parameters = function.get("parameters") or _NO_PARAMETERS
    field = f"{where}.function.parameters"
    return Tool(function["name"], parameters, function.get("strict", False), field)


def _shown(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool for the template: without fields that do not concern the model, and with all those
    that templates read, as transformers makes them of a function."""
    given = entry["function"]
    function = {"name": given["name"], "description": "", **given}
    function["parameters"] = {**_NO_PARAMETERS, **(given.get("parameters") or {})}
    function.pop("strict", None)
    return {**entry, "function": function}


def _known(tools: Mapping[str, Tool], name: str, where: str) -> Tool:
    if name not in tools:
        raise _wrong(where, f"names {name[:80]!a}, which is not in 'tools'")
    return tools[name]


def _wrong(field: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"'{field}' {what}", param=field, code="invalid_value")
