"""Translates the tools of /v1/responses to functions, the only tools of the engine, and calls back.

A tool in a namespace (as Codex sends its MCP servers' tools) becomes a function named
`namespace__tool`; a custom tool, which takes free text, becomes a function with one string. Tools
that OpenAI runs itself (web_search) are left out, and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from mlcc.api.schema.schema import (
    ANYTHING,
    NOT_EMPTY,
    Custom,
    Flag,
    Json,
    Many,
    Object,
    Tagged,
    Text,
    honoured,
    metadata,
    refuse,
)
from mlcc.errors import InvalidRequestError
from mlcc.util.fast_dataclass import fast_dataclass

MOST_TOOLS = 512
BETWEEN = "__"
"""Separates a namespace from a name."""
LATER = (metadata("defer_loading"), metadata("allowed_callers"), metadata("async"))


def _schema(value: Json, where: str) -> Json:
    if not isinstance(value, Mapping):
        raise refuse(SCHEMA, value, where)
    return value


SCHEMA = Custom("a JSON Schema of an object", _schema, (ANYTHING,))
FUNCTION = Object(
    "ResponsesFunction",
    (
        honoured("name", NOT_EMPTY, "The tool's name.", required=True),
        honoured("description", Text(), "The tool's purpose, for the model."),
        honoured("parameters", SCHEMA, "The schema of its arguments."),
        honoured("strict", Flag(), "Refuse a schema that cannot be enforced."),
        metadata("output_schema"),
        *LATER,
    ),
)
GRAMMAR = Object(
    "ResponsesGrammar",
    (
        honoured("syntax", Text(("lark", "regex")), required=True),
        honoured("definition", Text(), "Shown to the model; not enforced."),
    ),
)
CUSTOM = Object(
    "ResponsesCustomTool",
    (
        honoured("name", NOT_EMPTY, "The tool's name.", required=True),
        honoured("description", Text(), "The tool's purpose, for the model."),
        honoured(
            "format",
            Tagged("a format", {"text": Object("ResponsesFreeText", ()), "grammar": GRAMMAR}),
            "Format of its input.",
        ),
        *LATER,
    ),
)
NAMESPACE = Object(
    "ResponsesNamespace",
    (
        honoured("name", NOT_EMPTY, required=True),
        honoured("description", Text()),
        honoured(
            "tools",
            Many(Tagged("a tool", {"function": FUNCTION, "custom": CUSTOM}, open=True)),
            "Its tools; the model calls them `NAMESPACE__NAME`.",
            required=True,
        ),
    ),
)
TOOL = Tagged("a tool", {"function": FUNCTION, "custom": CUSTOM, "namespace": NAMESPACE}, open=True)
NAMED = Object(
    "ResponsesNamedTool",
    (honoured("name", NOT_EMPTY, "The tool to call.", required=True),
     honoured("namespace", Text(), "Its namespace.")),
)  # fmt: skip
THIS_TOOL = Tagged("a tool's name", {"function": NAMED, "custom": NAMED}, open=True)
ALLOWED = Object(
    "ResponsesAllowedTools",
    (
        honoured(
            "mode", Text(("auto", "required")), "Whether a tool must be called.", required=True
        ),
        honoured(
            "tools",
            Many(THIS_TOOL, 1, MOST_TOOLS),
            "The allowed tools, from `tools`.",
            required=True,
        ),
    ),
)
MODES = Text(("auto", "none", "required"))
CHOSEN = Tagged(
    "an object that names a tool",
    {"function": NAMED, "custom": NAMED, "allowed_tools": ALLOWED},
)


def _choice(value: Json, where: str) -> Json:
    return MODES.check(value, where) if isinstance(value, str) else CHOSEN.check(value, where)


CHOICE = Custom("'auto', 'none', 'required', or a tool by its name", _choice, (MODES, CHOSEN))
_FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


@fast_dataclass(frozen=True)
class Origin:
    """The tool that a function stands for."""

    name: str
    namespace: str = ""
    custom: bool = False


@fast_dataclass
class ToolNames:
    """The functions of a request, with their tools."""

    functions: list[dict[str, Any]] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)
    """The path of each function's tool in the request."""

    def origin(self, flat: str) -> Origin:
        """The tool that a called function stands for."""
        return self.origins.get(flat, Origin(flat))


