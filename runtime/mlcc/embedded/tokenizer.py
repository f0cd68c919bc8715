"""The page's tokenizer behind the runtime's port: JavaScript tokenizes, Python validates the
text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from mlcc.embedded.bridge import to_python, typed_array
from mlcc.model.tokenizer.tokenizer import check_unicode


class JsTokenizer:
    """A TextTokenizer on JavaScript's `encode(text, addSpecialTokens)`, `decode(ids)`, `piece(id)`,
    `specialTokens()`."""

    longest: int | None = None
    """Unknown: a long text costs the visitor's own time."""

    def __init__(self, js: Any) -> None:
        self._js = js
        self._typed_array = typed_array()

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        """Return the ids of a text. Raises InvalidRequestError if it is not valid Unicode."""
        check_unicode(text)
        return array("i", to_python(self._js.encode(text, add_special_tokens)))

    def decode(self, ids: Sequence[int], /) -> str:
        """Return the text of ids, without special tokens."""
        return str(self._js.decode(self._typed_array(array("i", ids))))

    def piece(self, token: int) -> str | None:
        """Return a token as it is written in the vocabulary."""
        written = self._js.piece(token)
        return None if written is None else str(written)

    def special_tokens(self) -> tuple[str, ...]:
        """Return the control tokens, which are not text."""
        return tuple(map(str, to_python(self._js.specialTokens())))
