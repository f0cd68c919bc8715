"""Translates llama.cpp's requests, checked by `fields.py`, to bodies in OpenAI's shape for
`mlcc.service.generate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.llamacpp.fields import OTHER_NAMES
from mlcc.api.ollama.request import STREAMED, plain_sampling
from mlcc.api.openai.infill import Infill
from mlcc.api.schema.field_names import FieldNames
from mlcc.errors import InvalidRequestError

NOT_OURS = ("stream", "cache_prompt", "response_fields", "n_probs", "prompt", "input_prefix",
            "input_suffix", "input_extra")  # fmt: skip


def completion_body(
    fields: Mapping[str, Any], prompt: Any, ends: Sequence[int] = ()
) -> dict[str, Any]:
    """Body for /completion and /infill. Raises InvalidRequestError for conflicting values."""
    sources: dict[str, str] = {}
    body: dict[str, Any] = {}
    for name, value in fields.items():
        if name in NOT_OURS:
            continue
        ours = OTHER_NAMES.get(name, name)
        if ours == "max_tokens":
            value = max(value, -1)  # -2 of older versions: as the context allows
        if ours in body and body[ours] != value:
            raise InvalidRequestError(
                f"'{sources[ours]}' and '{name}' mean the same and differ; send one of them",
                param=name,
                code="invalid_value",
            )
        sources[ours], body[ours] = name, value
    body.setdefault("max_tokens", -1)
    if probabilities := fields.get("n_probs"):
        body["logprobs"] = probabilities
    if ends:
        body["stop_token_ids"] = [*fields.get("stop_token_ids", ()), *ends]
    return {**plain_sampling(body), "prompt": prompt, **STREAMED}


def field_names(fields: Mapping[str, Any]) -> FieldNames:
    """Names of a completion's fields in this request."""
    return FieldNames({OTHER_NAMES[name]: name for name in fields if name in OTHER_NAMES})


def one_prompt(prompt: Any) -> Any:
    """The only prompt of a checked field. Raises InvalidRequestError for several."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) != 1:
        raise InvalidRequestError(
            f"'prompt' has {len(prompt)} prompts, and this address takes one; send them one by "
            "one, or to /v1/completions",
            param="prompt",
            code="too_many_prompts",
        )
    return prompt[0]


def infill_texts(fields: Mapping[str, Any], family: Infill) -> tuple[str, str, str]:
    """The text before everything, the text before the gap and the text after it."""
    files = fields.get("input_extra", ())
    mark = family.file if files else ""
    parts = []
    for file in files:
        name = f"{file['filename']}\n" if file.get("filename") else ""
        parts.append(f"{mark}{name}{file['text']}\n")
    before = fields["input_prefix"] + fields.get("prompt", "")
    return "".join(parts) + mark, before, fields["input_suffix"]
