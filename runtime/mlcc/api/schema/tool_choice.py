"""Which tools a request offers and whether one must be called: what its fields say together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from mlcc.errors import InvalidRequestError
from mlcc.util.fast_dataclass import fast_dataclass

Mode = Literal["auto", "required"]


@fast_dataclass(frozen=True)
class Tool:
    """A function that the model may call."""

    name: str
    parameters: Mapping[str, Any]
    """The schema of its arguments."""
    strict: bool = False
    """Whether all of the schema must be held to."""
    field: str = ""
    """Where the request says so: errors name it."""


@fast_dataclass(frozen=True)
class ToolUse:
    """What a request says of tools. Nothing may be called if `tools` is empty."""

    tools: tuple[Tool, ...] = ()
    """Those that may be called."""
    mode: Mode = "auto"
    """required = at least one is called."""
    parallel: bool = True
    """Whether an answer may have several calls."""
    shown: tuple[Mapping[str, Any], ...] = ()
    """All that the request has, as templates want them."""
    field: str = "tools"
    """Of the request, that wants arguments held to something."""

    @property
    def must_hold(self) -> bool:
        """Whether an answer that is not held to a grammar is refused."""
        return self.mode == "required" or any(tool.strict for tool in self.tools)


NO_TOOLS = ToolUse()
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


def tool_use(fields: Mapping[str, Any]) -> ToolUse:
    """What checked fields say. Raises InvalidRequestError for tools that are not there."""
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
    """As templates write it out, without what is no matter of the model's."""
    function = {name: value for name, value in entry["function"].items() if name != "strict"}
    return {**entry, "function": function}


def _known(tools: Mapping[str, Tool], name: str, where: str) -> Tool:
    if name not in tools:
        raise _wrong(where, f"names {name[:80]!a}, which is not in 'tools'")
    return tools[name]


def _wrong(field: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"'{field}' {what}", param=field, code="invalid_value")
