"""TGI's requests as tables of fields. `request.py` translates them to OpenAI's."""

from __future__ import annotations

from mlcc.api.schema.chat_fields import (
    COUNT,
    LEAST_REPETITION,
    LIKELIEST,
    MAX_STOP,
    MOST_ANSWERS,
    SEED,
)
from mlcc.api.schema.schema import (
    ANYTHING,
    NOT_EMPTY,
    Flag,
    Integer,
    Many,
    Number,
    Object,
    Text,
    honoured,
    metadata,
    not_built,
)

LEAST = 1e-6
"""TGI's bounds leave 0 out."""
GRAMMAR = Object(
    "TgiGrammar",
    (
        honoured("type", Text(("json", "regex", "json_schema")), "Its kind.", required=True),
        honoured("value", ANYTHING, "A JSON Schema, or a regular expression.", required=True),
    ),
    closed=True,
)
PARAMETERS = Object(
    "TgiParameters",
    (
        honoured("adapter_id", NOT_EMPTY, "The LoRA adapter to answer with."),
        honoured(
            "best_of",
            Integer(1, MOST_ANSWERS),
            "Sample this many answers and send the likeliest, by mean log-probability.",
        ),
        honoured("decoder_input_details", Flag(), "With `details`: the prompt's tokens, too."),
        honoured("details", Flag(), "Report the tokens and why the answer ended."),
        honoured(
            "do_sample",
            Flag(),
            "Sample; false is greedy, unless a temperature or a filter is given.",
        ),
        honoured("frequency_penalty", Number(-2, 2), "As OpenAI's."),
        honoured("grammar", GRAMMAR, "What the answer must be."),
        honoured("max_new_tokens", COUNT, "Longest answer in tokens; 100 by default."),
        honoured(
            "repetition_penalty",
            Number(LEAST_REPETITION, 10),
            "Above 1, makes tokens of prompt and answer less likely.",
        ),
        honoured("return_full_text", Flag(), "Send the prompt before the answer."),
        honoured("seed", SEED, "The same seed and prompt give the same answer."),
        honoured(
            "stop",
            Many(NOT_EMPTY, 0, MAX_STOP),
            "The answer ends behind the first of these, which is part of it, as in TGI.",
        ),
        honoured("temperature", Number(LEAST, 2), "Divides the logits."),
        honoured("top_k", COUNT, "Keep this many of the likeliest tokens."),
        honoured("top_n_tokens", LIKELIEST, "With `details`: the likeliest at each position."),
        honoured("top_p", Number(LEAST, 1), "Keep the likeliest tokens of this mass."),
        honoured("truncate", COUNT, "Keep the last tokens of the prompt, this many."),
        honoured("typical_p", Number(LEAST, 1), "As of `/v1/completions`."),
        not_built("watermark", False),
        metadata("max_time"),
        metadata("num_beams", 1),
        metadata("use_cache"),
    ),
)
COMMON = (
    honoured("inputs", NOT_EMPTY, "The prompt, a text.", required=True),
    honoured("parameters", PARAMETERS, "How the answer is sampled."),
    honoured("model", NOT_EMPTY, "Which model, where there are several; TGI has no such field."),
    metadata("options"),
)
GENERATE = Object("TgiRequest", COMMON)
COMPATIBLE = Object(
    "TgiStreamableRequest",
    (
        *COMMON,
        honoured("stream", Flag(), "Send the answer as it is made, as server-sent events."),
    ),
)
"""Of POST /, where TGI's clients send both kinds."""
