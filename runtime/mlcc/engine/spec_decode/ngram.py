"""Prompt lookup: an answer goes on as its own text, or an earlier answer, went on before.

Guesses are the tokens that followed the last few where these came before: in the prompt, in the
answer so far, in the text that a request says its answer will be like (Saxena, 2023, "Prompt Lookup
Decoding"; OpenAI's "predicted outputs"). Where the prefix cache has an answer to the very same
text, that one comes first: a question that is asked again. It computes nothing and knows no model.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from itertools import islice

from mlcc.engine.kv_cache.radix_tree import Block, RadixTree
from mlcc.engine.request import Request
from mlcc.engine.spec_decode.speculator import Proposal

GRAMS = (5, 3, 2)
"""Last tokens that must have come before: the longest that have are followed."""
_AT_ONCE = 8192
"""Tokens that one step indexes: a long prompt takes several, and holds nobody up."""
_BREAK = -1
"""Between the text that is foretold and the prompt: no token."""


class NgramProposer:
    """For one sequence. tokens: those that are known, to which others append."""

    free, origin = True, ""

    def __init__(
        self, tokens: array[int], prediction: Sequence[int] = (), path: TreeCursor | None = None
    ) -> None:
        self._tokens, self._path = tokens, path
        self._text = array("i", [*prediction, _BREAK] if prediction else ())
        self._before = len(self._text)
        """Tokens of it that are none of the sequence."""
        self._ends: dict[bytes, int] = {}
        """Behind which token some tokens came last, by their bytes."""
        self._indexed = 0

    @classmethod
    def of(
        cls, request: Request, tokens: array[int], tree: RadixTree, scope: Hashable
    ) -> NgramProposer:
        """What `guesses.Speculator` opens for a request."""
        return cls(tokens, request.prediction, TreeCursor(tree, scope))

    def propose(self, most: int) -> Proposal | None:
        """The tokens that came before behind the last ones."""
        if self._path is not None and (tokens := self._path.continuation(self._tokens, most)):
            return Proposal(tokens, "tree")
        if not self._index():
            return None
        text = self._text
        for length in GRAMS:
            if len(text) > length:
                at = self._ends.get(text[-length:].tobytes())
                if at is not None:
                    return Proposal(self._from(at, most), f"gram{length}")
        return None

    def count(self, worth: int) -> int:
        """They cost nothing."""
        return worth

    def _index(self) -> bool:
        """Take what is new; whether all of it is there."""
        text, ends = self._text, self._ends
        text.extend(self._tokens[len(text) - self._before :])
        last = min(len(text), self._indexed + _AT_ONCE)
        for end in range(max(self._indexed, 1), last):  # the last are followed by none
            for length in GRAMS:
                if end >= length:
                    ends[text[end - length : end].tobytes()] = end
        self._indexed = last
        return last == len(text)

    def _from(self, at: int, most: int) -> Sequence[int]:
        """Tokens from a place on; behind the end of the text they begin there again."""
        text, found = self._text, self._text[at : at + most]
        if _BREAK in found:
            return found[: found.index(_BREAK)]
        period = len(text) - at
        while len(found) < most:
            found.append(found[len(found) - period])
        return found


class TreeCursor:
    """Where a sequence's tokens lie in the tree of what was computed; it walks on as they come."""

    def __init__(self, tree: RadixTree, scope: Hashable) -> None:
        self._tree, self._scope = tree, scope
        self._block: Block | None = None
        self._walked = 0

    def continuation(self, tokens: array[int], most: int) -> Sequence[int]:
        """What once followed all of them, `most` at most."""
        block, size = self._walk(tokens), self._tree.block
        rest = tokens[self._walked :]
        if block is None or len(rest) >= size:
            return ()
        found, begun = array("i"), rest.tobytes()
        while len(found) < most:
            key = _newest(block, begun)
            if key is None:
                break
            found.frombytes(key[len(begun) :])
            block, begun = block.children[key], b""
        return found[:most]

    def _walk(self, tokens: array[int]) -> Block | None:
        """Down to the last whole block of theirs."""
        block, size = self._block, self._tree.block
        if block is None or block.dead:  # perhaps it was taken out of the tree
            block, self._walked = self._tree.root(self._scope), 0
        while block is not None and self._walked + size <= len(tokens):
            key = tokens[self._walked : self._walked + size].tobytes()
            below = block.children.get(key)
            if below is None:
                break
            block, self._walked = below, self._walked + size
        self._block = block
        return block


def _newest(block: Block, begun: bytes) -> bytes | None:
    """The key of the latest child that goes on like that."""
    for key in islice(reversed(block.children), 16):
        assert isinstance(key, bytes)
        if len(key) > len(begun) and key.startswith(begun):
            return key
    return None
