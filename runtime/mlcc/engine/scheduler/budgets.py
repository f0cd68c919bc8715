"""Budgets of a step: prompt tokens beside decoding sequences, logit rows, and adjustment words.

`PrefillBudget` bounds how many prompt tokens a step computes while others decode, so that a long
prompt does not stall running outputs (stall-free batching: Sarathi-Serve, Agrawal et al., 2024). It
learns from measured step times: the time of a decode-only step, and the cost of a prompt token,
which grows with its position (the last of 4,000 tokens of a small model cost 8 times as much as the
first). A mixed step may take MAX_SLOWDOWN times a decode-only step. If several short prompts wait,
they may together add SHORT_PROMPTS_FACTOR times as much: leaving batch slots empty costs more.
Without measured times, and if nothing decodes, prompts take the whole step. So does a burst of
short prompts, BURST_RATIO for each decoding sequence or more: they share its steps, so that none
decodes, and slows the others down, before all are computed.

`StepBudget` is what is left of a step while it is filled. Pages are `cache_manager.py`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from mlcc.engine.batch.adjust_tables import HISTORY
from mlcc.engine.sequence import TokenSequence

WORDS_OF_A_TOKEN = len(HISTORY)
"""Words that a draft token adds to the history of each row after it."""


@dataclass(slots=True)
class StepBudget:
    """The remaining budget of a step."""

    tokens: int
    """Tokens beside one for each decoding sequence."""
    rows: int
    """Rows beside one for each running sequence."""
    adjust_words: int
    """Words for lists of adjustments."""

    def take_prefill(self, seq: TokenSequence, count: int) -> None:
        """Take prompt tokens. With prompt log-probabilities each token has a row."""
        self.tokens -= count
        if seq.prompt_logprobs is not None and count:
            self.rows -= count - 1

    def take_adjustments(self, seq: TokenSequence) -> bool:
        """Reserve words for the logit adjustments of a sequence; False if they do not fit. Those of
        one sequence always fit into an empty step."""
        if seq.logits_processor is None:
            return True
        words = seq.logits_processor.max_words
        if words > self.adjust_words:
            return False
        self.adjust_words -= words
        return True

    def fit_draft(self, seq: TokenSequence, draft: Sequence[int]) -> Sequence[int]:
        """The draft tokens whose adjustments fit, and that the grammar allows."""
        if seq.logits_processor is None or not draft:
            return draft
        fits = self.adjust_words // (seq.logits_processor.max_words + len(draft) * WORDS_OF_A_TOKEN)
        return draft[: seq.logits_processor.lookahead(draft[:fits])]

    def take_draft(self, seq: TokenSequence) -> None:
        """Take the draft tokens of a sequence."""
        count = len(seq.draft)
        self.tokens -= count
        self.rows -= count
        if seq.logits_processor is not None:
            self.adjust_words -= count * (seq.logits_processor.max_words + count * WORDS_OF_A_TOKEN)


MAX_SLOWDOWN = 1.6
"""Target for mixed steps. The slowest must stay below 2: the margin covers variance, and growth of
step times since the decode-only steps were measured."""
SHORT_PROMPT = 256
"""Most tokens of a short prompt."""
SHORT_PROMPTS_FACTOR = 3
"""Most time that several short prompts together may add, as a multiple of one prompt's."""
BURST_RATIO = 2
"""Short prompts for each decoding sequence from which they need not keep to MAX_SLOWDOWN: more
clients wait for a first token than for the next one."""
BURST_STEPS = 4
"""Most steps over which such prompts are spread, so that the first does not wait for very many."""
MIN_SHORT_CHUNK = 16
"""Tokens of a short prompt in any step, fewer where they cost more: batches should fill up, and a
few tokens often take no longer than one."""
MIN_LONG_CHUNK = 4
"""The minimum for a longer prompt, which has many such steps: enough that it does not starve."""
DECODE_ONLY_EVERY = 16
"""After this many mixed steps in a row comes one that only decodes: the decode time changes with
the batch."""
DECODE_ONLY_SOON = 4
"""The same if the number of decoding sequences has changed since the last measurement."""
_DECODE_SAMPLES = 5
"""Decode-only steps whose median counts: single measurements have outliers."""
_LEARNING_RATE = 0.25
"""Weight of the latest measurement."""
_MAX_RATIO = 4.0
"""Largest ratio of measured to expected time that is used; beyond it is an outlier."""
_PROBE = 0.93
"""Factor on the token cost after a step within its target: large chunks may be cheaper per token,
which only a larger chunk can show."""

PrefillChunk = tuple[int, int]
"""Tokens of one prompt in a step, and the tokens before them."""


class PrefillAllowance:
    """The remaining tokens and time of a step for prefill."""

    def __init__(
        self,
        tokens: int,
        costs: PrefillBudget | None = None,
        seconds: float = 0.0,
        short_only: bool = False,
        share: float = 1.0,
    ) -> None:
        """costs: knows token costs; None = unlimited. short_only: only prompts with at most
        `SHORT_PROMPT` tokens left may run. share: part of a prompt's remaining tokens that may run
        if unlimited."""
        self._tokens, self._costs, self._seconds = tokens, costs, seconds
        self._empty, self.short_only, self._share = True, short_only, share

    def tokens(self, past: int, remaining: int = 1) -> int:
        """Tokens that a prompt may compute after `past` tokens, with `remaining` left. The first
        prompt of a step always gets some."""
        if self.short_only and remaining > SHORT_PROMPT:
            return 0
        if self._costs is None or self._tokens <= 0:
            part = max(ceil(self._share * remaining), MIN_SHORT_CHUNK)
            return self._tokens if self._share == 1 else min(self._tokens, part)
        affordable = int(self._seconds / self._costs.token_cost(past))
        return min(self._tokens, max(affordable, _min_chunk(past, remaining) if self._empty else 0))

    def spend(self, count: int, past: int) -> None:
        """Take tokens of the allowance."""
        if count:
            self._empty = False
            self._tokens -= count
            if self._costs is not None:
                self._seconds -= count * self._costs.token_cost(past)


