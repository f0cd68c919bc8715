"""The grammar of an answer with tools: only calls where one is required; otherwise free text up to
the trigger of a call (a structural tag), and from there a call that validates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.parsers.tools.base import ToolFormat
from mlcc.api.parsers.tools.harmony import CHANNEL, END, MESSAGE, START, Harmony
from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.api.schema.tool_fields import Tool, ToolUse

MOST_CALLS = 16
"""Most calls of an answer: a model that may continue forever sometimes does."""


def calls_grammar(
    format: ToolFormat,
    use: ToolUse,
    control: Mapping[str, int],
    answer: Mapping[str, Any] | None = None,
) -> str:
    """A Lark grammar. control: control tokens, by their texts. answer: JSON Schema of an answer
    without calls; None = any text."""
    lark = Lark(control)
    body = lark.rule(" | ".join(_bodies(format, use.tools, lark)))
    more = (
        f"({lark.text(format.between)} {body}){{0,{MOST_CALLS - 1}}}"
        if use.parallel and format.between
        else ""
    )
    group = f"{body} {more} {lark.text(format.after)}"
    if isinstance(format, Harmony):
        return lark.written(_channels(lark, f"{lark.text(format.trigger)} {body}", use, answer))
    space = lark.rule(r"/[ \n]{0,4}/")
    whole = f"{space} {lark.text(format.trigger)} {group}"
    if use.mode == "required":
        return lark.written(whole)
    if answer is not None:
        return lark.written(f"{whole} | {space} {lark.json(answer)}")
    if format.first:
        names = "|".join(_escaped(tool.name) for tool in use.tools)
        call = _escaped(format.trigger) or f"({names})\\n"
        other = f"/(.|\\n)*/ & ~/{call}(.|\\n)*/"
        return lark.written(f"{lark.text(format.trigger)} {group} | OTHER") + f"OTHER: {other}\n"
    found = f"{lark.until(format.trigger)} {group}"
    return lark.written(f"({found})* TEXT" if use.parallel else f"{found} | TEXT")


def _bodies(format: ToolFormat, tools: Sequence[Tool], lark: Lark) -> list[str]:
    return [format.body(tool.name, tool.parameters, lark) for tool in tools]


def _channels(lark: Lark, call: str, use: ToolUse, answer: Mapping[str, Any] | None) -> str:
    """Harmony: optional reasoning, optional commentary, then a call or an answer."""

    def message(channel: str) -> str:
        return (
            f"{lark.text(CHANNEL + channel + MESSAGE)} TEXT {lark.text(f'{END}{START}assistant')}"
        )

    front = f"({lark.rule(message('analysis'))})? ({lark.rule(message('commentary'))})?"
    if use.mode == "required":
        return f"{front} {call}"
    content = "TEXT" if answer is None else lark.json(answer)
    final = lark.rule(f"{lark.text(f'{CHANNEL}final{MESSAGE}')} {content}")
    return f"{front} ({lark.rule(call)} | {final})"


def _escaped(text: str) -> str:
    """A text escaped for a Lark regular expression."""
    return "".join(char if char.isalnum() or char in ' "_' else f"\\{char}" for char in text)
