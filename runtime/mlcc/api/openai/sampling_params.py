"""Sampling parameters of a request: its own fields, then the model's defaults, then plain sampling.

The table `SAMPLING` (`mlcc.api.schema.chat_fields`) lists the fields; `SamplingParams` defines what
they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from mlcc.api.schema.chat_fields import SAMPLING
from mlcc.api.schema.schema import Object
from mlcc.engine.batch.random import derive_seed
from mlcc.engine.request import SamplingParams
from mlcc.errors import InvalidRequestError

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for /v1/completions."""

MOST_LETTERS = 100
"""Of a bad word."""

INSTEAD = {
    "top_k": 0, "top_p": 1, "min_p": 0, "top_n_sigma": 0, "typical_p": 1,
    "epsilon_cutoff": 0, "eta_cutoff": 0, "xtc_probability": 0,
}  # fmt: skip
"""The filters that mirostat takes the place of, and the values that do nothing."""

SamplingOptions: TypeAlias = Mapping[str, Any]
"""Some of `SamplingParams`, by name: what a request or a model's makers say of sampling."""


def parse_sampling(table: Object, fields: Mapping[str, Any]) -> SamplingOptions:
    """What checked fields wish. Raises InvalidRequestError if two wish differently for one."""
    said: dict[str, str] = {}
    found: dict[str, Any] = {}
    for row in table.fields:
        if not row.sets or row.name not in fields:
            continue
        value = row.made(fields[row.name])
        if row.sets in said and value != found[row.sets]:
            first = said[row.sets]
            raise InvalidRequestError(
                f"'{first}' is {fields[first]} and '{row.name}' is {fields[row.name]}, and they "
                "mean the same; send one of them",
                param=first,
                code="invalid_value",
            )
        said[row.sets], found[row.sets] = row.name, value
    return found


def recommended(config: Mapping[str, Any]) -> SamplingOptions:
    """What a model's makers recommend, from its generation_config.json: what is sane of it.

    transformers' own default of top_k = 50 is not a recommendation and is not taken over.
    """
    if config.get("do_sample") is False:
        return {"temperature": 0.0}
    found = {}
    for row in SAMPLING:
        if row.recommended and (value := config.get(row.name)) is not None:
            try:
                found[row.sets] = row.made(row.type.check(value, row.name))
            except InvalidRequestError:
                continue  # NaN, 400 digits, a text: as if it were not there
    return found


def with_word_ids(
    fields: SamplingOptions, encode: Callable[[str], Sequence[int]]
) -> SamplingOptions:
    """`bad_words` by their tokens, at the beginning of a text and behind a space. Raises
    InvalidRequestError if one is too long for a word."""
    if not (words := fields.get("bad_words")):
        return fields
    if long := next((f"bad_words[{i}]" for i, w in enumerate(words) if len(w) > MOST_LETTERS), ""):
        raise InvalidRequestError(
            f"'{long}' has more than {MOST_LETTERS} characters; give words or short phrases",
            param=long,
            code="invalid_value",
        )
    ids = (tuple(encode(text)) for word in words for text in (word, f" {word.lstrip()}"))
    return {**fields, "bad_words": tuple(dict.fromkeys(filter(None, ids)))}


def to_params(
    fields: SamplingOptions, defaults: SamplingOptions, *, max_tokens: int | None = None
) -> SamplingParams:
    """The engine's parameters; `max_tokens` is the default of the endpoint."""
    if fields.get("mirostat"):
        defaults = {name: value for name, value in defaults.items() if name not in INSTEAD}
        for name, none in INSTEAD.items():
            if fields.get(name, none) != none:
                raise InvalidRequestError(
                    f"'mirostat' takes the place of '{name}'; send one of them",
                    param=name,
                    code="invalid_value",
                )
    return SamplingParams(**{"max_tokens": max_tokens, **defaults, **fields})


def of_answer(params: SamplingParams, number: int) -> SamplingParams:
    """Of several answers with one seed, each draws for itself."""
    if params.seed is None or not number:
        return params
    return replace(params, seed=derive_seed(params.seed, number))
