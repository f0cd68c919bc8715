"""A model's tokenizer: `tokenizer.json`, read by Hugging Face's tokenizers library.

Text to ids for the drivers, ids to text for the engine. Not for Pyodide, which has no wheel of that
library: the browser brings its own behind the same two methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer as HfTokenizer

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


class FileTokenizer:
    """The tokenizer of a folder. Thread-safe. Raises ArtifactError if it cannot be read."""

    def __init__(self, path: Path) -> None:
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
        _check_unicode(text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of ids, special tokens skipped."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text


def _check_unicode(text: str) -> None:
    """Bytes that are not UTF-8 come from Python's command line and pipes as half surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"the text is not valid UTF-8 at its character {error.start + 1}; convert it, for "
            "example with `iconv -t UTF-8`"
        ) from None
