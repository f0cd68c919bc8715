"""The host's tokenizer behind the runtime's port: its callbacks tokenize, Python validates the
text."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcc.errors import ArtifactError, InvalidRequestError
from mlcc.model.tokenizer.tokenizer import check_unicode
from mlcc.model.tokenizer.vocabulary import parts_of_characters


class HostTokenizer:
    """A TextTokenizer on an engine's callbacks; `host` is the module `_mlcc`. `file`: the model's
    tokenizer.json, for what the callbacks do not provide."""

    longest: int | None = None
    """Unknown: a long text costs the user's own time."""

    def __init__(self, host: Any, engine: int, file: Path | None = None) -> None:
        self._host = host
        self._engine = engine
        self._file = file

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        """Return the ids of a text. Raises InvalidRequestError if it is not valid Unicode, or the
        callback fails."""
        check_unicode(text)
        try:
            return array("i", self._host.encode(self._engine, text, add_special_tokens))
        except ValueError as error:
            raise InvalidRequestError(
                f"the text cannot be split into tokens: {error}", code="tokenizer_failed"
            ) from error

    def decode(self, ids: Sequence[int], /) -> str:
        """Return the text of ids, without special tokens."""
        try:
            made: bytes = self._host.decode(self._engine, array("i", ids).tobytes())
        except ValueError as error:
            raise ArtifactError(
                f"the app's tokenizer cannot decode tokens: {error}", code="tokenizer_failed"
            ) from error
        return made.decode("utf-8", "replace")

    def piece(self, token: int) -> str | None:
        """Return a token whose text alone does not tell it, a control token or a part of a
        character, as it is written in the vocabulary."""
        return self._pieces.get(token)

    @cached_property
    def _pieces(self) -> dict[int, str]:
        parts = parts_of_characters(self._file) if self._file else {}
        for text in self.special_tokens():
            ids = self.encode(text, add_special_tokens=False)
            if len(ids) == 1:
                parts[ids[0]] = text
        return parts

    def special_tokens(self) -> tuple[str, ...]:
        """Return the control tokens, which are not text."""
        return self._special

    @cached_property
    def _special(self) -> tuple[str, ...]:
        try:
            return tuple(map(str, json.loads(self._host.special_tokens(self._engine))))
        except (ValueError, TypeError) as error:
            raise ArtifactError(
                f"the app's tokenizer tells no special tokens: {error}", code="tokenizer_failed"
            ) from error
