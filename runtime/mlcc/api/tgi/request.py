"""Translates TGI's requests, checked by `fields.py`, to bodies in OpenAI's shape for
`mlcc.service.generate`. Defaults are TGI's, not the model's: greedy, 100 tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.schema.field_names import FieldNames
from mlcc.errors import InvalidRequestError

MAX_NEW_TOKENS = 100
"""TGI's default of `max_new_tokens`."""
PLAIN = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repetition_penalty": 1.0}
"""Sampling without filters: a model's recommendation is not taken over."""
_SAME = ("top_p", "top_k", "typical_p", "repetition_penalty", "frequency_penalty", "seed", "stop")
_KINDS = {"json": "json", "json_schema": "json", "regex": "regex"}
NAMES = FieldNames(
    {
        "model": "parameters.adapter_id",
        "prompt": "inputs",
        "max_tokens": "parameters.max_new_tokens",
        "logprobs": "parameters.top_n_tokens",
        "structured_outputs": "parameters.grammar",
        "structured_outputs.json": "parameters.grammar",
        "structured_outputs.regex": "parameters.grammar",
        **{name: f"parameters.{name}" for name in (*_SAME, "temperature", "best_of")},
    }
)
"""Names of a completion's fields in a request of TGI's."""


def is_sampled(given: Mapping[str, Any]) -> bool:
    """Whether the answer is sampled: asked for, or implied by a temperature or a filter."""
    implied = (
        given.get("temperature", 1.0) != 1.0
        or "top_k" in given
        or given.get("top_p", 1.0) < 1
        or given.get("typical_p", 1.0) < 1
    )
    return given.get("do_sample", False) or implied


def check(given: Mapping[str, Any], stream: bool) -> None:
    """Raise InvalidRequestError for parameters that do not go together."""
    if given.get("best_of", 1) > 1 and (stream or not is_sampled(given)):
        raise _refused("best_of", "above 1 goes with 'do_sample', and without streaming")
    if given.get("decoder_input_details") and (stream or not given.get("details")):
        raise _refused("decoder_input_details", "goes with 'details', and without streaming")


def completion_body(
    given: Mapping[str, Any], prompt: str | Sequence[int], seed: int
) -> dict[str, Any]:
    """The body of a completion. given: checked `parameters`; seed: of a sampled answer."""
    body: dict[str, Any] = {
        **PLAIN,
        **{name: given[name] for name in _SAME if name in given},
        "prompt": prompt,
        "max_tokens": given.get("max_new_tokens", MAX_NEW_TOKENS),
        "temperature": given.get("temperature", 1.0) if is_sampled(given) else 0.0,
        "seed": seed,
        "logprobs": given.get("top_n_tokens", 0),
        "include_stop_str_in_output": True,
        "best_of": given.get("best_of", 1),
        "echo": given.get("decoder_input_details", False),
    }
    if name := given.get("adapter_id"):
        body["model"] = name
    if grammar := given.get("grammar"):
        body["structured_outputs"] = {_KINDS[grammar["type"]]: _constraint(grammar)}
    return body


def _constraint(grammar: Mapping[str, Any]) -> Any:
    """A schema, or the text of a regular expression. A `json_schema` has a name around it."""
    kind, value = grammar["type"], grammar["value"]
    if kind == "regex":
        if not isinstance(value, str) or not value:
            raise _refused("grammar.value", "must be a regular expression, a text")
        return value
    if kind == "json_schema" and isinstance(value, Mapping):
        value = value.get("schema", value)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, Mapping):
        raise _refused("grammar.value", "must be a JSON Schema")
    return value


def _refused(name: str, why: str) -> InvalidRequestError:
    path = f"parameters.{name}"
    return InvalidRequestError(f"'{path}' {why}", param=path, code="invalid_value")
