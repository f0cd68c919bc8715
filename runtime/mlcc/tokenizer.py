"""A model's tokenizer: the port, and `tokenizer.json` read by Hugging Face's tokenizers library.

Text to ids for the drivers, ids to text for the engine. Pyodide has no wheel of that library, which
is therefore imported only when a file is read: the browser brings another behind the same port.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from mlcc.errors import ArtifactError, InvalidRequestError

MAX_TOKENIZER_BYTES = 256 << 20


class TextTokenizer(Protocol):
    """Both directions. `decode` is what the engine needs."""

    def encode(self, text: str, /, *, add_special_tokens: bool) -> list[int]:
        """The ids of a text. Special tokens written in the text are recognised."""
        ...

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of these tokens, special ones skipped, broken UTF-8 as U+FFFD."""
        ...

    def special_tokens(self) -> tuple[str, ...]:
        """As they are written: what steers the model and is no text (`<|im_end|>`)."""
        ...


class FileTokenizer:
    """The tokenizer of a folder. Thread-safe. Raises ArtifactError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as HfTokenizer

        try:
            if path.stat().st_size > MAX_TOKENIZER_BYTES:
                raise ArtifactError(f"{path} is larger than {MAX_TOKENIZER_BYTES >> 20} MiB")
            self._tokenizer = HfTokenizer.from_file(str(path))
        except ArtifactError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise ArtifactError(
                f"{path} cannot be read: {error}; compile the model again"
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str, /, *, add_special_tokens: bool) -> list[int]:
        """The ids of a text. Raises InvalidRequestError if it is not valid Unicode."""
        check_unicode(text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of ids, special tokens skipped."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def special_tokens(self) -> tuple[str, ...]:
        """The added tokens that are marked so."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return tuple(token.content for token in added if token.special)


def check_unicode(text: str) -> None:
    """Raise InvalidRequestError for half surrogates, which are no text.

    Bytes that are not UTF-8 come as such from Python's command line and pipes, and JavaScript's
    strings may hold them.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"the text is not valid UTF-8 at its character {error.start + 1}; convert it, for "
            "example with `iconv -t UTF-8`"
        ) from None
