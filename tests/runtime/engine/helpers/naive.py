"""The naive twin of the engine: one request at a time, no pages, no batches, no increments.

It shares the definition of the toy model, of the random numbers and of the request with the engine,
and nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from mlcc.device.toy.executor import RowParams, toy_token, toy_view
from mlcc.engine import Capacity, Request, Tokenizer
from mlcc.engine.batch.adjustments import NO_PENALTIES, Penalties
from mlcc.engine.batch.filters import FilterParams
from mlcc.engine.batch.random import derive_seed, stream_of, uniform
from mlcc.engine.sampling.dry import DryParams

PROMPT_TAIL = 5


@dataclass(frozen=True)
class Adjustment:
    """Changes of the logits that a request asks for."""

    penalties: Penalties = NO_PENALTIES
    bias: Mapping[int, float] = field(default_factory=dict)
    allowed: Collection[int] | None = None
    last: int | None = None
    """The number of last tokens that penalties count; None = all."""


@dataclass(frozen=True)
class NaiveAnswer:
    tokens: list[int]
    """Output tokens, without an end token."""
    logprobs: list[float]
    text: str
    reason: str
    completion_tokens: int
    matched: str | None
    end: tuple[int, float] | None = None
    """The end token, if one ended the output, and its log-probability."""


def whole_text(tokenizer: Tokenizer, prompt: Sequence[int], ids: Sequence[int]) -> str:
    """The text that `ids` add to the prompt, decoded in one go."""
    if not ids:
        return ""
    tail = list(prompt[-PROMPT_TAIL:])
    before, full = tokenizer.decode(tail), tokenizer.decode([*tail, *ids])
    while not full.startswith(before) and before.endswith("\ufffd"):
        before = before[:-1]
    return full[len(before) :]


def find_stop(text: str, stops: Sequence[str]) -> tuple[str, str] | None:
    """Text before the first stop string, and that string: literally the shortest such prefix."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return None


def row_params(
    request: Request, seed: int, position: int, logprobs: Sequence[float] = ()
) -> RowParams:
    s = request.sampling
    t, p, m, u = array("f", [s.temperature, s.top_p, s.min_p, uniform(stream_of(seed), position)])
    epsilon, mu = s.epsilon_cutoff, 2 * s.mirostat_tau
    if s.mirostat:
        for logprob in logprobs:
            mu -= s.mirostat_eta * (-logprob / log(2) - s.mirostat_tau)
        epsilon = 2.0 ** -min(max(mu, 0.0), 100.0)
    excluded = uniform(stream_of(stream_of(seed)), position) < s.xtc_probability
    filters = (
        s.top_n_sigma, s.typical_p, epsilon, s.eta_cutoff, s.xtc_threshold if excluded else 0.0,
        s.dynatemp_range, s.dynatemp_exponent,
    )  # fmt: skip
    return RowParams(t, s.top_k, p, m, u, FilterParams(*array("f", filters)))


GREEDY = RowParams(0.0, 0, 1.0, 0.0, 0.5)


def likeliest(
    capacity: Capacity,
    prompt: Sequence[int],
    output: Sequence[int],
    adjustment: Adjustment,
    params: RowParams = GREEDY,
) -> list[tuple[int, float]]:
    """Every allowed token with its log-probability, the most likely first: the toy's logits with
    all adjustments, computed token by token."""
    views = [toy_view([*prompt, *output], group) for group in capacity.groups]
    token, logprob = toy_token(views, params, capacity.vocab_size)
    found = []
    for t in range(capacity.vocab_size):
        if adjustment.allowed is not None and t not in adjustment.allowed:
            continue
        x, penalties = 3 + logprob - (t - token) % capacity.vocab_size, adjustment.penalties
        whole = [*prompt, *output]
        first = max(0, len(whole) - (len(whole) if adjustment.last is None else adjustment.last))
        recent, answered = whole[first:], whole[max(first, len(prompt)) :]
        if t in recent:
            x = x / penalties.repetition if x > 0 else x * penalties.repetition
        if t in answered:
            x = x - penalties.frequency * answered.count(t) - penalties.presence
        found.append((t, x + adjustment.bias.get(t, 0.0) - 3))
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def dry_penalties(
    params: DryParams, tokens: Sequence[int], breaks: Callable[[int], bool]
) -> dict[int, float]:
    """DRY, a literal implementation of llama.cpp's description."""
    seen = tokens[len(tokens) - params.window :] if 0 <= params.window < len(tokens) else tokens
    found: dict[int, float] = {}
    for end in range(len(seen) - 1):
        length = 0
        while length <= end and seen[end - length] == seen[-1 - length]:
            if breaks(seen[-1 - length]):
                break
            length += 1
        if length >= max(params.allowed_length, 1) and not breaks(seen[end + 1]):
            loses = params.multiplier * params.base ** (length - params.allowed_length)
            found[seen[end + 1]] = max(found.get(seen[end + 1], 0), min(loses, 1e6))
    return found


