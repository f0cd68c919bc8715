"""The text side of one request: tokens in, certain text out, and whether a stop string came.

Joins `detokenize.py` and `stop.py`; knows nothing about scheduling or pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.engine.detokenize import Detokenizer, Tokenizer
from mlcc.engine.stop import StopChecker


class AnswerText:
    """The growing text of one answer; without a tokenizer it stays empty."""

    def __init__(
        self, tokenizer: Tokenizer | None, prompt: Sequence[int], stop: Sequence[str]
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, prompt) if tokenizer else None
        self._checker = StopChecker(stop)

    @property
    def matched(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return self._checker.matched

    def push(self, token: int) -> str:
        """Add a token; returns the text that is certain now."""
        if self._detokenizer is None:
            return ""
        return self._checker.push(self._detokenizer.push(token))

    def flush(self) -> str:
        """The text held back, once no more tokens will come."""
        if self._detokenizer is None or self.matched is not None:
            return ""
        text = self._checker.push(self._detokenizer.flush())
        return text + self._checker.flush()
