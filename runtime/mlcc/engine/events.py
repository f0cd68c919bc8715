"""What the engine tells its driver about the requests. Not a wire format: see `mlcc.api`.

Named tuples: there is one for every token, and processes send them to each other.

What an engine tells of itself: for metrics, /health and tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mlcc.engine.request import FinishReason
from mlcc.engine.text.logprobs import TokenLogprob


class TextDelta(NamedTuple):
    """More of an answer. The concatenation of all `text` of a request is its answer.

    Text may lag behind the tokens (half a character, perhaps the start of a stop string), so
    `text` can be empty, and the last delta of a request can have text but no tokens.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...] = ()
    """Newly sampled tokens, without an end token that ended the answer."""
    logprobs: tuple[float, ...] = ()
    """One natural log-probability per token id, before temperature and filters."""
    token_logprobs: Sequence[TokenLogprob] = ()
    """The tokens that `text` is made of, if the request wants their log-probabilities."""
    prompt_logprobs: Sequence[TokenLogprob] = ()
    """The tokens of the prompt, in a delta without text before all others, if it wants those. The
    first follows nothing: its log-probability means nothing."""


class Finished(NamedTuple):
    """The last event of a request."""

    request_id: str
    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    """Sampled tokens, the end token included."""
    matched: str | None = None
    """The stop string that ended the answer, if one did."""
    cached_tokens: int = 0
    """Tokens of the prompt that were not computed for it: the prefix cache had them."""
    drafted_tokens: int = 0
    """Guesses of speculation that were computed for it."""
    accepted_tokens: int = 0
    """Those of them that were right."""
    vector: bytes = b""
    """What an encoder made of the text: float32, in the order of this machine's bytes."""


Event = TextDelta | Finished


@dataclass(frozen=True, slots=True)
class Stats:
    """A look at the engine: what it holds now, then what it has done since it was made."""

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
    """Tokens run by planned steps: prompts, answers and recomputation."""
    sampled_tokens: int
    """Tokens of answers; those sampled in vain after an end are not counted."""
    preemptions: int
    cached_tokens: int
    """Tokens of prompts that were found in the prefix cache instead of being run."""
    drafted_tokens: int
    """Guesses of speculation that were computed."""
    accepted_tokens: int
    """Those of them that were right."""
    pages_kept: int
    """Free pages that the prefix cache would find something in."""
