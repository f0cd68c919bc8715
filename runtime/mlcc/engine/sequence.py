"""The engine's state of one live request. Plain data: the scheduler and the engine move it on."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from mlcc.engine.batch.batch import Cache
from mlcc.engine.lora import NO_ADAPTER, Adapter, AdapterUse
from mlcc.engine.request import Request
from mlcc.engine.sampling.filter_state import FilterState
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.sampling.logits_processor import LogitsProcessor
from mlcc.engine.sampling_group import SamplingGroup
from mlcc.engine.spec_decode.speculator import DraftState
from mlcc.engine.text.logprobs import PromptLogprobs
from mlcc.engine.text.output_text import OutputText


@dataclass(eq=False, slots=True)
class TokenSequence:
    """A prompt and the answer so far.

    Tokens are in three parts: computed (keys and values are in the pages, or will be when the steps
    in flight are done), known but not computed, and pending (sampled by a step in flight, not known
    here). A decoding sequence always has exactly one token that is not computed.
    """

    request: Request
    arrival: int
    """Number of the request, in the order in which they came."""
    limit: int
    """Most tokens, prompt and answer together."""
    stream: int
    """Of its seed: where its draws come from."""
    ends: frozenset[int]
    """Tokens that end the answer."""
    answer: OutputText
    tokens: array[int]
    """Known tokens: the prompt, then the answer."""
    caches: list[Cache]
    """What it holds in each cache group, just enough for the computed tokens."""
    rank: tuple[int, int] = (0, 0)
    """Its place among those that run, and in its tenant's line: the least is the first."""
    logits_processor: LogitsProcessor | None = None
    """None = its logits are sampled as they are."""
    grammar: Grammar | None = None
    """None = any token may follow."""
    filter_state: FilterState | None = None
    """None = of filters it wishes for the usual ones only."""
    prompt_logprobs: PromptLogprobs | None = None
    """None = those of its prompt are not wanted, or were told."""
    adapter: Adapter | None = None
    """None = the model by itself."""
    sampling_group: SamplingGroup | None = None
    """Others that want an answer to its prompt."""
    draft_state: DraftState | None = None
    """None = nothing is guessed of its answer."""
    draft: tuple[int, ...] = ()
    """Guesses in the step in flight, which are computed and not known to be right; there is no
    other step of it then."""
    before: int = 0
    """Tokens that were computed before that step."""
    drafted: int = 0
    """Guesses that were tried, and those that were right."""
    accepted: int = 0
    computed: int = 0
    pending: int = 0
    sampled_step: int = -1
    """The last planned step that samples for this sequence, and its row there."""
    sampled_row: int = -1
    finished: bool = False
    uncached: int = -1
    """Of a waiting one: tokens that are not there, when somebody last looked; -1 = nobody did."""
    cached: int | None = None
    """Tokens of the prompt that were there when it first ran; None = none were."""

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
        """Sequences of one scope share what was computed."""
        scope = self.request.scope
        return scope if self.adapter is None else (*scope, f"adapter {self.adapter.serial}")

    @property
    def adapter_use(self) -> AdapterUse:
        return NO_ADAPTER if self.adapter is None else self.adapter.use

    @property
    def needs_all_tokens(self) -> bool:
        """Whether all its tokens must be known before the next can be planned."""
        return self.filter_state is not None and self.filter_state.needs_all_tokens

    @property
    def is_plain(self) -> bool:
        """Whether its next token hangs on the last one and what is in the pages, and on no more."""
        return (
            self.logits_processor is None
            and self.filter_state is None
            and self.prompt_logprobs is None
        )

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt)

    @property
    def may_start(self) -> bool:
        """Whether it need not wait for another that computes its prompt."""
        return self.sampling_group is None or self.sampling_group.may_start(self.request.id)

    def runnable(self, step: int) -> bool:
        """Whether `step` may continue it: not at its limit, and the next token can be named; where
        logits depend on what was said, only one token of it may be unknown, of a grammar none, and
        where guesses are computed, all that come of them."""
        known = len(self.tokens)
        if self.draft:
            return False
        if self.logits_processor is not None and self.pending > self.logits_processor.most_unknown:
            return False
        if self.pending and self.needs_all_tokens:
            return False
        if known + self.pending >= self.limit:
            return False
        return self.computed < known or self.sampled_step == step - 1
