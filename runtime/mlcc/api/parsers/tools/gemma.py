"""Gemma's notations. Gemma 3 was trained on a Markdown fence with Python (`tool_code`) or JSON; its
successors use marks: `call:name{key:value,...}`, with a mark in place of quotes.

Source: Google's pages on function calling with Gemma 3, FunctionGemma and Gemma 4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Call, Tools
from mlcc.api.parsers.tools.syntax.json_text import calls_of, json_end, parsed, written
from mlcc.api.parsers.tools.syntax.lark import Lark, literal
from mlcc.api.parsers.tools.syntax.python_text import python_body, python_calls, schema_of
from mlcc.api.parsers.tools.syntax.xml_text import is_text
from mlcc.util.fast_dataclass import fast_dataclass

_FENCE, _CODE, _JSON = "```", "```tool_code", "```json"
_HEAD = re.compile(r"\s*call:([\w.:/-]{1,128})\s*(?=\{)")
_BARE_KEY = re.compile(r"([{,]\s*)([A-Za-z_][\w-]*)\s*:")


@fast_dataclass(frozen=True)
class GemmaFence:
    """Gemma 3: Python, or JSON that names a known tool."""

    name: str = "gemma-fence"
    opens: tuple[str, ...] = (_CODE, _JSON)
    control: tuple[str, ...] = ()
    first: bool = False
    json_arguments: bool = False
    trigger: str = _CODE
    between: str = "\n"
    after: str = "\n```"

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        return f"{literal(chr(10))} {python_body(name, parameters, lark)}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """One fence."""
        code = text.startswith(_CODE)
        front = len(_CODE if code else _JSON)
        end = text.find(f"\n{_FENCE}", front)
        if end < 0 and not ended:
            return None
        inside = text[front : end if end >= 0 else len(text)].strip()
        behind = end + 1 + len(_FENCE) if end >= 0 else len(text)
        if code:
            calls = python_calls(inside, tools)
            if not calls:  # one call per line
                lines = [python_calls(line, tools) for line in inside.splitlines() if line.strip()]
                calls = tuple(call for made in lines for call in made) if all(lines) else ()
        else:
            calls = calls_of(parsed(inside))
        known = all(call.name in tools for call in calls)
        return Block(behind, calls if known else ())


@fast_dataclass(frozen=True)
class GemmaCall:
    """FunctionGemma and Gemma 4: calls between marks."""

    name: str
    open: str
    close: str
    quote: str
    first: bool = False
    json_arguments: bool = False

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def control(self) -> tuple[str, ...]:
        return (self.open, self.close, self.quote)

    @property
    def trigger(self) -> str:
        return self.open

    @property
    def between(self) -> str:
        return self.close + self.open

    @property
    def after(self) -> str:
        return self.close

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        needed = parameters.get("required", ())
        items = []
        for key in parameters.get("properties", {}):
            schema = schema_of(parameters, key)
            if not is_text(schema):
                value = lark.json(schema)
            elif "enum" in schema:
                choices = " | ".join(literal(str(choice)) for choice in schema["enum"])
                value = f"{lark.text(self.quote)} ({choices}) {lark.text(self.quote)}"
            else:
                value = f"{lark.text(self.quote)} {lark.until(self.quote)}"
            items.append((f"{literal(f'{key}:')} {value}", key in needed))
        return f"{literal(f'call:{name}{{')} {lark.chain(items, ',')} {literal('}')}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """One call, up to its closing mark or the end of the answer."""
        end = text.find(self.close, len(self.open))
        if end < 0 and not ended:
            return None
        inside = text[len(self.open) : end if end >= 0 else len(text)]
        behind = end + len(self.close) if end >= 0 else len(text)
        head = _HEAD.match(inside)
        given = self._arguments(inside[head.end() :]) if head else None
        return Block(behind, (Call(head[1], written(given)),) if head and given is not None else ())

    def _arguments(self, text: str) -> dict[str, Any] | None:
        """The arguments as JSON: quotes are added to texts, and to keys outside of them."""
        parts = text.split(self.quote)
        if len(parts) % 2 == 0:
            return None
        made = [
            json.dumps(part) if i % 2 else _BARE_KEY.sub(r'\1"\2":', part)
            for i, part in enumerate(parts)
        ]
        whole = "".join(made)
        given = parsed(whole) if json_end(whole) == len(whole.rstrip()) else None
        return given if isinstance(given, dict) else None


GEMMA_FENCE = GemmaFence()
FUNCTION_GEMMA = GemmaCall(
    "functiongemma", "<start_function_call>", "<end_function_call>", "<escape>"
)
GEMMA4 = GemmaCall("gemma4", "<|tool_call>", "<tool_call|>", '<|"|>')
