"""`tokenizer.json` read by libmlcc_executor, for where the package `tokenizers` is not installed:
phones, which have no wheel of it, and installations without it.

The ids and texts are those of `tokenizers`. Parts that the library lacks are refused by name.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from mlcc.errors import ArtifactError, DeviceError, UnsupportedError
from mlcc.model.tokenizer.longest_token import longest_of
from mlcc.model.tokenizer.tokenizer import MAX_TOKENIZER_BYTES, check_unicode, unreadable
from mlcc.util import executor_library
from mlcc.util.files import read_regular

_INSTALL = "pip install tokenizers"


class NativeTokenizer:
    """A `TextTokenizer`. Thread-safe. Raises ArtifactError, or UnsupportedError for a part of the
    file that is not supported.

    data: the file's contents, if they are known already.
    """

    def __init__(self, path: Path, data: bytes | None = None) -> None:
        self._path, self._data = path, data
        try:
            self._module = executor_library.load()
        except DeviceError as error:
            raise UnsupportedError(
                f"the model's tokenizer needs the package `tokenizers` or mlcc's own library: "
                f"{_INSTALL} ({error})"
            ) from error
        with self._failures():
            self._tokenizer = self._module.tokenizer(self._read())

    @cached_property
    def longest(self) -> int | None:
        """Most characters of a text that one token represents; None = no bound. Reads the file."""
        tree = json.loads(self._read())
        vocabulary = tree["model"].get("vocab")
        if not isinstance(vocabulary, dict):
            return None  # SentencePiece's unigrams, whose unknown token takes any text
        return longest_of(tree, {**vocabulary, **{text: i for i, text, _ in self._added}})

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        """The ids of a text. Raises InvalidRequestError if it is not valid Unicode."""
        check_unicode(text)
        with self._failures():
            return array("i", bytes(self._tokenizer.encode(text, add_special_tokens)))

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of ids, special tokens skipped."""
        with self._failures():
            return self._tokenizer.decode(ids, True)

    def piece(self, token: int) -> str | None:
        """A token as the vocabulary spells it."""
        return self._tokenizer.piece(token)

    def special_tokens(self) -> tuple[str, ...]:
        """The added tokens that are marked as special."""
        return tuple(text for _, text, special in self._added if special)

    @cached_property
    def _added(self) -> list[tuple[int, str, int]]:
        return self._tokenizer.added()

    def _read(self) -> bytes:
        try:
            return self._data or read_regular(self._path, MAX_TOKENIZER_BYTES)
        except (OSError, ValueError) as error:
            raise unreadable(self._path, error) from error

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except self._module.Failed as error:
            status, text = error.args
            if status == executor_library.UNSUPPORTED:
                raise UnsupportedError(
                    f"{self._path} has {text}, which mlcc reads by the package `tokenizers` only: "
                    f"{_INSTALL}"
                ) from error
            raise unreadable(self._path, ArtifactError(text)) from error