def adjustment_of(
    request: Request,
    output: Sequence[int],
    ends: Collection[int],
    tokenizer: Tokenizer | None = None,
) -> Adjustment:
    """The adjustment of a request's next logits."""
    s, prompt = request.sampling, [*request.prompt]

    def breaks(token: int) -> bool:
        text = tokenizer.decode([token]) if tokenizer else ""
        return any(breaker in text for breaker in s.dry_sequence_breakers)

    bias = dict(s.logit_bias)
    bias |= {word[0]: -1e20 for word in s.bad_words if len(word) == 1}
    if s.dry_multiplier:
        for token, lost in dry_penalties(s.dry, [*prompt, *output], breaks).items():
            bias[token] = bias.get(token, 0.0) - lost
    for word in s.bad_words:
        if len(word) > 1 and [*output][-len(word) + 1 :] == [*word[:-1]]:
            bias[word[-1]] = -1e20
    bias |= dict.fromkeys(ends, -1e20) if len(output) < s.min_tokens else {}
    numbers = s.repetition_penalty, s.frequency_penalty, s.presence_penalty
    penalties = Penalties(*array("f", numbers))
    last = s.repeat_last_n if s.repeat_last_n >= 0 else None
    return Adjustment(penalties, {t: array("f", [b])[0] for t, b in bias.items()}, last=last)


def answer(
    request: Request,
    arrival: int,
    capacity: Capacity,
    eos: Collection[int],
    tokenizer: Tokenizer,
    base: int = 0,
    limit: int | None = None,
) -> NaiveAnswer:
    """The whole answer to a request that arrived as number `arrival`.

    `limit` is the longest sequence the pool allows, if that is less than the context.
    """
    s, prompt = request.sampling, list(request.prompt)
    seed = s.seed if s.seed is not None else derive_seed(base, arrival)
    longest = min(limit or capacity.context, capacity.context)
    if s.max_tokens is not None:
        longest = min(longest, len(prompt) + s.max_tokens)
    ends = {*s.stop_token_ids, *(() if s.ignore_eos else eos)}
    if s.max_tokens == 0:
        return NaiveAnswer([], [], "", "length", 0, None)
    ids: list[int] = []
    logprobs: list[float] = []
    while True:
        params = row_params(request, seed, len(prompt) + len(ids), logprobs)
        adjustment = adjustment_of(request, ids, ends, tokenizer)
        token, logprob = likeliest(capacity, prompt, ids, adjustment, params)[0]
        ended = token in ends
        if not ended:
            ids.append(token)
            logprobs.append(logprob)
        text = whole_text(tokenizer, prompt, ids)
        full = ended or len(prompt) + len(ids) >= longest
        found = find_stop(text if full else text.rstrip("\ufffd"), s.stop)
        count = len(ids) + ended
        if found:
            return NaiveAnswer(ids, logprobs, found[0], "stop", count, found[1])
        if full:
            end, reason = ((token, logprob), "stop") if ended else (None, "length")
            return NaiveAnswer(ids, logprobs, text, reason, count, None, end)
