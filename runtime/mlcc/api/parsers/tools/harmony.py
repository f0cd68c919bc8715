"""gpt-oss' harmony: channels, `<|channel|>analysis<|message|>...<|end|><|start|>assistant`, where
analysis is reasoning, final is the answer, and a message to a function is a call.

Source: OpenAI's harmony response format. A prompt ends in `<|start|>assistant`; the last message
ends in a token that ends the answer, and is not seen here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from mlcc.api.parsers.deltas import CallDelta, ContentDelta, Delta, Place, ReasoningDelta
from mlcc.api.parsers.tools.base import Block, Call, Tools
from mlcc.api.parsers.tools.syntax.json_text import json_end, parsed, written
from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.util.fast_dataclass import fast_dataclass

CHANNEL, MESSAGE, CONSTRAIN = "<|channel|>", "<|message|>", "<|constrain|>"
START, END, CALL, RETURN = "<|start|>", "<|end|>", "<|call|>", "<|return|>"
CONTROL = (CHANNEL, MESSAGE, CONSTRAIN, START, END, CALL, RETURN)
_TO = re.compile(r"\bto=(?:functions\.)?([\w.:/-]{1,128})")
_LONGEST_HEAD = 512


@fast_dataclass(frozen=True)
class Harmony:
    """Tool calls only; `HarmonyParser` parses whole answers."""

    name: str = "harmony"
    opens: tuple[str, ...] = (CHANNEL,)
    control: tuple[str, ...] = CONTROL
    first: bool = False
    json_arguments: bool = True
    trigger: str = f"{CHANNEL}commentary to=functions."
    between: str = f"{CALL}{START}assistant{CHANNEL}commentary to=functions."
    after: str = ""

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        return f"{lark.text(f'{name} {CONSTRAIN}json{MESSAGE}')} {lark.json(parameters)}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """One message that is a call, or text."""
        at = text.find(MESSAGE)
        if at < 0:
            long = len(text) > _LONGEST_HEAD
            return Block(len(text) if ended else len(CHANNEL)) if ended or long else None
        start = at + len(MESSAGE)
        if not (to := _TO.search(text[:at])):
            return Block(start)
        end = json_end(text, start)
        if end is None:
            return Block(len(text)) if ended else None
        given = parsed(text[start:end])
        return Block(end, (Call(to[1], written(given)),) if isinstance(given, dict) else ())


class HarmonyParser:
    """Parses one answer. thoughts: separate reasoning; calls: parse tool calls."""

    def __init__(self, thoughts: bool, calls: bool, new_id: Callable[[], str]) -> None:
        self._thoughts, self._calls, self._new_id = thoughts, calls, new_id
        self._held = ""
        self._head: str | None = ""
        """Header of the current message so far; None = its text has begun."""
        self._call_text = ""
        """Arguments so far of a call."""
        self._channel = ""
        self._to = ""
        self._count = 0
        self._first = True
        """Whether no message has begun."""

    @property
    def held(self) -> int:
        """Characters at the end of the text that are in no part yet."""
        return len(self._held) + len(self._head or "") * self._first

    @property
    def place(self) -> Place:
        """Where the text so far ends."""
        if self._head is not None or not self._reasons:
            return "answer"
        return "mark" if self._held else "reasoning"

    @property
    def _reasons(self) -> bool:
        """Whether the text of the current message is reasoning."""
        return self._channel.startswith("analysis") and self._thoughts and not self._to

    def push(self, text: str) -> list[Delta]:
        """Parse more text."""
        self._held += text
        deltas: list[Delta] = []
        while (found := self._next(ended=False)) is not None:
            deltas += found
        return deltas

    def flush(self, cut: bool = False) -> list[Delta]:
        """The remaining parts, at the end of the text."""
        deltas: list[Delta] = []
        if cut:  # a mark or a header that is not complete
            self._held, self._first = "", False
        while (found := self._next(ended=True)) is not None:
            deltas += found
        if self._head and self._first:  # no message began
            deltas.append(ContentDelta(self._head))
        return [*deltas, *self._close(cut)]

    def _next(self, ended: bool) -> list[Delta] | None:
        """One step; None = more text is needed."""
        if self._head is not None and self._first and not _may_be_head(self._head + self._held):
            self._held, self._head, self._first = self._head + self._held, None, False
            self._channel = "final"  # an answer without channels
        marks = _HEAD_MARKS if self._head is not None else _BODY_MARKS
        found = [(at, mark) for mark in marks if (at := self._held.find(mark)) >= 0]
        if found:
            at, mark = min(found)
            before, self._held = self._held[:at], self._held[at + len(mark) :]
            return self._mark(before, mark)
        if not self._held:
            return None
        cut = len(self._held) if ended else len(self._held) - _begun(self._held)
        before, self._held = self._held[:cut], self._held[cut:]
        if not before:
            return None
        if self._head is None:
            return self._text(before)
        self._head += before
        return []

    def _mark(self, before: str, mark: str) -> list[Delta]:
        if self._head is None:  # the end of a message
            deltas = [*self._text(before), *self._close()]
            self._head = ""
            return deltas
        self._head += before
        if mark != MESSAGE:
            self._head += mark
            return []
        head, self._head, self._first = self._head, None, False
        channel = head.rpartition(CHANNEL)[2].split()
        self._channel = channel[0] if channel else "final"
        to = _TO.search(head)
        self._to = to[1] if to and self._calls else ""
        return []

    def _text(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._to:
            self._call_text += text
            return []
        if self._reasons:
            return [ReasoningDelta(text)]
        return [ContentDelta(text)]

    def _close(self, cut: bool = False) -> list[Delta]:
        """The end of a message: a call is complete now, unless the token limit cut it."""
        name, arguments, self._to, self._call_text = self._to, self._call_text, "", ""
        if not name:
            return []
        given = parsed(arguments or ("" if cut else "{}"))
        if not isinstance(given, dict):
            return [] if cut else [ContentDelta(arguments)]
        self._count += 1
        return [CallDelta(self._count - 1, self._new_id(), name, written(given))]


HARMONY_CALLS = Harmony()
_HEAD_MARKS = (CHANNEL, CONSTRAIN, MESSAGE)
_BODY_MARKS = (END, CALL, RETURN, START)


def _may_be_head(text: str) -> bool:
    """Whether a first message with this beginning may have a header."""
    text = text.lstrip()
    return CHANNEL.startswith(text[: len(CHANNEL)]) or "to=".startswith(text[:3])


def _begun(text: str) -> int:
    """Length of the longest suffix that may begin a mark."""
    lengths = range(min(len(text), max(map(len, CONTROL)) - 1), 0, -1)
    return next((n for n in lengths if any(mark.startswith(text[-n:]) for mark in CONTROL)), 0)
