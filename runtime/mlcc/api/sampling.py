"""How an answer is sampled: the request's wishes over the model's defaults over plain sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcc.api.requests import SamplingFields
from mlcc.engine.request import SamplingParams

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for /v1/completions."""
_LEAST_TOP_P = 1e-6
"""OpenAI allows top_p 0, which keeps the one most likely token; the engine wants more than 0."""


@dataclass(frozen=True)
class SamplingDefaults:
    """What a model's makers recommend, from its generation_config.json."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @classmethod
    def from_generation_config(cls, config: Mapping[str, Any]) -> SamplingDefaults:
        """The recommendations that are sane numbers; anything else is left at plain sampling.

        transformers' own default of top_k = 50 is not a recommendation and is not taken over.
        """
        if config.get("do_sample") is False:
            return cls(temperature=0.0)
        return cls(
            temperature=_number(config.get("temperature"), 0, 2, cls.temperature),
            top_p=_number(config.get("top_p"), _LEAST_TOP_P, 1, cls.top_p),
            top_k=int(_number(config.get("top_k"), 0, 2**31 - 1, cls.top_k)),
            min_p=_number(config.get("min_p"), 0, 1, cls.min_p),
        )


def to_params(
    fields: SamplingFields, defaults: SamplingDefaults, *, max_tokens: int | None = None
) -> SamplingParams:
    """The engine's parameters; `max_tokens` is the default of the endpoint."""
    top_p = defaults.top_p if fields.top_p is None else fields.top_p
    return SamplingParams(
        temperature=defaults.temperature if fields.temperature is None else fields.temperature,
        top_p=max(top_p, _LEAST_TOP_P),
        top_k=defaults.top_k if fields.top_k is None else fields.top_k,
        min_p=defaults.min_p if fields.min_p is None else fields.min_p,
        seed=fields.seed,
        stop=fields.stop,
        max_tokens=max_tokens if fields.max_tokens is None else fields.max_tokens,
        ignore_eos=fields.ignore_eos,
    )


def _number(value: Any, low: float, high: float, otherwise: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return otherwise
    return value if low <= value <= high else otherwise  # NaN is not, nor are 400 digits
