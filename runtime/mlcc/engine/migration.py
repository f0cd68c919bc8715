"""Migration of a half-computed request from one engine to another: its record, and the checks.

The record holds the request, its output so far, and which pages hold the computed part. The rest of
a sequence (penalty history, grammar state, held-back text) follows from the tokens and is rebuilt
by replaying them. The executor reads and writes the pages (`Executor.read_pages`);
`mlcc.model.kv_transfer` defines the bytes. This module knows no device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace

from mlcc.engine.batch.batch import Cache, PageList
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.kv_cache.cache_manager import CacheManager, held
from mlcc.engine.kv_cache.radix_tree import first_seen
from mlcc.engine.request import MOST_FLOAT, Request
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
    """Hashes that two engines must share to exchange pages."""

    layout: str
    """Cache groups, page size, heads and dtypes, and the ABI of the library."""
    model: str
    """Config, quantization and weights."""
    tokenizer: str
    """Meaning of the token ids."""


@fast_dataclass(frozen=True)
class ExportedRequest:
    """A request and its output so far."""

    request: Request
    """Without a sampling group: the other members stay where they are."""
    stream: int
    """Random stream. Draws go by position, so the next ones are the same on any engine."""
    limit: int
    """Most tokens, prompt and output together."""
    output: tuple[int, ...]
    computed: int
    """Tokens of prompt and output whose pages are exported; 0 = no pages."""
    first_pages: tuple[int, ...]
    """Of each cache group: number of the first page; windows free earlier ones. 0 for states."""
    cached: int | None = None
    """Prompt tokens found in the prefix cache when it first ran."""
    surprise: float | None = None
    """Mirostat's bound, in bits (`filter_state.py`)."""
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
    """The record of a sequence with no step in flight, and its page ids in each group.

    Nothing computed is exported if prompt log-probabilities are due (their rows are not kept) or
    with a LoRA adapter (its name may mean another adapter elsewhere): both are recomputed.
    """
    again = seq.prompt_logprobs is not None or seq.adapter is not None
    computed = 0 if again else seq.computed
    if computed:
        pools.slide(seq.caches, computed)
    pages = [_read(cache) if computed else () for cache in seq.caches]
    firsts = [cache.first if isinstance(cache, PageList) else 0 for cache in seq.caches]
    exported = ExportedRequest(
        request=replace(
            seq.request,
            sampling_group="",
            prompt=tuple(seq.request.prompt),
            prediction=tuple(seq.request.prediction),
        ),
        stream=seq.stream,
        limit=seq.limit,
        output=tuple(seq.tokens[seq.prompt_tokens :]),
        computed=computed,
        first_pages=tuple(firsts if computed else [0] * len(firsts)),
        cached=seq.cached,
        surprise=seq.filter_state.surprise if seq.filter_state else None,
        held=tuple(seq.output.held_logprobs),
    )
    return exported, pages


def _read(cache: Cache) -> Sequence[int]:
    """The ids that the next step reads. A state may be written to another slot."""
    return cache.ids if isinstance(cache, PageList) else (cache.read,)


