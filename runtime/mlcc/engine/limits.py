"""What an engine, a request and a result may be: how long an answer may get, decided before the
request is let in. Arithmetic only."""

from __future__ import annotations

from mlcc.engine.batch import Capacity, Result
from mlcc.engine.caches import tokens_within
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
        raise InvalidRequestError(
            f"the prompt has {prompt} tokens, the context is {capacity.context} and must also hold"
            " the answer; shorten the prompt or load the model with a longer context",
            param="prompt",
            code="context_length_exceeded",
        )
    limit = min(prompt + wanted, capacity.context) if wanted else capacity.context
    # The last token of an answer is never computed, so it needs no place in a page.
    pools = zip(capacity.pools, capacity.groups, strict=True)
    longest = min(tokens_within(pages, group, capacity.context) for pages, group in pools)
    if limit - 1 <= longest:
        return limit
    if wanted is None and prompt <= longest:
        return longest + 1
    raise InvalidRequestError(
        f"the prompt has {prompt} tokens and needs room for {(limit if wanted else prompt + 1) - 1}"
        f" with its answer, the pages hold {longest}; shorten it, lower max_tokens or load the"
        " model with more pages",
        param="prompt" if wanted is None else "max_tokens",
        code="context_length_exceeded",
    )


def check_result(rows: int, result: Result, vocab: int) -> None:
    """Raise DeviceError unless it is one of so many rows, with tokens of the vocabulary."""
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
