"""A tokenizer that reads a large tokenizer.json only when a long text needs it.

A short text is encoded by a tokenizer of the same library with the few tokens that the text can
become: those spelled in it. A merge joins neighbours, so tokens and merges of other spellings
cannot take part, and the ids are those of the whole tokenizer. The tokens come from a `TokenIndex`
in the user's cache. The first start makes it, in a little more time than the whole file would take.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from mlcc.errors import MlccError
from mlcc.model.tokenizer import index
from mlcc.model.tokenizer.index import TokenIndex, is_byte
from mlcc.model.tokenizer.native import NativeTokenizer
from mlcc.model.tokenizer.tokenizer import (
    MANY_IDS,
    MAX_TOKENIZER_BYTES,
    FileTokenizer,
    TextTokenizer,
    check_unicode,
    hf_tokenizer,
    library_errors,
)
from mlcc.util.file_cache import TOKENIZERS
from mlcc.util.files import read_regular

SMALLEST_FILE = 4 << 20
"""Files below this size are read in a few tenths of a second."""
MOST_CHARACTERS = 8192
"""Characters of all texts together after which the whole tokenizer is read."""
_LONGEST = 128
"""Symbols of the longest token that is searched for; a vocabulary's longest has about 90."""


def open_tokenizer(path: Path, sha256: str) -> TextTokenizer:
    """The tokenizer of a checked file: by the package `tokenizers`, else by libmlcc_executor.
    sha256: its hash. Raises ArtifactError, UnsupportedError."""
    if find_spec("tokenizers") is None:
        return NativeTokenizer(path)
    if path.stat().st_size < SMALLEST_FILE:
        return FileTokenizer(path)
    key = f"{sha256}-{index.FORMAT}"
    if (data := TOKENIZERS.load(key)) is None:
        data = index.build(read_regular(path, MAX_TOKENIZER_BYTES)) or b""
        TOKENIZERS.store(key, data)
        TOKENIZERS.trim()
    return IndexedTokenizer(path, TokenIndex(data)) if data else whole_tokenizer(path)


def whole_tokenizer(path: Path) -> TextTokenizer:
    """The tokenizer of a large file: libmlcc_executor reads it in a third of the time, and encodes
    faster. Raises ArtifactError."""
    try:
        return NativeTokenizer(path)
    except MlccError:  # a part that it lacks, or no library; or the file's own fault
        return FileTokenizer(path)


class IndexedTokenizer:
    """A `TextTokenizer` over an index. Thread-safe."""

    def __init__(self, path: Path, known: TokenIndex) -> None:
        self._path, self._index = path, known
        self._base = hf_tokenizer(path, known.base)
        self._decoder = self._base.decoder
        self._added: dict[int, Any] = self._base.get_added_tokens_decoder()
        self._special = {token.content for token in self._added.values() if token.special}
        self._pieces: dict[int, str] = {
            token: added.content for token, added in self._added.items()
        }
        self._small = _SmallTokenizer(path, known)
        self._characters = 0
        self._lock = Lock()

    @cached_property
    def whole(self) -> TextTokenizer:
        """The tokenizer of the file. Raises ArtifactError."""
        return whole_tokenizer(self._path)

    @property
    def longest(self) -> int | None:
        """Most characters of a text that one token represents; None = no bound. Reads the file."""
        return self.whole.longest

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        """The ids of a text. Raises InvalidRequestError if it is not valid Unicode."""
        check_unicode(text)
        with self._lock:
            self._characters += len(text)
            if self._characters <= MOST_CHARACTERS:
                with library_errors():
                    symbols = self._base.encode(text, add_special_tokens=False).tokens
                    small = self._small.knowing(text, symbols)
                    made = small.encode(text, add_special_tokens=add_special_tokens)
                return array("i", made.ids)
            whole = self.whole
        return whole.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of ids, special tokens skipped."""
        if len(ids) > MANY_IDS:
            return self.whole.decode(ids)
        pieces = [piece for i in ids if (piece := self.piece(i)) is not None]
        shown = [piece for piece in pieces if piece not in self._special]
        if self._decoder is None:
            return " ".join(shown)
        with library_errors():
            text: str = self._decoder.decode(shown)
        return text

    def piece(self, token: int) -> str | None:
        """A token as the vocabulary spells it."""
        if (known := self._pieces.get(token)) is not None:
            return known
        if (found := self._index.piece(token)) is not None:
            self._pieces[token] = found
        return found

    def special_tokens(self) -> tuple[str, ...]:
        """The added tokens that are marked as special."""
        return tuple(token.content for token in self._added.values() if token.special)


class _SmallTokenizer:
    """Makes tokenizers with the tokens of the texts so far."""

    def __init__(self, path: Path, known: TokenIndex) -> None:
        self._path, self._index, self._base = path, known, json.loads(known.base)
        model, self._all_added = self._base["model"], self._base.get("added_tokens") or []
        self._all: dict[str, int] = model["vocab"]
        unknown = model.get("unk_token")
        self._vocabulary = {t: i for t, i in self._all.items() if t == unknown or is_byte(t)}
        # A normalizer may write a token that the text does not spell.
        self._added = {t["content"] for t in self._all_added if t.get("normalized")}
        self._searched: set[str] = set()
        self._made: Any = None

    def knowing(self, text: str, symbols: Sequence[str]) -> Any:
        """A `tokenizers.Tokenizer` with the tokens that a text can become. symbols: the text as
        the base tokenizer reads it."""
        added = {t["content"] for t in self._all_added if t["content"] in text} - self._added
        found: dict[str, int] = {}
        for start in range(len(symbols)):
            ahead = symbols[start : start + _LONGEST]
            if (joined := "".join(ahead)) not in self._searched:
                self._searched.add(joined)
                found.update(self._index.beginning_with(ahead))
        if self._made is None or added or found.keys() - self._vocabulary.keys():
            self._added |= added
            self._vocabulary |= found
            self._made = self._new()
        return self._made

    def _new(self) -> Any:
        vocabulary = self._vocabulary | {content: self._all[content] for content in self._added}
        spelled = {token: spelling for spelling, token in vocabulary.items()}
        merges = sorted(
            (rank, spelled[left], spelled[right])
            for token in self._vocabulary.values()
            for rank, left, right in self._index.merges_into(token)
            if left in spelled and right in spelled
        )
        model = {**self._base["model"], "vocab": vocabulary}
        model["merges"] = [[left, right] for _, left, right in merges]
        added = [t for t in self._all_added if t["content"] in self._added]
        tree = {**self._base, "added_tokens": added, "model": model}
        return hf_tokenizer(self._path, json.dumps(tree))