class Migration:
    """Export and resume of one engine. make: builds a sequence from a request, its grammar and its
    random stream. register: registers the sequence."""

    def __init__(
        self,
        vocab_size: int,
        sequences: Mapping[str, TokenSequence],
        in_flight: Sized,
        pools: CacheManager,
        scheduler: Scheduler,
        make: Callable[[Request, Grammar | None, int], TokenSequence],
        register: Callable[[TokenSequence], None],
    ) -> None:
        self._vocab = vocab_size
        self._sequences, self._in_flight = sequences, in_flight
        self._pools, self._scheduler = pools, scheduler
        self._make, self._register = make, register

    def export(self, request_id: str) -> tuple[ExportedRequest, list[Sequence[int]]]:
        """The record of a request, and the page ids to read in each cache group. The request
        continues here until it is cancelled; its further events repeat what the other engine
        produces.

        Raises InvalidRequestError for an unknown request, RuntimeError while steps are in flight.
        """
        self._require_rest()
        if (seq := self._sequences.get(request_id)) is None:
            raise InvalidRequestError(f"there is no live request {request_id!r} to export")
        return export_sequence(seq, self._pools)

    def resume(
        self, exported: ExportedRequest, write: PageWriter, grammar: Grammar | None = None
    ) -> bool:
        """Continue a request of another engine, with the grammar of its `structure`. write: is
        called for its pages before the request is registered.

        Returns whether the pages fit. If not, the request waits and is recomputed as after
        preemption. Raises InvalidRequestError if the request cannot be continued, RuntimeError
        while steps are in flight, and what `write` raises; nothing has changed then.
        """
        self._require_rest()
        seq = self._make(exported.request, grammar, exported.stream)
        check_export(exported, seq.limit, self._vocab, self._pools)
        try:
            replay(seq, exported)
        except ValueError as error:
            raise bad_export(str(error)) from error
        fits = exported.computed > 0 and self._scheduler.has_slot
        counts = exported.counts(self._pools.groups)
        if not fits or not self._pools.adopt(seq.caches, exported.first_pages, counts):
            self._register(seq)
            self._scheduler.add(seq)
            return False
        try:
            for g, cache in enumerate(seq.caches):
                write(g, held(cache))
            self._register(seq)
        except BaseException:
            self._pools.release(seq.caches)
            raise
        self._scheduler.add_running(seq, exported.computed)
        return True

    def _require_rest(self) -> None:
        if len(self._in_flight):
            raise RuntimeError("requests move between steps: commit those that are planned first")


def check_export(
    exported: ExportedRequest, max_tokens: int, vocab: int, pools: CacheManager
) -> None:
    """Check that this engine, with at most `max_tokens` per sequence, can continue the request.
    Raises InvalidRequestError. Checks everything that could corrupt the engine's state: the sender
    is not trusted."""
    tokens, groups = len(exported.request.prompt) + len(exported.output), pools.groups
    if exported.limit > max_tokens:
        raise InvalidRequestError(
            f"the exported request may reach {exported.limit} tokens, here there is room for "
            f"{max_tokens}; load the model with --context {exported.limit} or more --kv-pages",
            code="context_length_exceeded",
        )
    floats = [0.0 if exported.surprise is None else exported.surprise]
    floats += [p for held in exported.held for p in (held.logprob, *(p for _, p in held.top))]
    finite = all(abs(value) <= MOST_FLOAT for value in floats)
    cached = exported.cached is None or 0 <= exported.cached <= len(exported.request.prompt)
    sound = (
        tokens < exported.limit
        and 0 <= exported.stream < 1 << 64
        and all(0 <= token < vocab for token in exported.output)
        and 0 <= exported.computed < tokens
        and len(exported.first_pages) == len(groups)
        and len(exported.held) <= len(exported.output)
        and finite
        and cached
    )
    for group, first in zip(groups, exported.first_pages, strict=False):
        slid = first_seen(exported.computed, group) // group.page_size if group.window else 0
        sound = sound and 0 <= first <= (slid if exported.computed else 0)
    if not sound or exported.request.sampling_group:
        raise bad_export("its numbers do not fit each other")


def replay(seq: TokenSequence, exported: ExportedRequest) -> None:
    """Replay the output on a new sequence. Raises InvalidRequestError if that output is
    impossible."""
    for token in exported.output:
        seq.tokens.append(token)
        if seq.logits_processor is not None:
            seq.logits_processor.push(token)
        if seq.grammar is not None:
            seq.grammar.accept(token)
        seq.output.take_logprobs(seq.output.push(token), token)
    ended = seq.output.matched is not None or any(
        token in seq.end_tokens for token in exported.output
    )
    if ended or (seq.grammar is not None and (seq.grammar.failed or seq.grammar.ended)):
        raise bad_export("its answer is at its end, or breaks its grammar")
    if seq.filter_state is not None and exported.surprise is not None:
        seq.filter_state.surprise = exported.surprise
    seq.output.restore_logprobs(exported.held)
    if exported.output:
        seq.prompt_logprobs = None  # they were sent before the first token
    seq.limit, seq.cached = exported.limit, exported.cached


def bad_export(why: str) -> InvalidRequestError:
    """The error for bytes that are no exported request."""
    return InvalidRequestError(
        f"the exported request is damaged: {why}; export it again", code="bad_export"
    )
