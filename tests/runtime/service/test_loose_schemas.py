"""Schemas that are not strict: what can be enforced is, and the rest is named in a header; strict
ones are refused. Errors and the header name the fields of the protocol that was spoken. The judge
of answers is jsonschema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mlcc.api.schema.unknown_fields import HEADER
from mlcc.model.structured_output.schema_keywords import LEVELS, relaxed
from tests.helpers.dictated_model import PLAIN_TEMPLATE, scripted
from tests.helpers.service_calls import CHAT, Calls, Response, calls_to

pytest.importorskip("llguidance", reason="needs llguidance: pip install mlcc[structured]")

ANSWER = {"a": 5}
INT = {"type": "integer"}
LOOSE: list[tuple[dict[str, Any], Any, list[str]]] = [
    ({**INT, "nullable": True}, 5, [".nullable"]),
    ({**INT, "x-order": 1}, 5, [".x-order"]),
    ({**INT, "format": "int64"}, 5, [".format"]),
    ({"type": "string", "format": "path"}, "a/b", [".format"]),
    ({"type": "string", "format": "password", "writeOnly": True}, "s", [".format"]),
    ({"type": "string", "contentMediaType": "text/plain"}, "s", [".contentMediaType"]),
    ({"type": "string", "pattern": "^(?=a)ab$"}, "ab", [".pattern"]),
    ({"type": "string", "format": "time", "pattern": r"^\d\d:\d\d$"}, "12:30", [".format"]),
    ({"type": "string", "format": "email", "pattern": "^(?!x)"}, "a@b.co", [".pattern"]),
    ({"type": "object", "patternProperties": {"^(?!k)": INT}, "additionalProperties": False},
     {"j": 1}, [".patternProperties", ".additionalProperties"]),
    ({"type": "object", "patternProperties": {"^a": INT, "b$": INT}}, {"ab": 1},
     [".patternProperties"]),
    ({"type": "array", "items": INT, "uniqueItems": False}, [1], [".uniqueItems"]),
    ({"type": "array", "items": {**INT, "not": {"const": 2}}, "minItems": 1}, [1], [".items.not"]),
    ({"oneOf": [INT, {"type": "number", "minimum": 10}]}, 5, [".oneOf"]),
    ({"anyOf": [INT], "oneOf": [INT, {"type": "number", "minimum": 10}]}, 5, [".oneOf"]),
    ({"type": "object", "additionalProperties": INT, "minProperties": 2}, {"k": 1, "l": 2},
     []),
    ({"type": "object", "additionalProperties": INT, "minProperties": 1}, {"k": 1}, []),
    ({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": INT},
     {"k": 1}, [".propertyNames"]),
    ({"type": "object", "propertyNames": {"enum": ["k"]}, "additionalProperties": INT},
     {"k": 1}, []),
    ({"type": "object", "oneOf": [{"required": ["k"]}, {"required": ["l"]}]}, {"k": 1}, [".oneOf"]),
    ({"oneOf": [{"const": "x", "title": "X"}, {"type": ["integer", "null"]}]}, "x", []),
    ({"type": "object", "propertyNames": {"pattern": "^k+$"}, "additionalProperties": INT},
     {"kk": 1}, []),
    ({"type": "number", "minimum": -1.7976931348623157e308, "maximum": 9.0}, 5.5, [".minimum"]),
    ({"type": "number", "minimum": 0, "exclusiveMaximum": 1e30}, 5, [".exclusiveMaximum"]),
    ({**INT, "minimum": -((1 << 53) - 1), "maximum": (1 << 53) - 1}, 5, []),
    ({"type": "string", "maxLength": (1 << 53) - 1}, "s", [".maxLength"]),
    ({"type": "string", "minLength": 1.0, "maxLength": 10.0}, "s", []),
    ({"type": "array", "items": INT, "maxItems": 1e12}, [1], []),
    ({"type": "string", "deprecated": True, "readOnly": True, "examples": ["x"]}, "s", []),
]  # fmt: skip


def schema_of(inner: dict[str, Any]) -> dict[str, Any]:
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    one = {"required": ["a"], "additionalProperties": False}
    return {"type": "object", "properties": {"a": inner}, **one, **draft}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    def answer(prompt: str) -> str:
        return prompt.rpartition("say ")[2].partition("\n")[0]

    folder = tmp_path_factory.mktemp("scripted")
    with calls_to(scripted(folder, answer, PLAIN_TEMPLATE)) as calls:
        yield calls


def ask(service: Calls, schema: Any, value: Any, **more: Any) -> Response:
    messages = [{"role": "user", "content": f"say {json.dumps(value)}"}]
    body = {"messages": messages, "max_tokens": 200, **more}
    if not more:
        form = {"name": "x", "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return service.post("/v1/chat/completions", body)


@pytest.mark.parametrize(("inner", "value", "names"), LOOSE, ids=lambda v: json.dumps(v)[:40])
def test_a_schema_is_held_to_as_far_as_can_be(
    service: Calls, inner: dict[str, Any], value: Any, names: list[str]
) -> None:
    schema, field = schema_of(inner), "response_format.json_schema.schema"
    response = ask(service, schema, {"a": value})
    assert response.status == 200, response.body
    text = response.body["choices"][0]["message"]["content"]
    assert json.loads(text) == {"a": value}
    jsonschema.validate(json.loads(text), schema)
    wanted = ", ".join(f"{field}.properties.a{name}" for name in names)
    assert response.headers.get(HEADER, "") == wanted
    form = {"name": "x", "schema": schema, "strict": True}
    strict = ask(service, schema, {"a": value}, response_format={
        "type": "json_schema", "json_schema": form})  # fmt: skip
    refused = bool(names) or "propertyNames" in inner
    if inner.get("format") != "int64":  # says nothing about a number
        assert strict.status == (400 if refused else 200)
    if strict.status == 400:
        assert strict.body["error"]["param"] == field


def test_keywords_that_are_null_are_absent(service: Calls) -> None:
    """As libraries send fields of theirs that have no value."""
    inner = {"type": "array", "items": {**INT, "minimum": None, "enum": None}, "required": None}
    response = ask(service, schema_of({**inner, "properties": None, "$ref": None}), {"a": [5]})
    assert response.status == 200, response.body
    assert response.body["choices"][0]["message"]["content"] == '{"a": [5]}'


@pytest.mark.parametrize("pattern", ["^[^]+$", r"^\cJ$"])
def test_expressions_that_only_ecma_262_has_are_left_out(service: Calls, pattern: str) -> None:
    response = ask(service, schema_of({"type": "string", "pattern": pattern}), {"a": "b"})
    assert response.status == 200, response.body
    assert response.headers[HEADER].endswith(".pattern")


@pytest.mark.parametrize("name", ["Box[int]", "Größe", "a b", "Map<a, b>"])
def test_names_of_any_characters_in_references(service: Calls, name: str) -> None:
    """Pydantic names a generic model with brackets; `$ref` is a URI reference of RFC 3986."""
    schema = {"$defs": {name: INT}, **schema_of({"$ref": f"#/$defs/{name}"})}
    for value in (5, "x"):
        response = ask(service, schema, {"a": value})
        assert response.status == 200, response.body
        found = response.body["choices"][0]["message"]["content"] == json.dumps({"a": value})
        assert found == (value == 5)


def test_pointers_of_an_openapi_document(service: Calls) -> None:
    """What is left out is named where it was written."""
    pet = {"type": "object", "properties": {"n": {"$ref": "#/components/schemas/Name"}},
           "required": ["n"], "additionalProperties": False}  # fmt: skip
    parts = {"Pet": pet, "Name": {**INT, "nullable": True}, "Unused": {"not": {}}}
    schema = {**schema_of({"$ref": "#/components/schemas/Pet"}), "components": {"schemas": parts}}
    for value in ({"n": 5}, {"n": "x"}):
        response = ask(service, schema, {"a": value})
        assert response.status == 200, response.body
        place = "response_format.json_schema.schema.components.schemas.Name.nullable"
        assert response.headers[HEADER] == place
        said = response.body["choices"][0]["message"]["content"]
        assert (said == json.dumps({"a": value})) == (value["n"] == 5)


def test_pydantics_tagged_unions_and_names_of_an_enum(service: Calls) -> None:
    """Its `oneOf` of references has a `discriminator`, and `dict[Enum, int]` a `$ref` to names."""
    kinds = {name: {"type": "object", "required": ["kind"], "title": name,
                    "properties": {"kind": {"const": name, "type": "string"}}}
             for name in ("cat", "dog")}  # fmt: skip
    mapping = {name: f"#/$defs/{name}" for name in kinds}
    union = {"discriminator": {"mapping": mapping, "propertyName": "kind"},
             "oneOf": [{"$ref": ref} for ref in mapping.values()]}  # fmt: skip
    names = {"type": "object", "propertyNames": {"$ref": "#/$defs/E"}, "additionalProperties": INT}
    schema = schema_of({"anyOf": [union, names]})
    schema["$defs"] = {**kinds, "E": {"enum": ["k", "l"], "title": "E", "type": "string"}}
    for value, held in (({"kind": "dog"}, True), ({"k": 1}, True), ({"m": 1}, False)):
        response = ask(service, schema, {"a": value})
        assert response.status == 200 and HEADER not in response.headers, response.headers
        said = response.body["choices"][0]["message"]["content"]
        assert (said == json.dumps({"a": value})) == held


@pytest.mark.parametrize("level", range(LEVELS))
def test_a_relaxed_schema_allows_what_the_schema_allows(level: int) -> None:
    for inner, value, _ in LOOSE:
        kept, left_out = relaxed(schema_of(inner), level)
        jsonschema.validate({"a": value}, kept)
        assert len(left_out) == len(set(left_out))


BAD = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 1}},
       "required": ["a"]}  # fmt: skip
TOOL = {"name": "f", "parameters": BAD, "strict": True}
SAY = 'say {"a": 1}'
HI = [{"role": "user", "content": SAY}]
RAW = f"{SAY}\n<|im_start|>assistant\n"
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("/v1/chat/completions", "response_format.schema",
     {"messages": HI, "response_format": {"type": "json_object", "schema": BAD}}),
    ("/v1/chat/completions", "response_format.schema",
     {"messages": HI, "response_format": {"type": "json_schema", "schema": BAD}}),
    ("/v1/chat/completions", "guided_json", {"messages": HI, "guided_json": BAD}),
    ("/v1/chat/completions", "structured_outputs.json",
     {"messages": HI, "structured_outputs": {"json": BAD}}),
    ("/v1/completions", "guided_json", {"prompt": RAW, "guided_json": BAD}),
    ("/completion", "json_schema", {"prompt": RAW, "json_schema": BAD}),
    ("/v1/responses", "text.format.schema",
     {"input": SAY, "text": {"format": {"type": "json_schema", "name": "x", "schema": BAD}}}),
    ("/v1/responses", "tools[1].parameters",
     {"input": SAY, "tools": [{"type": "web_search"}, {"type": "function", **TOOL}]}),
    ("/v1/messages", "output_config.format.schema",
     {"model": "scripted", "max_tokens": 90, "messages": HI,
      "output_config": {"format": {"type": "json_schema", "schema": BAD}}}),
    ("/v1/messages", "tools[0].input_schema",
     {"model": "scripted", "max_tokens": 90, "messages": HI,
      "tools": [{"name": "f", "input_schema": BAD, "strict": True}]}),
    ("/v1/chat/completions", "tools[0].function.parameters",
     {"messages": HI, "tools": [{"type": "function", "function": TOOL}]}),
    ("/api/chat", "format", {"messages": HI, "format": BAD}),
    ("/api/generate", "format", {"prompt": SAY, "format": BAD}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "field", "body"), CASES, ids=lambda v: str(v)[:30])
def test_fields_are_named_as_they_were_sent(
    service: Calls, path: str, field: str, body: dict[str, Any]
) -> None:
    response = service.post(path, {**body, "stream": False})
    assert response.status == 400 and f"'{field}'" in json.dumps(response.body)
    loose = json.loads(json.dumps(body).replace('"minimum": 3', '"x-note": 3'))
    if "tools" not in body:
        response = service.post(path, {**loose, "stream": False})
        assert response.status == 200, response.body
        assert response.headers[HEADER] == f"{field}.properties.a.x-note"


def test_what_is_left_out_of_a_tools_arguments_is_named(service: Calls) -> None:
    tool = {"name": "f", "parameters": schema_of({"type": "string", "format": "path"})}
    body = {"messages": HI, "tools": [{"type": "function", "function": tool}]}
    headers = service.post("/v1/chat/completions", body).headers
    assert headers[HEADER] == "tools[0].function.parameters.properties.a.format"


PET = {"$ref": "#/components/schemas/Pet"}
OF_PETS = {
    "type": "object",
    "properties": {"pet": PET, "n": INT, "m": {"$ref": "#/properties/n"}},
    "required": ["pet"],
    "additionalProperties": False,
    "components": {"schemas": {"Pet": {"type": "object", "properties": {"mate": PET}}}},
}


@pytest.mark.parametrize("parser", ["hermes", "pythonic", "qwen-xml", "glm", "gemma4"])
@pytest.mark.parametrize("strict", [False, True])
def test_arguments_may_refer_to_any_place(tmp_path: Path, parser: str, strict: bool) -> None:
    """The grammars of formats that write each argument by itself have its definitions too."""
    tool = {"name": "f", "parameters": OF_PETS, "strict": strict}
    body = {"messages": HI, "tools": [{"type": "function", "function": tool}], "max_tokens": 1}
    with calls_to(scripted(tmp_path, "no", PLAIN_TEMPLATE, tool_parser=parser)) as calls:
        response = calls.post("/v1/chat/completions", {**body, "tool_choice": "required"})
    assert response.status == 200 and HEADER not in response.headers, response


@pytest.mark.parametrize("word", ["x-note", "minContains"])
def test_a_strict_tool_is_refused_for_what_is_not_enforced(service: Calls, word: str) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "object", word: 2}}}
    tool = {"name": "f", "parameters": parameters, "strict": True}
    body = {"messages": HI, "tools": [{"type": "function", "function": tool}]}
    response = service.post("/v1/chat/completions", body)
    assert response.status == 400 and repr(word) in response.body["error"]["message"]
    assert response.body["error"]["param"] == "tools[0].function.parameters"


@pytest.mark.parametrize(("parser", "refused"), [("hermes", False), ("qwen-xml", True)])
def test_open_names_of_calls_that_are_not_json_may_come_twice(
    tmp_path: Path, parser: str, refused: bool
) -> None:
    """So a number of them is enforced in JSON only."""
    parameters = {"type": "object", "properties": {"a": {"type": "object", "minProperties": 2}}}
    tool = {"name": "f", "parameters": parameters, "strict": True}
    body = {"messages": HI, "tools": [{"type": "function", "function": tool}], "max_tokens": 1}
    with calls_to(scripted(tmp_path, "no", PLAIN_TEMPLATE, tool_parser=parser)) as calls:
        strict = calls.post(CHAT, body)
        loose = calls.post(CHAT, {**body, "tools": [{"type": "function", "function": {
            **tool, "strict": False}}], "tool_choice": "required"})  # fmt: skip
    assert (strict.status == 400) == refused
    wanted = "tools[0].function.parameters.properties.a.minProperties" if refused else ""
    assert loose.headers.get(HEADER, "") == wanted


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_one_tools_keyword_costs_no_other_tool_its_schema(choice: str, tmp_path: Path) -> None:
    """Of a tool whose schema is refused as a whole as much is held as can be."""
    marks = ("<tool_call>", "</tool_call>")
    said = '<tool_call>\n{"name": "%s", "arguments": {"a": "x", "n": "5"}}\n</tool_call>'
    properties = {"a": {"type": "string", "pattern": "^(?=x)x$"}, "n": INT}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": each, "required": [*each]}}}
        for name, each in (("odd", properties), ("plain", {**properties, "a": {"type": "string"}}))
    ]  # fmt: skip
    for name in ("odd", "plain"):
        with calls_to(scripted(tmp_path, said % name, marks=marks)) as calls:
            body = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 60}
            response = calls.post(CHAT, {**body, "tools": tools, "tool_choice": choice})
        assert response.headers[HEADER] == "tools[0].function.parameters.properties.a.pattern"
        made = response.body["choices"][0]
        if made["finish_reason"] == "tool_calls":
            (call,) = made["message"]["tool_calls"]
            assert type(json.loads(call["function"]["arguments"])["n"]) is int