def flat_name(name: str, namespace: str = "") -> str:
    """The name of a tool's function."""
    return f"{namespace}{BETWEEN}{name}" if namespace else name


def tool_names(tools: Iterable[Mapping[str, Any]]) -> ToolNames:
    """The names of checked tools. Raises InvalidRequestError for duplicates."""
    names = ToolNames()
    for number, tool in enumerate(tools):
        if tool["type"] == "namespace":
            for inner_number, inner in enumerate(tool["tools"]):
                where = f"tools[{number}].tools[{inner_number}]"
                _add(names, inner, tool["name"], where)
        else:
            _add(names, tool, "", f"tools[{number}]")
    return names


def chat_tools(names: ToolNames, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The `tools` and `tool_choice` of a chat. Raises InvalidRequestError if there is nothing to
    choose."""
    choice = fields.get("tool_choice")
    if not names.functions:
        if choice in (None, "auto", "none"):
            return {}
        raise InvalidRequestError(
            "'tool_choice' wants a tool called, and 'tools' has none that can be",
            param="tool_choice",
            code="invalid_value",
        )
    found: dict[str, Any] = {"tools": names.functions}
    if choice is not None:
        found["tool_choice"] = choice if isinstance(choice, str) else _chosen(choice)
    if fields.get("parallel_tool_calls") is False:
        found["parallel_tool_calls"] = False
    return found


def custom_arguments(text: str) -> str:
    """A custom tool's input as the arguments of its function."""
    return json.dumps({"input": text}, ensure_ascii=False)


def custom_input(arguments: str) -> str:
    """A custom tool's input from its function's arguments; arguments that are no JSON,
    unchanged."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    given = found.get("input") if isinstance(found, dict) else None
    return given if isinstance(given, str) else arguments


def _add(names: ToolNames, tool: Mapping[str, Any], namespace: str, where: str) -> None:
    if (kind := tool["type"]) not in ("function", "custom"):
        return
    flat = flat_name(tool["name"], namespace)
    if flat in names.origins:
        raise InvalidRequestError(
            f"'{where}' is the second tool of the name {flat[:80]!a}; give each its own",
            param="tools",
            code="invalid_value",
        )
    names.origins[flat] = Origin(tool["name"], namespace, kind == "custom")
    function: dict[str, Any] = {"name": flat}
    if kind == "custom":
        function |= {"description": _custom_description(tool), "parameters": _FREE_TEXT}
    else:
        kept = ("description", "parameters", "strict")
        function |= {name: tool[name] for name in kept if name in tool}
    names.places.append(where)
    names.functions.append({"type": "function", "function": function})


def _custom_description(tool: Mapping[str, Any]) -> str:
    """A custom tool's description; its grammar is only described, not enforced."""
    about: str = tool.get("description", "")
    if grammar := (tool.get("format") or {}).get("definition"):
        return f"{about}\n\nThe input follows this grammar:\n{grammar}".strip()
    return about


def _chosen(choice: Mapping[str, Any]) -> dict[str, Any]:
    if choice["type"] == "allowed_tools":
        known = [tool for tool in choice["tools"] if "name" in tool]
        allowed = {"mode": choice["mode"], "tools": [_named(tool) for tool in known]}
        return {"type": "allowed_tools", "allowed_tools": allowed}
    return _named(choice)


def _named(tool: Mapping[str, Any]) -> dict[str, Any]:
    flat = flat_name(tool["name"], tool.get("namespace", ""))
    return {"type": "function", "function": {"name": flat}}
