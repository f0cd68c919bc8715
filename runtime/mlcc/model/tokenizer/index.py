"""An index of a BPE vocabulary: a token by its id or by its spelling, without reading all others.

Reading a tokenizer.json of 262,144 tokens takes a second of CPU, most of it for merges that a short
text does not use. The index is one block of bytes that is read as it lies: the tokens' spellings in
order, their ids, and for each token the merges that make it. `indexed.py` reads texts with it.
"""

from __future__ import annotations

import gc
import json
import struct
import sys
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

FORMAT = f"1-{sys.byteorder}"
"""Part of an index's key; raised when the layout changes."""
_NONE = 0xFFFFFFFF
_MOST_IDS = 1 << 22
"""Ids of the largest vocabulary; an index has four bytes for each."""
_HEAD = struct.Struct("9Q")


class TokenIndex:
    """See the module. data: made by `build`."""

    def __init__(self, data: bytes) -> None:
        view, at, parts = memoryview(data), _HEAD.size, []
        for size in _HEAD.unpack(view[:at]):
            parts.append(view[at : at + size])
            at += size
        self.base = str(parts[0], "utf-8")
        """A tokenizer.json with only the tokens of one character or byte, and the added ones."""
        self._spellings = parts[1]
        numbers = [part.cast("I") for part in parts[2:]]
        self._starts, self._ids, self._places, self._merge_starts = numbers[:4]
        self._ranks, self._lefts, self._rights = numbers[4:]

    def piece(self, token: int) -> str | None:
        """A token as the vocabulary spells it; None = there is no such id."""
        if not 0 <= token < len(self._places) or (place := self._places[token]) == _NONE:
            return None
        return str(self._spelling(place), "utf-8")

    def beginning_with(self, symbols: Sequence[str]) -> Iterator[tuple[str, int]]:
        """The tokens that are spelled as the first symbols, joined, and their ids."""
        low, high, text = 0, len(self._ids), ""
        places = range(high)
        for symbol in symbols:
            text += symbol
            wanted = text.encode()
            low = bisect_left(places, wanted, low, high, key=self._spelling)
            high = bisect_left(places, wanted + b"\xff", low, high, key=self._spelling)
            if low == high:
                return
            if self._spelling(low) == wanted:
                yield text, self._ids[low]

    def merges_into(self, token: int) -> Iterator[tuple[int, int, int]]:
        """The merges that make a token: rank, and the ids of the two parts."""
        for i in range(self._merge_starts[token], self._merge_starts[token + 1]):
            yield self._ranks[i], self._lefts[i], self._rights[i]

    def _spelling(self, place: int) -> bytes:
        return bytes(self._spellings[self._starts[place] : self._starts[place + 1]])


def build(text: bytes) -> bytes | None:
    """The index of a tokenizer.json; None if it is no BPE, or one that needs all of its tokens, or
    not sound."""
    running = gc.isenabled()
    gc.disable()  # half a million lists, none of them garbage: a third of the time
    try:
        tree = json.loads(text)
        if not _indexable(tree, tree["model"]):
            return None
        parts = [json.dumps(_base(tree)).encode(), *_arrays(tree["model"])]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    finally:
        if running:
            gc.enable()
    return _HEAD.pack(*map(len, parts)) + b"".join(parts)


def _arrays(model: Mapping[str, Any]) -> list[bytes]:
    vocabulary: dict[str, int] = model["vocab"]
    id_of, end = vocabulary.__getitem__, max(vocabulary.values()) + 1
    pairs = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model["merges"]]
    lefts, rights = [left for left, _ in pairs], [right for _, right in pairs]
    made = [*map(id_of, map(str.__add__, lefts, rights))]
    by_token = sorted(range(len(made)), key=made.__getitem__)  # and by rank
    counts = Counter(made)
    tokens = sorted(vocabulary)  # by code points, which is the order of UTF-8, too
    spellings = [*map(str.encode, tokens)]
    places = array("I", [_NONE]) * end
    for place, token in enumerate(map(id_of, tokens)):
        places[token] = place
    numbers: tuple[Iterable[int], ...] = (
        accumulate(map(len, spellings), initial=0),
        map(id_of, tokens),
        places,
        accumulate((counts[token] for token in range(end)), initial=0),
        by_token,
        (id_of(lefts[i]) for i in by_token),
        (id_of(rights[i]) for i in by_token),
    )
    return [b"".join(spellings), *(array("I", part).tobytes() for part in numbers)]


def _indexable(tree: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    """Whether a text's tokens depend only on the tokens that are spelled in it."""
    vocabulary = model.get("vocab")
    if model.get("type") != "BPE" or not isinstance(vocabulary, dict):
        return False
    ids = {*vocabulary.values()}
    if any(model.get(key) for key in _WHOLE) or len(ids) < len(vocabulary):
        return False
    if not ids or min(ids) < 0 or max(ids) >= _MOST_IDS:
        return False
    exact = not model.get("ignore_merges") or tree.get("normalizer") is None
    return all(
        token["content"] in vocabulary
        or (exact and len(token["content"]) > 1 and not token.get("single_word"))
        for token in tree.get("added_tokens") or []
    )


_WHOLE = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
"""Settings with which a merged token is not spelled as its two parts."""


def _base(tree: Mapping[str, Any]) -> dict[str, Any]:
    vocabulary: dict[str, int] = tree["model"]["vocab"]
    unknown = tree["model"].get("unk_token")
    small = {t: i for t, i in vocabulary.items() if len(t) == 1 or is_byte(t) or t == unknown}
    added = {t["content"]: t["id"] for t in tree.get("added_tokens") or []}
    # With added tokens in the vocabulary their ids do not depend on the vocabulary's size.
    added = {content: vocabulary.get(content, token) for content, token in added.items()}
    return {**tree, "model": {**tree["model"], "vocab": {**added, **small}, "merges": []}}


def is_byte(spelling: str) -> bool:
    """Whether this is a byte token of SentencePiece, such as `<0xE2>`."""
    return len(spelling) == 6 and spelling.startswith("<0x") and spelling.endswith(">")
