"""Events and counters of the engine. Not a wire format: see `mlcc.api`.

Events are named tuples: there is one for every token, and processes send them to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mlcc.engine.request import FinishReason
from mlcc.engine.text.logprobs import TokenLogprob
from mlcc.errors import MlccError


class TextDelta(NamedTuple):
    """More of an output. The concatenation of all `text` of a request is its output.

    Text may lag behind the tokens (half a character, perhaps the start of a stop string), so `text`
    can be empty, and the last delta of a request can have text but no tokens.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...] = ()
    """Newly sampled tokens, without an end token that ended the output."""
    logprobs: tuple[float, ...] = ()
    """One natural log-probability per token id, before temperature and filters."""
    token_logprobs: Sequence[TokenLogprob] = ()
    """Log-probabilities of the tokens that `text` consists of, if requested."""
    prompt_logprobs: Sequence[TokenLogprob] = ()
    """Log-probabilities of the prompt's tokens, if requested, in a first delta without text. The
    first entry is meaningless: that token follows nothing."""


class Finished(NamedTuple):
    """The last event of a request."""

    request_id: str
    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    """Sampled tokens, the end token included."""
    matched: str | None = None
    """The stop string that ended the output, if one did."""
    cached_tokens: int = 0
    """Prompt tokens that were found in the prefix cache."""
    drafted_tokens: int = 0
    """Draft tokens that were verified."""
    accepted_tokens: int = 0
    """Draft tokens that were accepted."""
    vector: bytes = b""
    """Output of an encoder: float32 in native byte order."""
    token_rows: tuple[int, ...] = ()
    """Of a request with `aligned_rows`: the row of its window at which the next token begins, for
    each sampled token but the last."""
    error: MlccError | None = None
    """Why the request ended with "error", if that was its own doing."""


Event = TextDelta | Finished


@dataclass(slots=True)
class AnswerTimes:
    """Where the time of complete answers goes, as `Stats` has it. The engine has no clock: its
    driver lends it one for this, and without one all times are 0."""

    clock: Callable[[], float] = lambda: 0.0
    """The time in seconds, from any beginning."""
    answers: int = 0
    queue_s: float = 0.0
    compute_s: float = 0.0

    def add(self, reason: FinishReason, arrived: float, started: float) -> None:
        """Count a request that ends now."""
        if reason in ("stop", "length"):
            self.answers += 1
            self.queue_s += started - arrived
            self.compute_s += self.clock() - started


@dataclass(frozen=True, slots=True)
class Stats:
    """State of the engine now, and counters since it was created."""

    waiting: int
    running: int
    in_flight: int
    """Steps planned and not committed."""
    pages: int
    pages_free: int
    steps: int
    """Steps committed."""
    requests: int
    computed_tokens: int
    """Tokens run by planned steps: prompts, outputs and recomputation."""
    sampled_tokens: int
    """Output tokens; tokens sampled after an end are not counted."""
    preemptions: int
    cached_tokens: int
    """Prompt tokens found in the prefix cache instead of being computed."""
    drafted_tokens: int
    """Draft tokens that were verified."""
    accepted_tokens: int
    """Draft tokens that were accepted."""
    pages_kept: int
    """Free pages that still hold cached prefixes."""
    answers: int
    """Requests that ended complete: by themselves, or at their limit."""
    queue_s: float
    """Seconds from the arrival of each of these to its first step, in sum."""
    compute_s: float
    """Seconds from there to its end, in sum; waits after a preemption count."""
