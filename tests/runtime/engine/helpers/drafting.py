"""Proposers for tests: they know the answers, and draft a chosen share of wrong tokens."""

from __future__ import annotations

import random
from array import array
from collections.abc import Collection, Hashable, Sequence

from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine import Capacity, Request
from mlcc.engine.admission import token_limit
from mlcc.engine.batch.batch import Result
from mlcc.engine.kv_cache.cache_manager import longest_sequence
from mlcc.engine.kv_cache.radix_tree import RadixTree
from mlcc.engine.spec_decode.speculator import AcceptanceRates, Proposal, Speculator
from tests.runtime.engine.helpers import naive
from tests.runtime.engine.helpers.tokenizers import ByteTokenizer


class Knowing:
    """Drafts the naive engine's tokens, except a share of wrong ones."""

    def __init__(
        self, tokens: array[int], answer: Sequence[int], wrong: float, draw: random.Random
    ) -> None:
        self.free, self.origin = True, "known"
        self._tokens, self._answer, self._wrong, self._draw = tokens, answer, wrong, draw

    def num_to_draft(self, worthwhile: int) -> int:
        return worthwhile

    def propose(self, most: int) -> Proposal | None:
        ahead = self._answer[len(self._tokens) :][:most]
        return Proposal([*map(self._perhaps_wrong, ahead)], self.origin)

    def _perhaps_wrong(self, token: int) -> int:
        wrong = self._draw.random() < self._wrong
        vocab = ByteTokenizer.vocab_size
        return (token + self._draw.randrange(1, vocab)) % vocab if wrong else token


class Eager(Speculator):
    """Verifies all draft tokens, whatever the measured cost, or at random none."""

    def __init__(self, *args: object, draw: random.Random | None = None) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._draw = draw

    def allocate(self, acceptance: AcceptanceRates, most: int) -> int:
        return self.worthwhile(acceptance, most)

    def worthwhile(self, acceptance: AcceptanceRates, most: int, more: float = 0.0) -> int:
        return self._draw.randint(0, most) if self._draw else most


class Drafting(ToyExecutor):
    """A draft model: the toy, which is sometimes wrong."""

    def __init__(self, capacity: Capacity, wrong: float, draw: random.Random) -> None:
        super().__init__(capacity)
        self._wrong, self._draw = wrong, draw
        self.drafted = 0

    def collect(self, ticket: int) -> Result:
        found = super().collect(ticket)
        self.drafted += len(found.tokens)
        vocab, wrong = self.capacity.vocab_size, self._wrong
        tokens = [
            self._draw.randrange(vocab) if self._draw.random() < wrong else token
            for token in found.tokens
        ]
        return Result(tokens, found.logprobs)


def knowing(
    capacity: Capacity, eos: Collection[int], wrong: float, longest: int, seed: int
) -> Eager:
    """For an engine of the naive one's seed 7."""
    draw, count = random.Random(seed), 0

    def opened(request: Request, tokens: array[int], tree: RadixTree, scope: Hashable) -> Knowing:
        nonlocal count
        most = longest_sequence(capacity.pools, capacity.groups, capacity.context)
        limit = token_limit(request, capacity.context, most)
        want = naive.answer(request, count, capacity, eos, ByteTokenizer(), base=7, limit=limit)
        count += 1
        return Knowing(tokens, [*request.prompt, *want.tokens, *eos], wrong, draw)

    return Eager(opened, longest, draw=random.Random(seed + 1))
