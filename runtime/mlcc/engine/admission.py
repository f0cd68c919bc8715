"""What a request becomes when it is let in: a sequence with all that its wishes need, or a refusal.

Not when it runs (`scheduler.py`), nor what is guessed of it (`guesses.py`).
"""

from __future__ import annotations

from functools import partial

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.batch import Capacity, int32
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.lora import AdapterSlots
from mlcc.engine.request import Request
from mlcc.engine.sampling.filter_state import FilterState
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.sampling.logits_processor import LogitsProcessor
from mlcc.engine.sampling.reasoning_grammar import ReasoningGrammar
from mlcc.engine.sampling_group import SamplingGroups
from mlcc.engine.scheduler.limits import check_request, token_limit
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.text.deferred_text import text_decides
from mlcc.engine.text.detokenizer import Piece, Tokenizer, Window
from mlcc.engine.text.logprobs import PromptLogprobs
from mlcc.engine.text.output_text import OutputText
from mlcc.engine.text.token_texts import TokenTexts, breaks_of
from mlcc.errors import UnsupportedError


class Admission:
    """Makes those of one engine. eos_ids, tokenizer, text_later: as `Engine` has them."""

    def __init__(
        self,
        capacity: Capacity,
        eos_ids: frozenset[int],
        tokenizer: Tokenizer | None,
        defer_text: bool,
        books: tuple[CacheManager, SamplingGroups, AdapterSlots],
    ) -> None:
        self._capacity, self._eos_ids, self._tokenizer = capacity, eos_ids, tokenizer
        self._pieces: dict[Window, Piece] = {}
        """What tokens added to answers so far."""
        self._texts = TokenTexts(tokenizer, capacity.vocab_size) if tokenizer else None
        self._defer_text = defer_text
        self._pools, self._sampling_groups, self._adapters = books
        self._mask_words = AdjustLayout.of(capacity.layout, capacity.vocab_size).mask_words

    def make(
        self, request: Request, grammar: Grammar | None, stream: int, arrival: int
    ) -> TokenSequence:
        """Of request number `arrival`, whose draws come from `stream`. Raises InvalidRequestError
        if it can never be answered as written."""
        self._validate(request, grammar)
        grammar = self._thinking(request, grammar)
        limit = token_limit(request, self._capacity)
        sampling = request.sampling
        texts = None if sampling.logprobs is None else self._texts
        writer = None if self._defer_text and not text_decides(sampling) else self._tokenizer
        answer = OutputText(
            writer, request.prompt, sampling.stop, texts, request.shown, self._pieces
        )
        tokens, caches = int32(request.prompt), self._pools.empty()
        ends = frozenset() if sampling.ignore_eos else self._eos_ids
        ends = ends.union(sampling.stop_token_ids)
        logits_processor = None
        if sampling.adjusts or grammar:
            own, words = ends | self._eos_ids if grammar else ends, self._mask_words
            breaks = partial(breaks_of, self._texts, sampling.dry_sequence_breakers)
            logits_processor = LogitsProcessor(sampling, tokens, own, grammar, words, breaks)
        filter_state = FilterState.of(sampling, stream)
        seq = TokenSequence(request, arrival, limit, stream, ends, answer, tokens, caches)
        seq.logits_processor, seq.grammar, seq.filter_state = (
            logits_processor,
            grammar,
            filter_state,
        )
        seq.sampling_group = self._sampling_groups.join(request, tokens)
        if sampling.prompt_logprobs and self._texts is not None:
            seq.prompt_logprobs = PromptLogprobs(self._texts, tokens[:])
        return seq

    def _validate(self, request: Request, grammar: Grammar | None) -> None:
        if (structure := request.structure) is not None and grammar is None:
            raise UnsupportedError(
                f"'{structure.field}' needs what reads grammars, and there is none here; leave it "
                "out",
                param=structure.field or None,
                code="unsupported_parameter",
            )
        vocab, context = self._capacity.vocab_size, self._capacity.context
        check_request(request, vocab, context, self._tokenizer is not None)
        self._adapters.check(request.adapter)

    def _thinking(self, request: Request, grammar: Grammar | None) -> Grammar | None:
        """Its grammar behind its reasoning."""
        if request.reasoning is None or self._tokenizer is None:
            return grammar
        decode, words = self._tokenizer.decode, self._mask_words
        ends = self._eos_ids.union(request.sampling.stop_token_ids)
        return ReasoningGrammar(request.reasoning, grammar, decode, words, ends)
