"""State of one unfinished request. Plain data: the scheduler and the engine change it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from mlcc.engine.batch.batch import Cache
from mlcc.engine.lora import NO_ADAPTER, Adapter, AdapterUse
from mlcc.engine.media_embeddings import MediaEmbeddings, MediaSpan
from mlcc.engine.request import Request
from mlcc.engine.sampling.filter_state import FilterState
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.sampling.logits_processor import LogitsProcessor
from mlcc.engine.sampling_group import SamplingGroup
from mlcc.engine.spec_decode.speculator import DraftState
from mlcc.engine.text.detokenizer import OutputText
from mlcc.engine.text.logprobs import PromptLogprobs


@dataclass(eq=False, slots=True)
class TokenSequence:
    """A prompt and the output so far.

    Tokens are in three parts: computed (their keys and values are in the pages, or will be once the
    steps in flight are done), known but not computed, and pending (sampled by a step in flight, not
    known here). A decoding sequence always has exactly one token that is not computed.
    """

    request: Request
    arrival: int
    """Number of the request, in order of arrival."""
    limit: int
    """Most tokens, prompt and output together."""
    stream: int
    """Random stream, derived from the seed."""
    end_tokens: frozenset[int]
    """Tokens that end the output."""
    output: OutputText
    tokens: array[int]
    """Known tokens: prompt, then output."""
    prompt_tokens: int
    caches: list[Cache]
    """Pages or state slot in each cache group, just enough for the computed tokens."""
    media: tuple[MediaSpan, ...] = ()
    """Tiles of images and clips of sound in the prompt, in order."""
    rank: tuple[bool, int, int] = (False, 0, 0)
    """Priority among running sequences and in the tenant's queue; the lowest is first."""
    logits_processor: LogitsProcessor | None = None
    """None = its logits are sampled as they are."""
    grammar: Grammar | None = None
    """None = any token may follow."""
    filter_state: FilterState | None = None
    """None = only temperature, top-k, top-p and min-p."""
    prompt_logprobs: PromptLogprobs | None = None
    """None = not requested, or already sent."""
    adapter: Adapter | None = None
    """None = the base model."""
    sampling_group: SamplingGroup | None = None
    """Requests for further outputs to the same prompt."""
    draft_state: DraftState | None = None
    """None = no speculation."""
    draft: tuple[int, ...] = ()
    """Draft tokens in the step in flight, which are not verified yet. The sequence has no other
    step in flight then."""
    computed_before_draft: int = 0
    """Computed tokens before that step."""
    drafted: int = 0
    """Draft tokens verified so far, and how many were accepted."""
    accepted: int = 0
    computed: int = 0
    pending: int = 0
    sampled_step: int = -1
    """The last planned step that samples for this sequence, and its row there."""
    sampled_row: int = -1
    finished: bool = False
    uncached: int = -1
    """Of a waiting sequence: tokens missing in the prefix cache at the last lookup; -1 = no lookup
    yet."""
    arrived: float = 0.0
    """When it arrived, by `AnswerTimes.clock`."""
    started: float | None = None
    """When it was first planned into a step; None = not yet."""
    cached: int | None = None
    """Prompt tokens found in the prefix cache when it first ran; None = not run, or none found."""

    @property
    def prefix_keys(self) -> array[int]:
        """The known tokens as the prefix cache has them."""
        return MediaEmbeddings.keys(self.tokens, self.media) if self.media else self.tokens

    @property
    def planned(self) -> int:
        """Tokens once all steps in flight are done."""
        return len(self.tokens) + self.pending

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next one can be sampled: 1 when decoding."""
        return len(self.tokens) + self.pending - self.computed

    @property
    def scope(self) -> tuple[str, ...]:
        """Sequences of one scope share cached prefixes."""
        scope = self.request.scope
        return scope if self.adapter is None else (*scope, f"adapter {self.adapter.serial}")

    @property
    def adapter_use(self) -> AdapterUse:
        return NO_ADAPTER if self.adapter is None else self.adapter.use

    @property
    def needs_all_tokens(self) -> bool:
        """Whether all tokens must be known before the next step can be planned."""
        return self.filter_state is not None and self.filter_state.needs_all_tokens

    @property
    def is_plain(self) -> bool:
        """Whether the next token depends only on the last token and the pages."""
        return (
            self.logits_processor is None
            and self.filter_state is None
            and self.prompt_logprobs is None
        )

    @property
    def may_start(self) -> bool:
        """Whether it need not wait for a sequence of its sampling group that computes the
        prompt."""
        return self.sampling_group is None or self.sampling_group.may_start(self.request.id)

    def restart(self, caches: list[Cache]) -> None:
        """Compute all known tokens again, into `caches`, which are empty. Steps in flight are
        dropped."""
        self.caches, self.computed, self.pending, self.draft = caches, 0, 0, ()
        self.sampled_step = self.sampled_row = self.uncached = -1
        if self.sampling_group is not None:
            self.sampling_group.computed = True  # none waits for another to compute the prompt

    def runnable(self, step: int) -> bool:
        """Whether `step` may continue it: it is below its limit and its next token can be named. If
        logits depend on the output, at most one token may be unknown; with a grammar none; and
        draft tokens must all be verified."""
        known = len(self.tokens)
        if self.draft:
            return False
        if self.logits_processor is not None and self.pending > self.logits_processor.max_in_flight:
            return False
        if self.pending and self.needs_all_tokens:
            return False
        if known + self.pending >= self.limit:
            return False
        return self.computed < known or self.sampled_step == step - 1
