"""Items of a conversation of /v1/responses: messages, tool calls, their outputs, and reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from mlcc.api.schema.audio_fields import INPUT_AUDIO
from mlcc.api.schema.image_fields import DATA_URL, DETAIL
from mlcc.api.schema.modalities import Modalities
from mlcc.api.schema.schema import (
    NOT_EMPTY,
    Either,
    Many,
    Object,
    Tagged,
    Text,
    Use,
    honoured,
    metadata,
    not_built,
)

NO_IMAGES = "this model sees no images: leave them out, or say in words what they show"
NO_SOUND = "this model hears nothing: send a transcript, or load one that hears, as Qwen2-Audio"
FILES = "send the file's text as a part of the type 'input_text'"
MARKS = (metadata("id"), metadata("status"))
"""Fields of an answer's item that are accepted and dropped."""

PLAIN = Object("ResponsesText", (honoured("text", Text(), required=True), metadata("annotations"),
                                 metadata("logprobs")))  # fmt: skip
REFUSAL = Object("ResponsesRefusal", (honoured("refusal", Text(), required=True),))
IMAGE = Object(
    "ResponsesImage",
    (
        honoured("image_url", NOT_EMPTY, f"The image as a data URL: {DATA_URL}", required=True),
        honoured("detail", DETAIL, "low = few tokens: without tiles, or of fewer pixels."),
        not_built("file_id", advice="send the image itself as 'image_url'"),
    ),
)
TEXT_PARTS = {"input_text": PLAIN, "output_text": PLAIN, "text": PLAIN, "refusal": REFUSAL}
AUDIO = Object("ResponsesAudio", (honoured("input_audio", INPUT_AUDIO, "A sound.", required=True),))
SUMMARY_PART = Tagged("a part of a summary", {"summary_text": PLAIN})
REASONING_PART = Tagged("a part of reasoning", {"reasoning_text": PLAIN, "text": PLAIN})


def _parts(reads: Modalities) -> dict[str, Object]:
    """Parts of a message, or of a tool's output, that the model reads."""
    images = {"input_image": IMAGE} if reads.images else {}
    return {**TEXT_PARTS, **images, **({"input_audio": AUDIO} if reads.sound else {})}


def _message(reads: Modalities) -> Object:
    refused = {} if reads.images else {"input_image": NO_IMAGES}
    if not reads.sound:
        refused["input_audio"] = NO_SOUND
    part = Tagged("a text part", _parts(reads), refused={**refused, "input_file": FILES})
    return Object(
        "ResponsesMessage",
        (
            honoured(
                "role",
                Text(("user", "assistant", "system", "developer")),
                "Author; later system messages become a part of the user's turn.",
                required=True,
            ),
            honoured("content", Either(Text(), Many(part)), "The message.", required=True),
            *MARKS,
            metadata("phase"),
        ),
    )


CALL_ID = honoured("call_id", NOT_EMPTY, "The id that a call and its output share.", required=True)
NAMESPACE = honoured("namespace", Text(), "The tool's namespace, if it has one.")
FUNCTION_CALL = Object(
    "ResponsesFunctionCall",
    (
        CALL_ID,
        honoured("name", NOT_EMPTY, "The tool's name.", required=True),
        honoured("arguments", Text(), "As JSON's text; none if absent."),
        NAMESPACE,
        *MARKS,
        metadata("caller"),
    ),
)
CUSTOM_CALL = Object(
    "ResponsesCustomCall",
    (
        CALL_ID,
        honoured("name", NOT_EMPTY, "The tool's name.", required=True),
        honoured("input", Text(), "The tool's input.", required=True),
        NAMESPACE,
        *MARKS,
        metadata("caller"),
    ),
)


def _output(reads: Modalities) -> Object:
    """A tool's output: what the model does not read is left out with a note."""
    part = Tagged("a text part", _parts(reads), open=True)
    return Object(
        "ResponsesCallOutput",
        (
            CALL_ID,
            honoured("output", Either(Text(), Many(part)), "The tool's output.", required=True),
            *MARKS,
            metadata("name"),
            metadata("caller"),
        ),
    )


REASONING = Object(
    "ResponsesReasoningItem",
    (
        honoured("summary", Many(SUMMARY_PART), "Summary of the reasoning."),
        honoured("content", Many(REASONING_PART), "The reasoning in full."),
        honoured("encrypted_content", Text(), "Send it back unchanged: it holds the text."),
        *MARKS,
    ),
)
REFERENCE = Object(
    "ResponsesItemReference", (honoured("id", NOT_EMPTY, "A stored item.", required=True),)
)
HOSTED = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"}
    | {"mcp_list_tools", "mcp_call", "mcp_approval_request", "computer_call", "local_shell_call"}
    | {"shell_call", "apply_patch_call", "tool_search_call", "tool_search_output", "compaction"}
)
"""Items of tools that OpenAI runs, in a conversation that began there: left out, and named. The
model's words about what they found are messages."""


@cache
def item_of(reads: Modalities) -> Tagged:
    """An item, with images for a model that sees, and sounds for one that hears."""
    output = _output(reads)
    return Tagged(
        "an item of a conversation",
        {
            "message": _message(reads),
            "function_call": FUNCTION_CALL,
            "function_call_output": output,
            "custom_tool_call": CUSTOM_CALL,
            "custom_tool_call_output": output,
            "reasoning": REASONING,
            "item_reference": REFERENCE,
        },
        default="message",
        dropped=HOSTED,
    )


def known(kind: Any, value: Any) -> Any:
    """A value without unknown fields, without metadata that is an array or an object, and without
    what is left out of an open union (a file): what is stored of it. What has another type than
    `kind` stays, for the check to refuse."""
    if isinstance(kind, Tagged) and isinstance(value, Mapping):
        tag = kind.kind(value)
        if isinstance(tag, str) and tag in kind.kinds:
            return {kind.key: tag, **known(kind.kinds[tag], value)}
        return {kind.key: tag} if isinstance(tag, str) and kind.keeps_name(tag) else value
    if isinstance(kind, Object) and isinstance(value, Mapping):
        return {
            row.name: given if row.use is Use.METADATA else known(row.type, given)
            for row in kind.fields
            if (given := value.get(row.name)) is not None
            and not (row.use is Use.METADATA and isinstance(given, (list, Mapping)) and given)
        }
    if isinstance(kind, Many) and isinstance(value, list):
        return [known(kind.item, each) for each in value]
    if isinstance(kind, Either):
        return known(kind.array if isinstance(value, list) else kind.plain, value)
    return value
