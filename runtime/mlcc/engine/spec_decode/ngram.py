"""N-gram drafting (prompt lookup): copies what followed the last tokens earlier in the text.

The last few tokens are looked up in the prompt, in the output so far, and in the request's
prediction (Saxena, 2023, "Prompt Lookup Decoding"; OpenAI's "predicted outputs"). If the prefix
cache has an earlier output to the same text, that comes first. No model is involved.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from itertools import islice

from mlcc.engine.kv_cache.radix_tree import Block, RadixTree
from mlcc.engine.request import Request
from mlcc.engine.spec_decode.speculator import Proposal

GRAMS = (5, 3, 2)
"""Lengths of the n-gram to look up, longest first."""
_MAX_INDEXED = 8192
"""Tokens indexed per step: a long prompt takes several steps."""
_SEPARATOR = -1
"""Separates the prediction from the prompt: no token."""


class NgramProposer:
    """Proposer of one sequence. tokens: the known ones, to which the engine appends."""

    free, origin = True, ""

    def __init__(
        self, tokens: array[int], prediction: Sequence[int] = (), path: TreeCursor | None = None
    ) -> None:
        self._tokens, self._path = tokens, path
        self._text = array("i", [*prediction, _SEPARATOR] if prediction else ())
        self._prefix_length = len(self._text)
        """Tokens of `_text` before the sequence's own."""
        self._last_seen: dict[bytes, int] = {}
        """End of the last occurrence of an n-gram, by its bytes."""
        self._indexed = 0

    @classmethod
    def of(
        cls, request: Request, tokens: array[int], tree: RadixTree, scope: Hashable
    ) -> NgramProposer:
        """Opens a proposer, for `Speculator`."""
        return cls(tokens, request.prediction, TreeCursor(tree, scope))

    def propose(self, most: int) -> Proposal | None:
        """The tokens that followed the last ones earlier."""
        if self._path is not None and (tokens := self._path.continuation(self._tokens, most)):
            return Proposal(tokens, "tree")
        if not self._index():
            return None
        text = self._text
        for length in GRAMS:
            if len(text) > length:
                at = self._last_seen.get(text[-length:].tobytes())
                if at is not None:
                    return Proposal(self._copy_from(at, most), f"gram{length}")
        return None

    def num_to_draft(self, worthwhile: int) -> int:
        """All: drafts are free."""
        return worthwhile

    def _index(self) -> bool:
        """Index new tokens; returns whether all are indexed."""
        text, last_seen = self._text, self._last_seen
        text.extend(self._tokens[len(text) - self._prefix_length :])
        last = min(len(text), self._indexed + _MAX_INDEXED)
        for end in range(max(self._indexed, 1), last):  # the last n-grams have no continuation
            for length in GRAMS:
                if end >= length:
                    last_seen[text[end - length : end].tobytes()] = end
        self._indexed = last
        return last == len(text)

    def _copy_from(self, at: int, most: int) -> Sequence[int]:
        """Tokens from a position on, repeated if the text ends."""
        text, found = self._text, self._text[at : at + most]
        if _SEPARATOR in found:
            return found[: found.index(_SEPARATOR)]
        period = len(text) - at
        while len(found) < most:
            found.append(found[len(found) - period])
        return found


class TreeCursor:
    """Position of a sequence's tokens in the radix tree, advanced as they come."""

    def __init__(self, tree: RadixTree, scope: Hashable) -> None:
        self._tree, self._scope = tree, scope
        self._block: Block | None = None
        self._depth = 0

    def continuation(self, tokens: array[int], most: int) -> Sequence[int]:
        """Up to `most` cached tokens that followed all of `tokens`."""
        block, size = self._walk(tokens), self._tree.block
        rest = tokens[self._depth :]
        if block is None or len(rest) >= size:
            return ()
        found, prefix = array("i"), rest.tobytes()
        while len(found) < most:
            key = _newest(block, prefix)
            if key is None:
                break
            found.frombytes(key[len(prefix) :])
            block, prefix = block.children[key], b""
        return found[:most]

    def _walk(self, tokens: array[int]) -> Block | None:
        """Descend to the last whole block of `tokens`."""
        block, size = self._block, self._tree.block
        if block is None or block.dead:  # it may have been evicted
            block, self._depth = self._tree.root(self._scope), 0
        while block is not None and self._depth + size <= len(tokens):
            key = tokens[self._depth : self._depth + size].tobytes()
            below = block.children.get(key)
            if below is None:
                break
            block, self._depth = below, self._depth + size
        self._block = block
        return block


def _newest(block: Block, prefix: bytes) -> bytes | None:
    """Key of the newest child that begins with `prefix`."""
    for key in islice(reversed(block.children), 16):
        assert isinstance(key, bytes)
        if len(key) > len(prefix) and key.startswith(prefix):
            return key
    return None
