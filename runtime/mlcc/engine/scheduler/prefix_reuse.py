"""What sequences find of their prompts, computed by others, and what is kept of theirs.

The cache itself, a tree over pages, is `prefix.py`; here is who shares with whom, and when what was
computed is told to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.kv_cache.radix_tree import Hit
from mlcc.engine.scheduler.budgets import SHORT
from mlcc.engine.sequence import TokenSequence


class PrefixReuse:
    """Of one engine. `prefix_cache` False = only a family shares what was computed of its prompt.

    cached_tokens: tokens of prompts that were not computed, as they were there.
    """

    def __init__(self, pools: CacheManager, prefix_cache: bool) -> None:
        self.cached_tokens = 0
        self._pools = pools
        self._prefix_cache = prefix_cache

    def find(self, seq: TokenSequence) -> Hit | None:
        """What of its prompt is there."""
        scope = self.scope(seq)
        whole = scope is None or seq.prompt_logprobs is not None
        return None if whole else self._pools.find(scope, seq.tokens)

    def uncached(self, seq: TokenSequence) -> int:
        """Tokens that a waiting sequence is to compute: the rest was there when this was first
        asked, if it is long."""
        if seq.uncached < 0:
            hit = self.find(seq) if seq.remaining > SHORT else None
            seq.uncached = seq.remaining - (0 if hit is None else hit.tokens)
        return seq.uncached

    def take(self, seq: TokenSequence, hit: Hit | None) -> None:
        """It starts with what is there."""
        if hit is not None:
            self._pools.take(seq.caches, hit)
            seq.computed = hit.tokens
            if seq.cached is None:  # what was preempted has been counted
                seq.cached = min(seq.computed, seq.prompt_tokens)
                self.cached_tokens += seq.cached

    def planned(self, chunks: Iterable[tuple[TokenSequence, int]]) -> None:
        """The prompts of a step that is planned may be shared from the next step on: to the last
        token with the rest of a family."""
        for seq, count in chunks:
            group = seq.sampling_group
            if group is not None and not group.computed and seq.computed >= seq.prompt_tokens:
                group.computed = True
                self.keep(seq, ended=len(group.members) > 1)
            elif not seq.draft and (count > 1 or seq.computed <= seq.prompt_tokens):
                block = self._pools.tree.block
                if (seq.computed - count) // block < seq.computed // block:
                    self.keep(seq, ended=False)

    def keep(self, seq: TokenSequence, ended: bool) -> None:
        """What is computed of it is found from now on."""
        if (scope := self.scope(seq)) is not None:
            self._pools.remember(scope, seq.tokens[: seq.computed], seq.caches, ended)

    def scope(self, seq: TokenSequence) -> Hashable | None:
        """Who finds what was computed for it; None = nobody."""
        if self._prefix_cache:
            return seq.scope
        group = seq.request.sampling_group
        return (*seq.scope, group) if group else None
