"""The marks that some models put round what they say behind their reasoning: HunYuan's `<answer>`
and `</answer>`, with a line for each. They are no part of the answer; in pieces.
"""

from __future__ import annotations

from mlcc.api.parsers.deltas import ContentDelta, Delta, OutputParser


class AnswerFrame:
    """Of one answer, behind its reasoning: takes the first mark at the beginning, and the last one
    at the end if the first was there. What is between goes to `then`; None = it is content."""

    def __init__(self, marks: tuple[str, str], then: OutputParser | None) -> None:
        self._open, self._close = marks
        self._then = then
        self._held = ""
        self._place = "before"

    def push(self, text: str) -> list[Delta]:
        """More of the answer."""
        self._held += text
        return self._read(ended=False)

    def flush(self) -> list[Delta]:
        """The rest, once no more will come."""
        deltas = self._read(ended=True)
        return [*deltas, *(self._then.flush() if self._then else [])]

    def _read(self, ended: bool) -> list[Delta]:
        if self._place == "before":
            self._begin(ended)
        if self._place == "begun":
            self._held = self._held.lstrip("\n")
            self._place = "inside" if self._held else "begun"
        if self._place == "inside":
            return self._inside(ended)
        if self._place == "plain":
            return self._pass(len(self._held))
        return []

    def _begin(self, ended: bool) -> None:
        start = self._held.lstrip()
        if start.startswith(self._open):
            self._held, self._place = start[len(self._open) :], "begun"
        elif ended or not self._open.startswith(start):
            self._place = "plain"

    def _inside(self, ended: bool) -> list[Delta]:
        """All but what may be the end of the frame."""
        at = len(self._held.rstrip())
        bare = self._held[:at]
        if bare.endswith(self._close):
            at = len(bare[: -len(self._close)].rstrip("\n"))
            if not ended:
                return self._pass(at)
            deltas = self._pass(at)
            self._held = ""
            return deltas
        if ended:
            return self._pass(len(self._held))
        lengths = range(min(len(self._close) - 1, len(bare)), 0, -1)
        begun = next((n for n in lengths if self._close.startswith(bare[-n:])), 0)
        return self._pass(len(bare[: len(bare) - begun].rstrip()))

    def _pass(self, count: int) -> list[Delta]:
        text, self._held = self._held[:count], self._held[count:]
        if self._then is not None:
            return self._then.push(text) if text else []
        return [ContentDelta(text)] if text else []
