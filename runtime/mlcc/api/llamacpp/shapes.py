"""Response types of llama.cpp's routes, for the description of the API. `answer.py` fills them;
llama.cpp's server reference documents the fields."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class LlamaPiece(TypedDict, total=False):
    """Fields of the last event, or of a whole answer, in addition to the text."""

    model: str
    prompt: Any
    generation_settings: dict[str, Any]
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    has_new_line: bool
    truncated: bool
    stop_type: Literal["eos", "limit", "word"]
    stopping_word: str
    timings: dict[str, float]
    completion_probabilities: list[Any]


class LlamaCompletion(LlamaPiece):
    """An event of /completion and /infill, or the whole answer, which has all fields."""

    index: int
    id_slot: int
    content: str
    tokens: list[int]
    stop: bool


class LlamaProps(TypedDict):
    """The answer of /props."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str
    bos_token: str
    eos_token: str
    modalities: dict[str, bool]
    build_info: str


class _Counted(TypedDict, total=False):
    count: int
    max_model_len: int
    token_strs: list[str]


class Tokens(_Counted):
    """The answer of /tokenize; further fields are for requests in vLLM's shape."""

    tokens: list[Any]
    """Ids; with `with_pieces`, objects of `id` and `piece`."""


class Detokenized(TypedDict):
    """The answer of /detokenize, under both servers' names."""

    content: str
    prompt: str


class Sleep(TypedDict):
    """The answer of vLLM's /is_sleeping."""

    is_sleeping: bool


class AppliedTemplate(TypedDict):
    """The answer of /apply-template."""

    prompt: str
