"""A half-computed request on its way from one engine to another: what is told of it, and checked.

The record has the request, what was answered so far, and which pages hold what is computed of both.
Everything else of a sequence (penalties' history, a grammar's state, text held back) follows from
the tokens, and is made again by saying them. The pages' contents are the executor's
(`Executor.read_pages`), the bytes of both `mlcc.model.kv_transfer`'s. It knows no device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace

from mlcc.engine.batch.batch import Cache, Capacity, PageList
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.cache_manager import CacheManager, held
from mlcc.engine.kv_cache.radix_tree import first_seen
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.scheduler.scheduler import Scheduler
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.text.logprobs import HeldLogprob
from mlcc.errors import InvalidRequestError
from mlcc.util.fast_dataclass import fast_dataclass

PageWriter = Callable[[int, Sequence[int]], None]
"""(cache group, page ids): fills pages of this engine with those that were read, in order."""


@fast_dataclass(frozen=True)
class Identity:
    """Whose pages they are, as hashes: contents of another identity mean nothing here."""

    layout: str
    """Cache groups, page size, heads and dtypes, and the ABI of the library."""
    model: str
    """Config, quantization and weights."""
    tokenizer: str
    """Which tokens the ids are."""


@fast_dataclass(frozen=True)
class ExportedRequest:
    """A request and its answer so far."""

    request: Request
    """Of no family: its siblings stay where they are."""
    stream: int
    """Where its draws come from: they go by position, so the next ones are the same anywhere."""
    limit: int
    """Most tokens, prompt and answer together."""
    answer: tuple[int, ...]
    computed: int
    """Tokens, of prompt and answer, that are in the pages; 0 = there are none."""
    first_pages: tuple[int, ...]
    """Of each cache group: which page of the sequence is the first; windows let go of earlier ones.
    States are 0."""
    cached: int | None = None
    """Tokens of the prompt that were there when it first ran."""
    surprise: float | None = None
    """Mirostat's bound, in bits (`choices.py`)."""
    held: tuple[HeldLogprob, ...] = ()
    """Log-probabilities of tokens whose text is not out yet."""

    def counts(self, groups: Sequence[CacheGroup]) -> list[int]:
        """Pages, or states, of each group."""
        if not self.computed:
            return [0] * len(groups)
        return [
            -(-self.computed // group.page_size) - first if group.has_pages else 1
            for group, first in zip(groups, self.first_pages, strict=True)
        ]


def export_sequence(
    seq: TokenSequence, pools: CacheManager
) -> tuple[ExportedRequest, list[Sequence[int]]]:
    """A sequence of which no step is in flight, and the ids of its pages, group by group.

    What a prompt's log-probabilities are told of is computed again: rows of it are not kept. So is
    what an adapter had a part in: elsewhere its name may stand for another.
    """
    again = seq.prompt_logprobs is not None or seq.adapter is not None
    computed = 0 if again else seq.computed
    if computed:
        pools.slide(seq.caches, computed)
    pages = [_read(cache) if computed else () for cache in seq.caches]
    firsts = [cache.first if isinstance(cache, PageList) else 0 for cache in seq.caches]
    moved = ExportedRequest(
        request=replace(
            seq.request,
            sampling_group="",
            prompt=tuple(seq.request.prompt),
            prediction=tuple(seq.request.prediction),
        ),
        stream=seq.stream,
        limit=seq.limit,
        answer=tuple(seq.tokens[seq.prompt_tokens :]),
        computed=computed,
        first_pages=tuple(firsts if computed else [0] * len(firsts)),
        cached=seq.cached,
        surprise=seq.filter_state.surprise if seq.filter_state else None,
        held=tuple(seq.answer.held_logprobs),
    )
    return moved, pages


def _read(cache: Cache) -> Sequence[int]:
    """What the next step reads: of a state not where it is written, which may be another slot."""
    return cache.ids if isinstance(cache, PageList) else (cache.read,)


class Migration:
    """The two ends of a move, of one engine, whose books these are: live requests by id, steps in
    flight, pools, scheduler. make: a sequence of a request, and whose draws come from a stream;
    enter: it is live from now on."""

    def __init__(
        self,
        capacity: Capacity,
        books: tuple[Mapping[str, TokenSequence], Sized, CacheManager, Scheduler],
        make: Callable[[Request, Grammar | None, int], TokenSequence],
        enter: Callable[[TokenSequence], None],
    ) -> None:
        self._vocab = capacity.vocab_size
        self._live, self._in_flight, self._pools, self._scheduler = books
        self._make, self._enter = make, enter

    def export(self, request_id: str) -> tuple[ExportedRequest, list[Sequence[int]]]:
        """A request as another engine can go on with it, and the pages to read for that, ids for
        each cache group. It goes on here too until it is cancelled; what that tells is not new.

        Raises InvalidRequestError unless it is live, RuntimeError while steps are in flight.
        """
        self._require_rest()
        if (seq := self._live.get(request_id)) is None:
            raise InvalidRequestError(f"there is no live request {request_id!r} to export")
        return export_sequence(seq, self._pools)

    def resume(
        self, moved: ExportedRequest, write: PageWriter, grammar: Grammar | None = None
    ) -> bool:
        """Go on with a request of another engine, with the grammar of its `structure`. write: is
        called for its pages before the request is one of this engine's.

        Returns whether there was room for the pages: if not, the request waits, and is computed
        again like one that had to give way. Raises InvalidRequestError if it cannot be gone on
        with, RuntimeError while steps are in flight, and what `write` raises; nothing has changed
        then.
        """
        self._require_rest()
        seq = self._make(moved.request, grammar, moved.stream)
        check_export(moved, seq.limit, self._vocab, self._pools)
        try:
            replay(seq, moved)
        except ValueError as error:
            raise bad_export(str(error)) from error
        fits = moved.computed > 0 and self._scheduler.has_slot
        counts = moved.counts(self._pools.groups)
        if not fits or not self._pools.adopt(seq.caches, moved.first_pages, counts):
            self._enter(seq)
            self._scheduler.add(seq)
            return False
        try:
            for g, cache in enumerate(seq.caches):
                write(g, held(cache))
        except BaseException:
            self._pools.release(seq.caches)
            raise
        self._enter(seq)
        self._scheduler.add_running(seq, moved.computed)
        return True

    def _require_rest(self) -> None:
        if len(self._in_flight):
            raise RuntimeError("requests move between steps: commit those that are planned first")


def check_export(moved: ExportedRequest, room: int, vocab: int, pools: CacheManager) -> None:
    """Whether an engine can go on with it, whose sequences may have `room` tokens at most. Raises
    InvalidRequestError; what it passes breaks no book of the engine, whoever wrote it."""
    tokens, groups = len(moved.request.prompt) + len(moved.answer), pools.groups
    if moved.limit > room:
        raise InvalidRequestError(
            f"the request that was exported may reach {moved.limit} tokens, here there is room for "
            f"{room}; load the model with --context {moved.limit} or more --kv-pages",
            code="context_length_exceeded",
        )
    finite = moved.surprise is None or math.isfinite(moved.surprise)
    cached = moved.cached is None or 0 <= moved.cached <= len(moved.request.prompt)
    sound = (
        tokens < moved.limit
        and 0 <= moved.stream < 1 << 64
        and all(0 <= token < vocab for token in moved.answer)
        and 0 <= moved.computed < tokens
        and len(moved.first_pages) == len(groups)
        and len(moved.held) <= len(moved.answer)
        and finite
        and cached
    )
    for group, first in zip(groups, moved.first_pages, strict=False):
        slid = first_seen(moved.computed, group) // group.page_size if group.window else 0
        sound = sound and 0 <= first <= (slid if moved.computed else 0)
    if not sound or moved.request.sampling_group:
        raise bad_export("its numbers do not fit each other")


def replay(seq: TokenSequence, moved: ExportedRequest) -> None:
    """Say an answer again to a sequence that is new. Raises InvalidRequestError if it cannot have
    been said so."""
    for token in moved.answer:
        seq.tokens.append(token)
        if seq.logits_processor is not None:
            seq.logits_processor.push(token)
        if seq.grammar is not None:
            seq.grammar.accept(token)
        seq.answer.told(seq.answer.push(token), token)
    ended = seq.answer.matched is not None or any(token in seq.ends for token in moved.answer)
    if ended or (seq.grammar is not None and (seq.grammar.failed or seq.grammar.ended)):
        raise bad_export("its answer is at its end, or breaks its grammar")
    if seq.filter_state is not None and moved.surprise is not None:
        seq.filter_state.surprise = moved.surprise
    seq.answer.restore_logprobs(moved.held)
    if moved.answer:
        seq.prompt_logprobs = None  # they were told before the first token
    seq.limit, seq.cached = moved.limit, moved.cached


def bad_export(why: str) -> InvalidRequestError:
    """Of bytes that are no export of a request."""
    return InvalidRequestError(
        f"the exported request is damaged: {why}; export it again", code="bad_export"
    )
