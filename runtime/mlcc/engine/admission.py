"""Validates a request and builds its sequence. Scheduling is `scheduler.py`'s."""

from __future__ import annotations

from functools import partial

from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.batch import Capacity, int32
from mlcc.engine.kv_cache.cache_manager import CacheManager, longest_sequence
from mlcc.engine.lora import AdapterSlots
from mlcc.engine.media_embeddings import MediaEmbeddings
from mlcc.engine.request import Request, too_long
from mlcc.engine.sampling.filter_state import FilterState
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.sampling.logits_processor import LogitsProcessor
from mlcc.engine.sampling.reasoning_grammar import ReasoningGrammar
from mlcc.engine.sampling_group import SamplingGroups
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.text.detokenizer import OutputText, Piece, Window, text_decides
from mlcc.engine.text.logprobs import PromptLogprobs
from mlcc.engine.text.stop_checker import NewContentParser
from mlcc.engine.text.tokenizer import Tokenizer, TokenTexts, breaks_of
from mlcc.errors import InvalidRequestError, UnsupportedError


class Admission:
    """Builds the sequences of one engine. eos_ids, tokenizer, defer_text, new_parser: as in
    `Engine`."""

    def __init__(
        self,
        capacity: Capacity,
        eos_ids: frozenset[int],
        tokenizer: Tokenizer | None,
        defer_text: bool,
        pools: CacheManager,
        sampling_groups: SamplingGroups,
        adapters: AdapterSlots,
        media: MediaEmbeddings,
        new_parser: NewContentParser | None = None,
    ) -> None:
        self._capacity, self._eos_ids, self._tokenizer = capacity, eos_ids, tokenizer
        self._new_parser = new_parser
        self._pieces: dict[Window, Piece] = {}
        """Detokenizer cache, shared by all sequences."""
        self._texts = TokenTexts(tokenizer, capacity.vocab_size) if tokenizer else None
        self._defer_text = defer_text
        self._pools, self._sampling_groups, self._adapters = pools, sampling_groups, adapters
        self._media = media
        groups, context = capacity.groups, capacity.context
        self._longest = longest_sequence(capacity.pools, groups, context)
        """Tokens of one sequence that the pools hold."""
        self._mask_words = AdjustLayout.of(capacity.layout, capacity.vocab_size).mask_words

    def make(
        self, request: Request, grammar: Grammar | None, stream: int, arrival: int
    ) -> TokenSequence:
        """The sequence of request number `arrival`, with `stream` as its random stream. Raises
        InvalidRequestError if the request can never be answered as written."""
        self._validate(request, grammar)
        grammar = self._with_reasoning(request, grammar)
        limit = token_limit(request, self._capacity.context, self._longest)
        sampling = request.sampling
        texts = None if sampling.logprobs is None else self._texts
        writer = None if self._defer_text and not text_decides(sampling) else self._tokenizer
        parser = self._new_parser(request.parser) if self._new_parser and request.parser else None
        output = OutputText(
            writer,
            request.prompt,
            sampling.stop,
            texts,
            request.shown,
            self._pieces,
            sampling.include_stop,
            parser,
        )
        tokens, caches = int32(request.prompt), self._pools.empty()
        ends = frozenset() if sampling.ignore_eos else self._eos_ids
        ends = ends.union(sampling.stop_token_ids)
        logits_processor = None
        if sampling.adjusts or grammar:
            own, words = ends | self._eos_ids if grammar else ends, self._mask_words
            breaks = partial(breaks_of, self._texts, sampling.dry_sequence_breakers)
            logits_processor = LogitsProcessor(sampling, tokens, own, grammar, words, breaks)
        seq = TokenSequence(
            request, arrival, limit, stream, ends, output, tokens, len(tokens), caches
        )
        seq.logits_processor, seq.grammar = logits_processor, grammar
        seq.filter_state = FilterState.of(sampling, stream)
        if sampling.prompt_logprobs and self._texts is not None:
            seq.prompt_logprobs = PromptLogprobs(self._texts, tokens[:])
        if request.media or request.audio:
            seq.media = self._media.join(request)
        if request.sampling_group:  # last: a group waits for its members
            try:
                seq.sampling_group = self._sampling_groups.join(request, seq.prefix_keys)
            except Exception:
                self._media.leave(seq.media)
                raise
        return seq

    def withdraw(self, seq: TokenSequence) -> None:
        """A sequence is not registered after all."""
        if seq.sampling_group is not None:
            self._sampling_groups.leave(seq.request)
        if seq.adapter is not None:
            self._adapters.leave(seq.adapter)
        self._media.leave(seq.media)

    def _validate(self, request: Request, grammar: Grammar | None) -> None:
        if (structure := request.structure) is not None and grammar is None:
            raise UnsupportedError(
                f"'{structure.field}' needs a grammar backend, and there is none; leave it out",
                param=structure.field or None,
                code="unsupported_parameter",
            )
        vocab, context = self._capacity.vocab_size, self._capacity.context
        check_request(request, vocab, context, self._tokenizer is not None)
        if self._media.count or request.media or request.audio:
            self._media.check(request)
        if request.media and request.sampling.prompt_logprobs:
            raise InvalidRequestError(
                "log-probabilities of prompt tokens are not defined for images; leave out the "
                "images, or prompt_logprobs and echo",
                param="prompt_logprobs",
            )
        if request.adapter:
            self._adapters.check(request.adapter)

    def _with_reasoning(self, request: Request, grammar: Grammar | None) -> Grammar | None:
        """The request's grammar, applied after its reasoning."""
        if request.reasoning is None or self._tokenizer is None:
            return grammar
        decode, words = self._tokenizer.decode, self._mask_words
        ends = self._eos_ids.union(request.sampling.stop_token_ids)
        return ReasoningGrammar(request.reasoning, grammar, decode, words, ends)


