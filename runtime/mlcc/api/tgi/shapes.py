"""Response types of TGI's routes, for the description of the API. `answer.py` fills them."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class TgiToken(TypedDict):
    """A token of an answer."""

    id: int
    text: str
    logprob: float
    special: bool


class TgiAnswer(TypedDict, total=False):
    """A whole answer; `details` if they were requested."""

    generated_text: str
    details: dict[str, Any]


class _Likeliest(TypedDict, total=False):
    top_tokens: list[TgiToken]


class TgiEvent(_Likeliest):
    """One token of a stream; the last one has the whole text."""

    index: int
    token: TgiToken
    generated_text: str | None
    details: Any


class TgiError(TypedDict):
    """A refusal or a failure."""

    error: str
    error_type: Literal["validation", "overloaded", "generation"]


class TgiInfo(TypedDict, total=False):
    """The model and its limits."""

    model_id: str
    model_sha: str | None
    model_device_type: str
    model_pipeline_tag: str
    model_type: str
    max_concurrent_requests: int
    max_best_of: int
    max_stop_sequences: int
    max_input_tokens: int
    max_total_tokens: int
    max_batch_size: int
    version: str
    router: str
