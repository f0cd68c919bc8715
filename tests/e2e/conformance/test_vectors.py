"""The vector files: well formed, complete, and with a vector for every field of the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from mlcc.api.schema import chat_fields, message_fields, structured_output
from mlcc.api.schema.schema import Field, Object, Use
from tests.e2e.conformance.helpers.answers import KINDS
from tests.e2e.conformance.helpers.matching import Json, rule_of
from tests.e2e.conformance.vectors import FOLDER, expanded, layout, load, parse, read

FILES = sorted(FOLDER.glob("*.json"))
OBJECTS = {
    "ChatCompletionRequest": (chat_fields.CHAT, r"^{}(\[|$)"),
    "CompletionRequest": (chat_fields.COMPLETION, r"^{}(\[|$)"),
    "Message": (message_fields.MESSAGE, r"^messages\[\d+\]\.{}(\[|$)"),
    "TextPart": (message_fields.TEXT_PART, r"^messages\[\d+\]\.content\[\d+\]\.{}$"),
    "RefusalPart": (message_fields.REFUSAL_PART, r"^messages\[\d+\]\.content\[\d+\]\.{}$"),
    "StreamOptions": (chat_fields.STREAM_OPTIONS, r"^stream_options\.{}$"),
    "Prediction": (chat_fields.PREDICTION_CONTENT, r"^prediction\.{}(\[|$)"),
    "ThinkingSwitch": (chat_fields.THINKING_SWITCH, r"^thinking\.{}(\[|$)"),
    "ResponseFormat": (structured_output.RESPONSE_FORMAT, r"^response_format\.{}$"),
    "JsonSchemaFormat": (
        structured_output.JSON_SCHEMA_FORMAT,
        r"^response_format\.json_schema\.{}$",
    ),
    "StructuredOutputs": (structured_output.STRUCTURED_OUTPUTS, r"^structured_outputs\.{}$"),
}
"""Each object of the API, and how an error's `param` spells one of its fields."""
ROWS = [(name, field) for name, (table, _) in OBJECTS.items() for field in table.fields]


def steps(entries: list[Json]) -> Iterator[Json]:
    """All steps, nested ones included."""
    for step in entries:
        yield from steps(step["together"]) if "together" in step else [step]
        yield from steps(step.get("leave", {}).get("meanwhile", []))


STEPS = [step for vector in load() for step in steps(vector.steps)]


def uses(path: str, body: Json) -> Iterator[tuple[str, str, Json]]:
    """(object, field, value) of everything that a request's body says."""
    chat = KINDS[path].chat
    yield from _members("ChatCompletionRequest" if chat else "CompletionRequest", body)
    yield from _members("StreamOptions", body.get("stream_options"))
    yield from _members("Prediction", body.get("prediction"))
    yield from _members("ThinkingSwitch", body.get("thinking"))
    kind = body.get("response_format")
    yield from _members("ResponseFormat", kind)
    yield from _members("JsonSchemaFormat", (kind or {}).get("json_schema"))
    yield from _members("StructuredOutputs", body.get("structured_outputs"))
    for message in body.get("messages") or [] if chat else []:
        yield from _members("Message", message)
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else []:
            refuses = isinstance(part, dict) and part.get("type") == "refusal"
            yield from _members("RefusalPart" if refuses else "TextPart", part)


def _members(name: str, value: Json) -> Iterator[tuple[str, str, Json]]:
    if isinstance(value, dict):
        yield from ((name, key, entry) for key, entry in value.items())


def accepted() -> list[tuple[str, str, Json]]:
    """Uses of fields in requests that must be answered."""
    requests = [
        (step["request"]["path"], step["request"]["body"])
        for step in STEPS
        if step["expect"].get("status", 200) == 200
        and "body" in step["request"]
        and str(step["request"]["path"]) in KINDS
    ]
    return [use for path, body in requests for use in uses(path, expanded(body))]


def refused(name: str, field: Field) -> list[str]:
    """The codes of the errors that name this field."""
    pattern = OBJECTS[name][1].format(re.escape(field.name))
    chat = name != "CompletionRequest"
    return [
        step["expect"]["error"]["code"]
        for step in STEPS
        if str(step["request"]["path"]) in KINDS  # a path may be the result of an earlier step
        and KINDS[step["request"]["path"]].chat is chat
        and re.search(pattern, step["expect"].get("error", {}).get("param") or "")
    ]


ACCEPTED = accepted()


def test_a_step_that_reads_the_counters_of_the_engine_waits_for_them() -> None:
    """`engine` is null before a replica's first report and in a long step."""
    reading = [
        step
        for step in STEPS
        if step["request"]["path"] == "/health" and "engine" in str(step["expect"])
    ]
    assert reading and all(step.get("within") for step in reading)


def test_the_objects_here_are_all_there_are() -> None:
    modules = (chat_fields, message_fields, structured_output)
    values = [value for module in modules for value in vars(module).values()]
    tables = {value.name for value in values if isinstance(value, Object)}
    # No model of the vectors sees or hears: tests/runtime/multimodal/test_{api,audio_api}.py.
    tables -= {"ImagePart", "AudioPart"}
    assert tables == OBJECTS.keys()


@pytest.mark.parametrize(("name", "field"), ROWS, ids=lambda v: getattr(v, "name", v))
def test_every_field_has_vectors(name: str, field: Field) -> None:
    values = [value for where, key, value in ACCEPTED if (where, key) == (name, field.name)]
    codes = refused(name, field)
    if field.use is Use.METADATA:
        assert values, "no vector shows that it is accepted"
    elif field.use is Use.NOT_BUILT:
        assert "unsupported_parameter" in codes, "no vector shows that it is refused"
        for neutral in (None, *field.neutral):
            assert neutral in values, f"no vector shows that {neutral!r} is accepted"
    else:
        assert any(value is not None for value in values), "no vector uses it"
        assert codes, "no vector shows what is refused"
        if field.required:
            assert "missing_required_parameter" in codes
        elif name != "Message":
            assert None in values, "no vector shows that null is accepted"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_are_written_in_the_one_layout(path: Any) -> None:
    assert path.read_bytes() == layout(read(path)), "run `python -m conformance URL --record`"


def test_every_why_is_a_sentence_and_every_recording_is_there() -> None:
    for entry in (entry for path in FILES for entry in read(path)):
        assert entry["why"].endswith(".") and " " in entry["why"], entry["name"]
        assert None not in list(_recordings(entry)), entry["name"]


def _recordings(value: Json) -> Iterator[Json]:
    if (rule := rule_of(value)) and rule[0] == "$record":
        yield rule[1]
    elif isinstance(value, (dict, list)):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _recordings(entry)


ASK: Json = {"name": "a", "why": "b", "request": {"path": "/"}, "expect": {}}


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ({**ASK, "expcet": {}}, "expcet"),
        ({**ASK, "expect": {"stauts": 200}}, "stauts"),
        ({**ASK, "request": {"pth": "/"}}, "pth"),
        ({**ASK, "leave": {"event": 3}}, "event"),
        ({"name": "a", "why": "b", "request": {"path": "/"}}, "expect"),
        ({"name": "a", "why": "b", "steps": [{"request": {"path": "/"}}]}, "expect"),
        ({"name": "a", "why": "b", "steps": [{"together": [{"ask": 1}]}]}, "ask"),
        ({"name": "a", **ASK, "why": "b", "steps": []}, "request"),
    ],
)
def test_a_misspelt_key_is_an_error(entry: Json, word: str) -> None:
    with pytest.raises(ValueError, match=f"topic/a: '{word}'|topic/a: 'expect'"):
        parse("topic", entry)