def token_limit(request: Request, context: int, longest: int) -> int:
    """The most tokens, prompt and output together, that this request may reach. longest: the tokens
    of one sequence that the pools hold.

    Raises InvalidRequestError if the prompt leaves no space in the context, or if prompt and output
    (`max_tokens`, but one token at least) need more pages than the pools have.
    """
    prompt, wanted = len(request.prompt), request.sampling.max_tokens
    if prompt >= context:
        raise too_long(f"{prompt} tokens", context)
    most = context - prompt if wanted is None else max(1, wanted)
    limit = min(prompt + most, context)
    # The last output token is never computed, so it needs no page.
    if limit - 1 <= longest:
        return limit
    if wanted is None and prompt <= longest:
        return longest + 1
    if prompt > longest:
        raise too_long(f"{prompt} tokens", longest + 1, "more pages")
    raise InvalidRequestError(
        f"the prompt has {prompt} tokens and needs room for {limit - 1}"
        f" with its answer, the pages hold {longest}; shorten it, lower max_tokens or load the"
        " model with more pages",
        param="max_tokens",
        code="context_length_exceeded",
    )


def check_request(request: Request, vocab: int, context: int, has_tokenizer: bool) -> None:
    """Check token ids against the vocabulary, and that text features have a tokenizer. Raises
    InvalidRequestError."""
    low, high = min(request.prompt), max(request.prompt)
    if low < 0 or high >= vocab:
        raise InvalidRequestError(
            f"the prompt has token id {low if low < 0 else high}, the vocabulary is 0 .."
            f" {vocab - 1}; encode it with this model's tokenizer",
            param="prompt",
            code="invalid_value",
        )
    if (predicted := len(request.prediction)) > context:
        raise InvalidRequestError(
            f"prediction has {predicted} tokens, and no answer has more than the context of "
            f"{context}; shorten it",
            param="prediction",
            code="context_length_exceeded",
        )
    if any(not 0 <= token < vocab for token in request.prediction):
        raise InvalidRequestError(
            f"prediction has a token id that is not in the vocabulary of 0 .. {vocab - 1}",
            param="prediction",
            code="invalid_value",
        )
    if wrong := [t for t in request.sampling.token_ids if not 0 <= t < vocab]:
        s, token = request.sampling, wrong[0]
        biased = any(token == biased for biased, _ in s.logit_bias)
        other = "logit_bias" if biased else "bad_words"
        field = "stop_token_ids" if token in s.stop_token_ids else other
        raise InvalidRequestError(
            f"{field} has token id {wrong[0]}, the vocabulary is 0 .. {vocab - 1}",
            param=field,
            code="invalid_value",
        )
    s = request.sampling
    dry = s.dry_multiplier and s.dry_sequence_breakers
    for name, wanted in (
        ("stop", s.stop),
        ("logprobs", s.logprobs is not None),
        ("dry_sequence_breakers", dry),
    ):
        if wanted and not has_tokenizer:
            raise InvalidRequestError(
                f"{name} needs text, but this engine has no tokenizer; give it one", param=name
            )