class PrefillBudget:
    """Learns step times, and gives each step its allowance. Times are in any unit."""

    def __init__(self) -> None:
        self._in_flight: deque[tuple[int, Sequence[PrefillChunk]]] = deque()
        """Decoding sequences and prompt chunks of each step planned and not committed."""
        self._measured = False
        self._decode: deque[float] = deque(maxlen=_DECODE_SAMPLES)
        """Times of decode-only steps, with `_decoded` sequences."""
        self._decoded = 0
        self._costs: dict[int, float] = {}
        """Time that a prompt token adds to a step, by `_bucket`."""
        self._mixed = 0
        """Mixed steps in a row, up to the one planned last."""
        self._short_only_step = False
        """Whether that step takes short prompts only."""

    def allowance(self, decodes: int, most: int, prompts: Sequence[int] = ()) -> PrefillAllowance:
        """The allowance of the next step: at most `most` tokens beside `decodes` decoding
        sequences. prompts: tokens left of each prompt that could run."""
        short = [tokens for tokens in prompts if tokens <= SHORT_PROMPT]
        has_long = len(short) < len(prompts)
        short_only = self._short_only_step = bool(short) and has_long and not self._short_only_step
        is_burst = len(short) > 1 and len(short) >= BURST_RATIO * decodes
        if not decodes or not self._measured or (is_burst and (short_only or not has_long)):
            steps = min(max(sum(short) / max(most, 1), 1), BURST_STEPS) if is_burst else 1
            return PrefillAllowance(most, short_only=short_only, share=1 / steps)
        interval = DECODE_ONLY_EVERY if decodes == self._decoded else DECODE_ONLY_SOON
        if not self._decode or self._mixed >= interval:
            return PrefillAllowance(0)  # measure a decode-only step
        seconds = self._prefill_time * min(max(len(short), 1), SHORT_PROMPTS_FACTOR)
        return PrefillAllowance(most, self, seconds, short_only)

    def token_cost(self, past: int) -> float:
        """Time that a token adds to a step after `past` tokens of its prompt."""
        bucket = _bucket(past)
        if bucket not in self._costs:
            known = [p for p in self._costs if p < bucket] or [*self._costs]
            nearest = min(known, key=lambda p: abs(p - bucket), default=None)
            return self._prefill_time if nearest is None else self._costs[nearest]
        return self._costs[bucket]

    def step_planned(self, decodes: int, prompts: Sequence[PrefillChunk]) -> None:
        """A step is submitted."""
        self._mixed = self._mixed + 1 if decodes and prompts else 0
        self._in_flight.append((decodes, prompts))

    def observe(self, seconds: float | None) -> None:
        """The oldest step in flight is done. seconds: None = not measured."""
        decodes, prompts = self._in_flight.popleft()
        if seconds is None or seconds <= 0:
            return
        self._measured = True
        if not prompts:
            self._observe_decode(decodes, seconds)
        elif decodes and self._decode:
            self._observe_mixed(prompts, seconds)
        else:  # a first estimate: in a large chunk a token costs less
            token_cost = seconds / sum(count for count, _ in prompts)
            for _, past in prompts:
                self._costs.setdefault(_bucket(past), token_cost)

    def reset(self) -> None:
        """Forget the steps in flight."""
        self._in_flight.clear()

    @property
    def _prefill_time(self) -> float:
        """Time that prompts may add to a step."""
        return (MAX_SLOWDOWN - 1) * median(self._decode)

    def _observe_decode(self, decodes: int, seconds: float) -> None:
        if decodes != self._decoded:
            self._decode.clear()
            self._decoded = decodes
        self._decode.append(seconds)

    def _observe_mixed(self, prompts: Sequence[PrefillChunk], seconds: float) -> None:
        """Scale the costs of all chunks of a step by one factor: more cannot be known."""
        expected = sum(count * self.token_cost(past) for count, past in prompts)
        extra = seconds - median(self._decode)
        factor = min(max(extra / expected, 1 / _MAX_RATIO), _MAX_RATIO)
        change = 1 + _LEARNING_RATE * (factor - 1)
        if extra <= self._prefill_time:
            change = min(change, _PROBE)
        for bucket, token_cost in {
            _bucket(past): self.token_cost(past) for _, past in prompts
        }.items():
            self._costs[bucket] = token_cost * change


def _min_chunk(past: int, remaining: int) -> int:
    """Tokens that the first prompt of a step gets in any case."""
    return max(
        (MIN_SHORT_CHUNK if remaining <= SHORT_PROMPT else MIN_LONG_CHUNK) >> _bucket(past), 1
    )


def _bucket(past: int) -> int:
    """Positions that cost about the same: powers of two from 256 on."""
    return (past >> 8).bit_length()


def median(values: Sequence[float]) -> float:
    """The middle value; the larger of two. (`statistics` needs `decimal`, which Pyodide lacks.)"""
    return sorted(values)[len(values) // 2]
