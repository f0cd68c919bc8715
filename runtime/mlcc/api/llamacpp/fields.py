"""Requests of llama.cpp's server as tables of fields, with vLLM's requests of the same paths
(/tokenize, /detokenize). `request.py` translates them to OpenAI's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.api.openai.embeddings import INPUT
from mlcc.api.schema.chat_fields import COMMON as OPENAI_COMMON
from mlcc.api.schema.chat_fields import PROMPT, PROMPT_END, SAMPLING, TOKEN
from mlcc.api.schema.message_fields import MESSAGE
from mlcc.api.schema.schema import (
    ANYTHING,
    NOT_EMPTY,
    Custom,
    Flag,
    Integer,
    Json,
    Many,
    Number,
    Object,
    Text,
    honoured,
    metadata,
    not_built,
    refuse,
)
from mlcc.api.schema.structured_output import STRUCTURE
from mlcc.api.schema.tool_fields import TOOL
from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS
from mlcc.engine.request import MOST_TOKENS

OTHER_NAMES = {
    "typ_p": "typical_p",
    "penalty_last_n": "repeat_last_n",
    "n_predict": "max_tokens",
    "max_tokens": "max_tokens",
}
"""llama.cpp's name for a field, and OpenAI's or ours."""


def _bias(value: Json, where: str) -> dict[str, float]:
    """`[[id, bias], ...]` or an object; a bias of false forbids the token."""
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list) and all(isinstance(p, list) and len(p) == 2 for p in value):
        pairs = [(str(token), bias) for token, bias in value]
    else:
        raise refuse(BIAS, value, where)
    if len(pairs) > MOST_TOKENS or not all(token.isdecimal() for token, _ in pairs):
        raise refuse(BIAS, value, where)
    return {
        token: -100.0 if bias is False else Number(-100, 100).check(bias, f"{where}.{token}")
        for token, bias in pairs
    }


BIAS = Custom(
    f"at most {MOST_TOKENS} pairs of a token's id and a number from -100 to 100, or false",
    _bias,
    (ANYTHING,),
)
LONGEST = Integer(-2, 2**31 - 1)
_OURS = ("max_tokens", "logit_bias")

EMBEDDING = Object(
    "LlamaEmbeddingRequest",
    (
        honoured("content", INPUT, "One text or several, or their token ids.", required=True),
        honoured("embd_normalize", Integer(-1, 2), "2 = rows of length 1, -1 = as they are."),
        honoured("model", Text(), "The model's name."),
    ),
)

COMMON = (
    *(row for row in SAMPLING if row.name not in _OURS),
    honoured("typ_p", Number(0, 1), "Another name of `typical_p`."),
    honoured(
        "n_predict",
        LONGEST,
        "Longest answer in tokens; 0 = only compute the prompt, below 0 = as the context allows.",
    ),
    honoured("max_tokens", LONGEST, "Another name of `n_predict`."),
    honoured("logit_bias", BIAS, "Added to the logits of tokens, by id."),
    honoured(
        "n_probs",
        Integer(0, MOST_TOP_LOGPROBS),
        "Report this many of the likeliest tokens at each position.",
    ),
    honoured("stream", Flag(), "Send the answer as it is made, as server-sent events."),
    honoured("cache_prompt", Flag(), "The prefix cache is always on; has no effect."),
    honoured("response_fields", Many(NOT_EMPTY), "Send these fields of the answer only."),
    *(row for row in STRUCTURE if row.name in ("grammar", "json_schema")),
    *(row for row in OPENAI_COMMON if row.name in ("model", "cache_salt", "priority", "timeout")),
    not_built("n", 1),
    not_built("n_indent", 0),
    not_built("n_discard", 0),
    not_built("n_cmpl", 1),
    not_built("t_max_predict_ms", 0, -1, advice="send 'timeout', in seconds"),
    not_built("t_max_prompt_ms", 0, -1, advice="send 'timeout', in seconds"),
    not_built("return_tokens", False),
    not_built("post_sampling_probs", False),
    not_built("lora", []),
    not_built("grammar_lazy", False),
    not_built("grammar_triggers", []),
    metadata("id_slot"),
    metadata("slot_id"),
    metadata("n_keep"),
    metadata("min_keep"),
    metadata("timings_per_token"),
    metadata("return_progress"),
    metadata("api_key"),
    metadata("penalty_prompt"),
    metadata("preserved_tokens"),
)

NO_IMAGES = not_built("image_data", [])
MULTIMODAL_PROMPT = Object(
    "LlamaMultimodalPrompt",
    (
        honoured("prompt_string", NOT_EMPTY, "A text with <__media__> at each.", required=True),
        honoured("multimodal_data", Many(NOT_EMPTY), "Images as base64.", required=True),
    ),
)


def _prompt(value: Json, where: str) -> Any:
    if isinstance(value, Mapping):
        return MULTIMODAL_PROMPT.check(value, where)
    return PROMPT.check(value, where)


SEEN_PROMPT = Custom(
    f"{PROMPT.wants}, or an object of 'prompt_string' and 'multimodal_data'",
    _prompt,
    (PROMPT, MULTIMODAL_PROMPT),
)
IMAGE_DATA = Object(
    "LlamaImage",
    (
        honoured("data", NOT_EMPTY, "The image as base64.", required=True),
        honoured("id", Integer(0, 2**31 - 1), "Its mark is [img-ID].", required=True),
    ),
)
COMPLETION = Object(
    "LlamaCompletionRequest",
    (
        honoured("prompt", SEEN_PROMPT, "A text, or its tokens; one prompt.", required=True),
        honoured("image_data", Many(IMAGE_DATA), "Images in a text, for a model that sees."),
        *COMMON,
    ),
)
TEXT_COMPLETION = Object(
    "LlamaCompletionRequest",
    (
        honoured("prompt", PROMPT, "A text, or its tokens; one prompt.", required=True),
        NO_IMAGES,
        *COMMON,
    ),
)
"""For a model that reads text only."""
EXTRA = Object(
    "LlamaInfillFile",
    (
        honoured("filename", Text(), "Its path."),
        honoured("text", Text(), "The file's text.", required=True),
    ),
)
INFILL = Object(
    "LlamaInfillRequest",
    (
        honoured("input_prefix", Text(), "Text before the gap.", required=True),
        honoured("input_suffix", Text(), "Text after the gap.", required=True),
        honoured("input_extra", Many(EXTRA), "Other files of the same repository."),
        honoured("prompt", Text(), "Text after the prefix, as the beginning of the answer."),
        NO_IMAGES,
        *COMMON,
    ),
)


def _content(value: Json, where: str) -> Any:
    if isinstance(value, str):
        return Text().check(value, where)
    raise refuse(CONTENT, value, where)


CONTENT = Custom("a string", _content, (Text(),))
TOKENIZE = Object(
    "TokenizeRequest",
    (
        honoured("content", CONTENT, "llama.cpp's: a text."),
        honoured("prompt", CONTENT, "vLLM's: a text."),
        honoured("messages", Many(MESSAGE, 1), "vLLM's: a conversation."),
        honoured("tools", Many(TOOL), "Tools for the chat template."),
        honoured("chat_template_kwargs", ANYTHING, "Variables of the template."),
        honoured("model", NOT_EMPTY, "Must be the model that is loaded, if it is given."),
        honoured("add_special", Flag(), "Add the start token; false by default."),
        honoured("add_special_tokens", Flag(), "As `add_special`, for `prompt`; true by default."),
        honoured("with_pieces", Flag(), "Return the text of each token, too."),
        honoured("return_token_strs", Flag(), "vLLM's name of `with_pieces`."),
        not_built("parse_special", True),
        *PROMPT_END,
        not_built("chat_template"),
    ),
)
DETOKENIZE = Object(
    "DetokenizeRequest",
    (
        honoured("tokens", Many(TOKEN), "Ids.", required=True),
        honoured("model", NOT_EMPTY, "Must be the model that is loaded, if it is given."),
    ),
)
