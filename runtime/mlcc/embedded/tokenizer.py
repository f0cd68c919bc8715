"""The page's tokenizer behind the runtime's port: JavaScript splits text, Python checks it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from mlcc.embedded.bridge import to_python, typed_array
from mlcc.model.tokenizer.tokenizer import check_unicode


class JsTokenizer:
    """A TextTokenizer over `encode(text, addSpecialTokens)`, `decode(ids)`, `piece(id)`,
    `specialTokens()`."""

    longest: int | None = None
    """Not known: a long text costs the visitor's own time."""

    def __init__(self, js: Any) -> None:
        self._js = js
        self._typed_array = typed_array()

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        """The ids of a text. Raises InvalidRequestError if it is not valid Unicode."""
        check_unicode(text)
        return array("i", to_python(self._js.encode(text, add_special_tokens)))

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of ids, special tokens skipped."""
        return str(self._js.decode(self._typed_array(array("i", ids))))

    def piece(self, token: int) -> str | None:
        """A token as the vocabulary writes it."""
        written = self._js.piece(token)
        return None if written is None else str(written)

    def special_tokens(self) -> tuple[str, ...]:
        """What steers the model and is no text."""
        return tuple(map(str, to_python(self._js.specialTokens())))
