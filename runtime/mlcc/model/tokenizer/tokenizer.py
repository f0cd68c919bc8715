"""A model's tokenizer: the port, and `tokenizer.json` read by Hugging Face's tokenizers library.

That library is imported only when a file is read: phones have no wheel of it (`native.py` reads the
file there), and a browser has another implementation of the port.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from mlcc.errors import ArtifactError, InvalidRequestError
from mlcc.util.panics import is_panic, muted

MAX_TOKENIZER_BYTES = 128 << 20
"""Largest tokenizer.json; Gemma 3's, of 262,144 tokens, takes 33 MB."""

MANY_IDS = 1 << 12
"""Ids that take about a millisecond to decode."""


class TextTokenizer(Protocol):
    """Encodes and decodes text. The engine uses only `decode`."""

    @property
    def longest(self) -> int | None:
        """Most characters of a text that one token represents; None = no bound."""
        ...

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        """The ids of a text, int32. Special tokens written in the text are recognised."""
        ...

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of these tokens, special ones skipped, broken UTF-8 as U+FFFD."""
        ...

    def special_tokens(self) -> tuple[str, ...]:
        """Texts of the control tokens, such as `<|im_end|>`."""
        ...


class FileTokenizer:
    """The tokenizer of a folder. Thread-safe. Raises ArtifactError if it cannot be read.

    data: the file's contents, if they are known already.
    """

    def __init__(self, path: Path, data: bytes | None = None) -> None:
        from mlcc.util.files import read_regular

        try:
            read = data if data is not None else read_regular(path, MAX_TOKENIZER_BYTES)
            text = read.decode()
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error
        self._tokenizer = hf_tokenizer(path, text)

    @cached_property
    def longest(self) -> int | None:
        """Most characters of a text that one token represents; None = no bound."""
        from mlcc.model.tokenizer.longest_token import longest_text

        return longest_text(self._tokenizer)

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        """The ids of a text. Raises InvalidRequestError if it is not valid Unicode."""
        check_unicode(text)
        with library_errors():
            # A batch of one: `encode` alone would hold the GIL, and no other thread run.
            made = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return array("i", made[0].ids)

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of ids, special tokens skipped."""
        with library_errors():
            if len(ids) <= MANY_IDS:
                return str(self._tokenizer.decode(ids, skip_special_tokens=True))
            # A batch of one: `decode` alone would hold the GIL, 0.3 s for a million ids.
            return str(self._tokenizer.decode_batch([ids], skip_special_tokens=True)[0])

    def piece(self, token: int) -> str | None:
        """A token as the vocabulary spells it."""
        written: str | None = self._tokenizer.id_to_token(token)
        return written

    def special_tokens(self) -> tuple[str, ...]:
        """The added tokens that are marked as special."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return tuple(token.content for token in added if token.special)


def beginning(tokenizer: TextTokenizer) -> list[int]:
    """The special tokens that a tokenizer puts before a text (`<bos>`); often none."""
    plain, with_them = (list(tokenizer.encode("a", add_special_tokens=s)) for s in (False, True))
    return with_them[: with_them.index(plain[0])] if plain and plain[0] in with_them else []


def hf_tokenizer(path: Path, text: str) -> Any:
    """A `tokenizers.Tokenizer` from a tokenizer.json's text. path: of the file, for the error.
    Raises ArtifactError."""
    from tokenizers import Tokenizer as HfTokenizer

    try:
        with muted():
            made = HfTokenizer.from_str(text)
    except BaseException as error:  # the library raises bare Exception, and panics
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise unreadable(path, error) from error
    made.no_truncation()
    made.no_padding()
    return made


def unreadable(path: Path, error: BaseException) -> ArtifactError:
    """The error for a tokenizer.json that cannot be read."""
    return ArtifactError(f"{path} cannot be read: {error}; compile the model again")


@contextmanager
def library_errors() -> Iterator[None]:
    """Raises ArtifactError for a tokenizer that loads but does not work."""
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and not is_panic(error):
            raise
        raise ArtifactError(
            f"the tokenizer failed: {error}; the model's tokenizer.json is not sound"
        ) from error


def check_unicode(text: str) -> None:
    """Raise InvalidRequestError for lone surrogates, which are no text.

    Bytes that are not UTF-8 become lone surrogates in Python's command line and pipes, and
    JavaScript's strings may contain them.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"the text is not valid UTF-8 at its character {error.start + 1}; convert it, for "
            "example with `iconv -t UTF-8`"
        ) from None
