"""Translates llama.cpp's requests, checked by `fields.py`, to bodies in OpenAI's shape for
`mlcc.service.generate`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.llamacpp.fields import OTHER_NAMES
from mlcc.api.ollama.request import STREAMED, plain_sampling
from mlcc.api.openai.infill import Infill
from mlcc.api.schema.field_names import FieldNames
from mlcc.api.schema.image_fields import base64_part
from mlcc.errors import InvalidRequestError
from mlcc.multimodal.placeholders import MediaCollector, TextWithMedia

NOT_OURS = ("stream", "cache_prompt", "response_fields", "n_probs", "prompt", "input_prefix",
            "input_suffix", "input_extra", "image_data")  # fmt: skip


MEDIA = "<__media__>"
"""Stands for an image in the text of a prompt."""
_NUMBERED = re.compile(r"\[img-[0-9]+\]")


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
    if isinstance(prompt, (str, Mapping)):
        return prompt
    if len(prompt) != 1:
        raise InvalidRequestError(
            f"'prompt' has {len(prompt)} prompts, and this address takes one; send them one by "
            "one, or to /v1/completions",
            param="prompt",
            code="too_many_prompts",
        )
    return prompt[0]


def with_images(fields: Mapping[str, Any]) -> Any:
    """The prompt of checked fields with its images: a `TextWithMedia`, or a prompt without any.
    Raises InvalidRequestError or UnsupportedError that names the field."""
    prompt, given = fields["prompt"], fields.get("image_data", ())
    if isinstance(prompt, Mapping):
        where = "prompt.multimodal_data"
        data = [(MEDIA, one, f"{where}[{i}]") for i, one in enumerate(prompt["multimodal_data"])]
        return _with_images(prompt["prompt_string"], data, MEDIA, where)
    if not given:
        return prompt
    if not isinstance(prompt, str):
        raise InvalidRequestError(
            "'image_data' goes with a prompt that is a text, with [img-ID] where each image is",
            param="image_data",
            code="invalid_value",
        )
    marked = {f"[img-{one['id']}]": (i, one["data"]) for i, one in enumerate(given)}
    marks = [mark for mark in _NUMBERED.findall(prompt) if mark in marked]
    data = [(mark, marked[mark][1], f"image_data[{marked[mark][0]}].data") for mark in marks]
    if len(marks) != len(given):
        raise _not_placed("image_data", "[img-ID]", len(marks), len(given))
    return _with_images(prompt, data, "[img-ID]", "image_data")


def _with_images(
    prompt: str, data: Sequence[tuple[str, str, str]], mark: str, where: str
) -> TextWithMedia:
    """The prompt with placeholders for images, each (its mark, base64, field), in order."""
    collector, made, rest = MediaCollector(), "", prompt
    for number, (its, picture, field) in enumerate(data):
        before, found, rest = rest.partition(its)
        if not found:
            raise _not_placed(where, mark, number, len(data))
        made += before + collector.add(base64_part("image", picture, field).image())
    if mark in rest:
        raise _not_placed(where, mark, len(data) + rest.count(mark), len(data))
    if (images := collector.collected()) is None:
        raise InvalidRequestError(
            f"'{where}' has no images; send the text as 'prompt'",
            param=where,
            code="invalid_value",
        )
    return TextWithMedia(made + rest, images)


def _not_placed(where: str, mark: str, marks: int, images: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"the prompt has {marks} of {mark} for the {images} images of '{where}'; write one for "
        "each",
        param=where,
        code="image_count",
    )


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
