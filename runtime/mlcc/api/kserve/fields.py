"""Requests of the Open Inference Protocol and of Triton's extensions as tables of fields."""

from __future__ import annotations

from typing import Any

from mlcc.api.openai.embeddings import CUT, MOST_TEXTS
from mlcc.api.schema.chat_fields import MAX_STOP
from mlcc.api.schema.schema import (
    ANYTHING,
    NOT_EMPTY,
    Custom,
    Either,
    Flag,
    Integer,
    Json,
    Many,
    Object,
    Text,
    honoured,
    metadata,
    not_built,
    refuse,
)

BYTES, FP32 = "BYTES", "FP32"
_SIZE = Integer(0, 2**31 - 1)
_SHARED_MEMORY = tuple(
    not_built(name, advice="send the data in the request")
    for name in ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")
)
INPUT_PARAMETERS = Object(
    "InferInputParameters",
    (
        honoured("binary_data_size", _SIZE, "Bytes of its data behind the JSON, in this order."),
        *_SHARED_MEMORY,
    ),
)
INPUT = Object(
    "InferInput",
    (
        honoured("name", NOT_EMPTY, "Its name, as the model's metadata says.", required=True),
        honoured("shape", Many(_SIZE, 1, 2), "[N] or [N, 1].", required=True),
        honoured("datatype", Text((BYTES,)), "Texts in UTF-8.", required=True),
        honoured("parameters", INPUT_PARAMETERS, "Where its data is."),
        honoured("data", Many(ANYTHING, 0, MOST_TEXTS), "Texts, flat or nested as the shape."),
    ),
)
OUTPUT_PARAMETERS = Object(
    "InferOutputParameters",
    (
        honoured("binary_data", Flag(), "Send its data behind the JSON."),
        not_built("classification", 0, advice="ask a classifier for 'probabilities'"),
        *_SHARED_MEMORY,
    ),
)
OUTPUT = Object(
    "InferOutput",
    (
        honoured("name", NOT_EMPTY, "Its name, as the model's metadata says.", required=True),
        honoured("parameters", OUTPUT_PARAMETERS, "How its data is sent."),
    ),
)
PARAMETERS = Object(
    "InferParameters",
    (
        honoured("binary_data_output", Flag(), "Send all data behind the JSON."),
        honoured("timeout", Integer(1, 10**12), "Time limit of the request in microseconds."),
        honoured("priority", Integer(-100, 100), "Lower is served first."),
        honoured("truncate_prompt_tokens", CUT, "As of /v1/embeddings."),
        honoured("dimensions", Integer(1, 2**31 - 1), "As of /v1/embeddings."),
        honoured("prompt_name", Text(), "As of /v1/embeddings."),
        not_built("sequence_id", 0, "", advice="requests have no state here"),
        metadata("sequence_start"),
        metadata("sequence_end"),
    ),
)
INFER = Object(
    "InferRequest",
    (
        honoured("id", Text(), "Returned as it is."),
        honoured("parameters", PARAMETERS, "Options of the request."),
        honoured("inputs", Many(INPUT, 1, 2), "The model's inputs.", required=True),
        honoured("outputs", Many(OUTPUT, 0, 2), "Outputs to return; all by default."),
    ),
)


def _any_object(value: Json, where: str) -> Any:
    if isinstance(value, dict):
        return value
    raise refuse(ANY_OBJECT, value, where)


ANY_OBJECT = Custom("an object", _any_object, (ANYTHING,))
WORDS = Either(Text(), Many(Text(), 0, MAX_STOP))
GENERATE = Object(
    "TritonGenerateRequest",
    (
        honoured("text_input", NOT_EMPTY, "The prompt, a text.", required=True),
        honoured(
            "parameters",
            ANY_OBJECT,
            "Fields of /v1/completions (max_tokens, temperature, top_p, stop, seed, ...); they may "
            "stand beside `text_input`, too.",
        ),
        honoured("stop_words", WORDS, "TensorRT-LLM's name of `stop`."),
        honoured("bad_words", WORDS, "As of /v1/completions; a text is one word."),
        honoured("random_seed", Integer(0, 2**63 - 1), "TensorRT-LLM's name of `seed`."),
        honoured(
            "exclude_input_in_output",
            Flag(),
            "false: the prompt is before the answer, in the whole one or the first event.",
        ),
        not_built("prompt", advice="send 'text_input'"),
        not_built("n", 1),
        not_built("best_of", 1),
        not_built("echo", False, advice="send 'exclude_input_in_output': false"),
        metadata("model"),
        metadata("id"),
        metadata("stream"),
        metadata("return_log_probs", False),
        metadata("return_context_logits", False),
        metadata("return_generation_logits", False),
    ),
)
REPOSITORY_INDEX = Object(
    "RepositoryIndexRequest", (honoured("ready", Flag(), "List models that are loaded only."),)
)
REPOSITORY_PARAMETERS = Object(
    "RepositoryParameters",
    (
        not_built("config", advice="models are served as they were compiled"),
        metadata("unload_dependents"),
    ),
)
REPOSITORY_CHANGE = Object(
    "RepositoryChangeRequest",
    (honoured("parameters", REPOSITORY_PARAMETERS, "Options of loading."),),
)
