"""Streaming tool call parser: separates tool calls from the text around them.

The result does not depend on how the text is cut: nothing is decided that more text could change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mlcc.api.parsers.deltas import CallDelta, ContentDelta, Delta, Place
from mlcc.api.parsers.tools.base import Block, ToolFormat, Tools

_DECIDING = frozenset("}])>\"'`;|")
"""Characters that may complete a block: a long block is parsed again when one of them comes."""
_LONG = 256
_FENCE = "```json"
"""A mark that answers begin with, too."""
_HEADS = ('{"name":"', '{"type":"function"', '{"function":{"name":"')
"""Beginnings of calls as JSON, without white space."""
_BETWEEN = " \t\r\n;,"
"""White space and separators between calls at the start of an answer."""


class ToolCallParser:
    """Parses one answer. new_id: makes the id of a call."""

    def __init__(self, format: ToolFormat, tools: Tools, new_id: Callable[[], str]) -> None:
        self._format, self._tools, self._new_id = format, tools, new_id
        self._held = ""
        """Text that may be a block, or begin one."""
        self._inside = False
        """Whether `_held` begins with one of the format's marks."""
        self._space = ""
        """White space sent with the text that follows, and dropped beside calls."""
        self._spoke = False
        """Whether there was text."""
        self._calls = 0
        self._ids: set[str] = set()
        """Ids of calls so far."""

    @property
    def held(self) -> int:
        """Characters at the end of the text that are in no part yet."""
        return len(self._held) + len(self._space)

    @property
    def place(self) -> Place:
        """Where the text so far ends: never in reasoning."""
        return "answer"

    def push(self, text: str) -> list[Delta]:
        """Parse more text."""
        self._held += text
        if self._inside and len(self._held) > _LONG and not _DECIDING.intersection(text):
            return []
        return [*self._read(ended=False)]

    def flush(self, cut: bool = False) -> list[Delta]:
        """The remaining parts, at the end of the text."""
        deltas = [*self._cut_off()] if cut else []
        deltas += self._read(ended=True)
        if self._space and not self._calls:
            deltas.append(ContentDelta(self._space))
        return deltas

    def _read(self, ended: bool) -> Iterator[Delta]:
        while self._held:
            if not self._inside:
                yield from self._text(self._text_before_block(ended))
                if not self._inside:
                    return
            block = self._format.block(self._held, ended, self._tools)
            if block is None:
                return
            yield from self._take(block)

    def _take(self, block: Block) -> Iterator[Delta]:
        """The parts of a block."""
        done, self._held = self._held[: block.length], self._held[block.length :]
        self._inside = False
        if not block.calls:
            yield from self._text(done)
        for call in block.calls:
            self._space = ""
            yield CallDelta(self._calls, self._id(call.id), call.name, call.arguments)
            self._calls += 1

    def _cut_off(self) -> Iterator[Delta]:
        """The calls that are complete in `_held`, which the token limit ended; what is not complete
        is left out."""
        if self._inside and self._held:
            block = self._format.block(self._held, True, self._tools)
            if block is not None and block.calls:
                yield from self._take(block)
                self._held = ""
            elif self._is_call(self._held):
                self._held, self._inside = "", False
        else:
            self._held = ""  # may only begin a mark

    def _is_call(self, text: str) -> bool:
        """Whether a block that is not complete is a call: it begins with a tag, or as a call of a
        known tool."""
        mark = max(filter(text.startswith, self._format.opens), key=len)
        if len(mark) > 1 and mark != _FENCE:
            return True
        if any(name in text for name in (*self._tools, '"function"')):
            return True
        begun = _squeezed(text.removeprefix(_FENCE)).removeprefix("[")
        trigger = _squeezed(self._format.trigger).removeprefix("[")
        heads = (trigger, f'{trigger}"', *_HEADS)
        return any((head + name).startswith(begun) for head in heads for name in self._tools)

    def _id(self, own: str) -> str:
        """The model's own id, unless two calls have the same one."""
        if not own or own in self._ids:
            return self._new_id()
        self._ids.add(own)
        return own

    def _text_before_block(self, ended: bool) -> str:
        """Text that cannot become a block; `_held` is the rest."""
        held, opens = self._held, self._format.opens
        if self._format.first:
            if self._calls and not self._spoke:
                held = held.lstrip(_BETWEEN)
            start = len(held) - len(held.lstrip())
            found = [start] if not self._spoke and held.startswith(opens, start) else []
            may_come = not self._spoke and any(o.startswith(held[start:]) for o in opens)
            cut = start if may_come else len(held)
        else:
            found = [at for mark in opens if (at := held.find(mark)) >= 0]
            cut = len(held) - _begun(held, opens)
        if found:
            cut, self._inside = min(found), True
        elif ended:
            cut = len(held)
        self._held = held[cut:]
        return held[:cut]

    def _text(self, text: str) -> Iterator[Delta]:
        if not text:
            return
        text = self._space + text
        kept = text.rstrip()
        self._space = text[len(kept) :]
        if kept:
            self._spoke = True
            yield ContentDelta(kept)


def _begun(text: str, marks: tuple[str, ...]) -> int:
    """Length of the longest suffix that may begin a mark."""
    longest = min(len(text), max(map(len, marks), default=1) - 1)
    for length in range(longest, 0, -1):
        if any(mark.startswith(text[-length:]) for mark in marks):
            return length
    return 0


def _squeezed(text: str) -> str:
    """The text without white space."""
    return "".join(text.split())
