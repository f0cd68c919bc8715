"""One answer as it is generated: its text goes through the model's parser, and the tokens of its
reasoning are counted."""

from __future__ import annotations

from mlcc.api.parsers.deltas import ContentDelta, Delta, OutputParser


class AnswerReader:
    """Parses one answer; parser: None = the answer is plain text."""

    def __init__(self, parser: OutputParser | None) -> None:
        self._parser = parser
        self.reasoning_tokens = 0
        """Tokens between the marks of its reasoning."""
        self._pending = 0
        """Tokens that belong to the reasoning unless they are its closing mark."""

    def push(self, text: str, tokens: int) -> list[Delta]:
        """Parse more text, the newest of `tokens` tokens."""
        if self._parser is None:
            return [ContentDelta(text)] if text else []
        if self._parser.place != "answer":
            self._pending += tokens
        deltas = self._parser.push(text) if text else []
        place = self._parser.place
        if place == "reasoning":
            self.reasoning_tokens += self._pending
        if place != "mark":
            self._pending = 0
        return deltas

    def flush(self, cut: bool) -> list[Delta]:
        """The remaining parts, at the end of the text. cut: the token limit ended it."""
        return [] if self._parser is None else self._parser.flush(cut)
