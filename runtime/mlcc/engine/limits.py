"""How long an answer may get, decided before the request is let in. Arithmetic only."""

from __future__ import annotations

from dataclasses import fields

from mlcc.engine.batch import Capacity
from mlcc.engine.request import Request
from mlcc.errors import InvalidRequestError


def check_capacity(capacity: Capacity) -> None:
    """Raise InvalidRequestError if a limit of the executor is not a positive integer."""
    for item in fields(capacity):
        value = getattr(capacity, item.name)
        if value is None and item.name == "window":
            continue
        if not isinstance(value, int) or value < 1:
            raise InvalidRequestError(
                f"capacity.{item.name} is {value!r}, but must be an integer >= 1", param=item.name
            )


def pages_for(tokens: int, capacity: Capacity) -> int:
    """Pages a sequence of this many computed tokens needs at least, one token at a time."""
    size = capacity.page_size
    pages = -(-tokens // size)
    if capacity.window is not None:
        pages = min(pages, (capacity.window + size - 2) // size + 1)
    return pages


def token_limit(request: Request, capacity: Capacity) -> int:
    """Most tokens, prompt and answer together, that this request may reach.

    Raises InvalidRequestError if the prompt leaves no room in the context, or if the pages for
    prompt and answer (its `max_tokens`, or one token) are more than the pool has.
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
    if pages_for(limit - 1, capacity) <= capacity.num_pages:
        return limit
    if wanted is None and pages_for(prompt, capacity) <= capacity.num_pages:
        return capacity.num_pages * capacity.page_size + 1
    need = pages_for((limit if wanted else prompt + 1) - 1, capacity)
    raise InvalidRequestError(
        f"the prompt has {prompt} tokens and needs {need} pages with its answer, the pool has"
        f" {capacity.num_pages}; shorten it, lower max_tokens or load the model with more pages",
        param="prompt" if wanted is None else "max_tokens",
        code="context_length_exceeded",
    )
