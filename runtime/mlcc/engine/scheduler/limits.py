"""What keeps within the model and its device: limits, requests before they are let in, results.
Arithmetic only."""

from __future__ import annotations

from mlcc.engine.batch.batch import Capacity, Result
from mlcc.engine.kv_cache.cache_manager import tokens_within
from mlcc.engine.request import Request
from mlcc.errors import DeviceError, InvalidRequestError


def check_capacity(capacity: Capacity) -> None:
    """Raise InvalidRequestError if a limit is no positive integer, or beyond the layout's."""
    layout = capacity.layout
    bounds = {
        "vocab_size": 2**31 - 1,
        "context": 2**31 - 1,
        "max_batch": layout.max_sequences,
        "max_step_tokens": layout.max_tokens,
        "max_rows": layout.max_rows,
    }
    values = [(name, getattr(capacity, name), most) for name, most in bounds.items()]
    values += [(f"pools[{g}]", size, 2**31 - 1) for g, size in enumerate(capacity.pools)]
    for name, value, most in values:
        if not isinstance(value, int) or not 1 <= value <= most:
            raise InvalidRequestError(
                f"capacity.{name} is {value!r}, but must be an integer of 1 .. {most}", param=name
            )
    if len(capacity.pools) != len(capacity.groups):
        raise InvalidRequestError(
            f"{len(capacity.pools)} pools for {len(capacity.groups)} cache groups", param="pools"
        )


def token_limit(request: Request, capacity: Capacity) -> int:
    """Most tokens, prompt and answer together, that this request may reach.

    Raises InvalidRequestError if the prompt leaves no room in the context, or if the pages for
    prompt and answer (its `max_tokens`, or one token) are more than the pools have.
    """
    prompt, wanted = len(request.prompt), request.sampling.max_tokens
    if prompt >= capacity.context:
        raise too_long(f"{prompt} tokens", capacity.context)
    limit = min(prompt + wanted, capacity.context) if wanted else capacity.context
    # The last token of an answer is never computed, so it needs no place in a page.
    pools = zip(capacity.pools, capacity.groups, strict=True)
    longest = min(tokens_within(pages, group, capacity.context) for pages, group in pools)
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


def too_long(prompt: str, context: int, remedy: str = "a longer context") -> InvalidRequestError:
    """Of a prompt that leaves no room for an answer. `prompt` says how many tokens it has.

    Clients that shorten a conversation and ask again look for these words: "maximum context length
    is" (litellm and agents over OpenAI's API), "prompt is too long: N tokens > M maximum" (those
    over Anthropic's).
    """
    return InvalidRequestError(
        f"this model's maximum context length is {context} tokens and the prompt is too long:"
        f" {prompt} > {context - 1} maximum, for the answer needs room; shorten the prompt or load"
        f" the model with {remedy}",
        param="prompt",
        code="context_length_exceeded",
    )


def check_request(request: Request, vocab: int, context: int, has_tokenizer: bool) -> None:
    """Its tokens are the model's, and what it wants can be told. Raises InvalidRequestError."""
    low, high = min(request.prompt), max(request.prompt)
    if low < 0 or high >= vocab:
        raise InvalidRequestError(
            f"the prompt has token id {low if low < 0 else high}, the vocabulary is 0 .."
            f" {vocab - 1}; encode it with this model's tokenizer",
            param="prompt",
            code="invalid_value",
        )
    if (foretold := len(request.prediction)) > context:
        raise InvalidRequestError(
            f"prediction has {foretold} tokens, and no answer has more than the context of "
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


def check_result(result: Result, rows: int, vocab: int) -> None:
    """What a device answered is of the step that was planned. Raises DeviceError."""
    if len(result.tokens) != rows or len(result.logprobs) != rows:
        raise DeviceError(
            f"the device answered {len(result.tokens)} tokens and {len(result.logprobs)}"
            f" log-probabilities for {rows} rows; results must be committed in plan order"
        )
    for token in result.tokens:
        if not 0 <= token < vocab:
            raise DeviceError(
                f"the device sampled token {token}, the vocabulary is 0 .. {vocab - 1};"
                " the library does not fit the model"
            )
