"""Tools for a model whose chat template does not support them: the system prompt describes them and
asks for calls as plain JSON; earlier calls and results become text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_ASKED = """You can call these functions:
{tools}
To call one, answer with nothing but JSON of this form: {{"name": "the function", "arguments": \
{{"parameter": "value"}}}}
To call several, write one after another. You will be told what they gave. Answer in words when no \
call is needed."""


def knows_tools(template: str) -> bool:
    """Whether a template uses a request's tools. Phi-4-mini looks for them in the system message,
    `message['tools']`, which no client sends; SmolLM3 calls them `xml_tools`."""
    named = re.search(r"""(?<!\[['"])(?<!['"])\b(xml_)?tools\b(?!['"])""", template)
    return named is not None or takes_functions(template)


def takes_functions(template: str) -> bool:
    """Whether a template has its tools as a text, `functions`, as that of Firefunction 2 does."""
    return re.search(r"(\{\{-?|[+~])\s*functions\b(?!['\"])", template) is not None


def with_prompted_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The conversation as text only, for templates without tools."""
    made = _plain(messages)
    if not tools:
        return made
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    asked = _ASKED.format(tools=listed)
    if made and made[0]["role"] == "system":
        made[0] = {**made[0], "content": f"{made[0]['content']}\n\n{asked}"}
        return made
    return [{"role": "system", "content": asked}, *made]


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    made: list[dict[str, Any]] = []
    answering = False
    for message in messages:
        if message["role"] == "tool":
            name = names.get(message.get("tool_call_id", ""), message.get("name", "the function"))
            result = f"{name} gave: {message['content']}"
            if answering:  # several are one turn: many templates want users and models to alternate
                result = f"{made.pop()['content']}\n{result}"
            made.append({"role": "user", "content": result})
            answering = True
            continue
        answering = False
        calls = message.get("tool_calls", ())
        names |= {call.get("id", ""): call["function"]["name"] for call in calls}
        lines = [message["content"], *map(_call, calls)]
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        made.append({**rest, "content": "\n".join(filter(None, lines))})
    return made


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    call_text = {"name": function["name"], "arguments": function.get("arguments", {})}
    return json.dumps(call_text, ensure_ascii=False)
