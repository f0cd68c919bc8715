"""The fields of structured output, by OpenAI's, vLLM's and llama.cpp's names.

Whether a structure is supported is decided behind the port `mlcc.engine.sampling.grammar`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlcc.api.schema.schema import (
    ANYTHING,
    Custom,
    Flag,
    Json,
    Many,
    Object,
    Text,
    honoured,
    metadata,
    not_built,
    refuse,
)
from mlcc.engine.sampling.grammar import Kind, Structure
from mlcc.errors import InvalidRequestError

MOST_CHOICES = 4096


def _schema(value: Json, where: str) -> str:
    """A schema as JSON text; vLLM's clients also send text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, (Mapping, bool)):
        raise refuse(SCHEMA, value, where)
    return json.dumps(value)


def _only_true(value: Json, where: str) -> str:
    """A schema for any object; false means no constraint."""
    return json.dumps({"type": "object"}) if Flag().check(value, where) else ""


TEXT = Text(allow_empty=False)
SCHEMA = Custom("a JSON Schema", _schema, (ANYTHING,))
CHOICES = Many(TEXT, 1, MOST_CHOICES)
ANY_OBJECT = Custom("true or false", _only_true, (Flag(),))

JSON_SCHEMA_FORMAT = Object(
    "JsonSchemaFormat",
    (
        honoured("schema", SCHEMA, "The schema of the answer.", required=True),
        metadata("name"),
        metadata("description"),
        honoured(
            "strict",
            Flag(),
            "Refuse a schema that cannot be enforced in full, instead of enforcing a part of it.",
        ),
    ),
    closed=True,
)
RESPONSE_FORMAT = Object(
    "ResponseFormat",
    (
        honoured(
            "type",
            Text(("text", "json_object", "json_schema")),
            "Type of the answer.",
            required=True,
        ),
        honoured("json_schema", JSON_SCHEMA_FORMAT, "Only with the type `json_schema`."),
        honoured("schema", SCHEMA, "llama.cpp's place of a schema, with either JSON type."),
    ),
    closed=True,
)
STRUCTURED_OUTPUTS = Object(
    "StructuredOutputs",
    (
        honoured("json", SCHEMA, "A JSON Schema."),
        honoured("json_object", ANY_OBJECT, "Any JSON object."),
        honoured("regex", TEXT, "A regular expression for the whole answer."),
        honoured("choice", CHOICES, "The answer is one of these."),
        honoured("grammar", TEXT, "A grammar, in GBNF or Lark."),
        not_built("structural_tag"),
        not_built("whitespace_pattern"),
        not_built("disable_any_whitespace", False),
        not_built("disable_additional_properties", False),
        metadata("disable_fallback"),
    ),
    closed=True,
)
STRUCTURE = (
    honoured("response_format", RESPONSE_FORMAT, "The answer is JSON."),
    honoured("structured_outputs", STRUCTURED_OUTPUTS, "One constraint on the answer."),
    honoured("guided_json", SCHEMA, "vLLM's older name of a JSON Schema."),
    honoured("guided_regex", TEXT, "vLLM's older name of a regular expression."),
    honoured("guided_choice", CHOICES, "vLLM's older name of a list of answers."),
    honoured("guided_grammar", TEXT, "vLLM's older name of a grammar."),
    not_built("guided_whitespace_pattern"),
    metadata("guided_decoding_backend"),
    honoured("grammar", TEXT, "llama.cpp's name of a grammar in GBNF."),
    honoured("json_schema", SCHEMA, "llama.cpp's name of a JSON Schema."),
)
"""Rows of every generating request."""

_KINDS: dict[str, Kind] = {
    "structured_outputs.json": "json_schema",
    "structured_outputs.json_object": "json_schema",
    "structured_outputs.regex": "regex",
    "structured_outputs.choice": "choice",
    "structured_outputs.grammar": "grammar",
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "grammar": "grammar",
    "json_schema": "json_schema",
}


def structure_of(fields: Mapping[str, Any]) -> Structure | None:
    """The constraint in checked fields; None = there is none. Raises InvalidRequestError for more
    than one."""
    inner = fields.get("structured_outputs") or {}
    given = {**fields, **{f"structured_outputs.{name}": inner[name] for name in inner}}
    found = [
        _structure(kind, given[name], name) for name, kind in _KINDS.items() if given.get(name)
    ]
    found += _of_format(fields.get("response_format"))
    if len(found) > 1:
        raise InvalidRequestError(
            f"'{found[0].field}' and '{found[1].field}' both say what the answer must be; send one",
            param=found[1].field,
            code="invalid_value",
        )
    return found[0] if found else None


def _structure(kind: Kind, value: Any, name: str) -> Structure:
    text = value if isinstance(value, str) else json.dumps(value)
    return Structure(kind, text, name, strict=False)


def _of_format(given: Mapping[str, Any] | None) -> list[Structure]:
    if given is None:
        return []
    kind, schema, plain = given["type"], given.get("json_schema"), given.get("schema")
    if plain is not None:
        return [_plain_schema(kind, plain, schema is not None)]
    if (kind == "json_schema") != (schema is not None):
        raise InvalidRequestError(
            "'response_format.json_schema' belongs to the type 'json_schema', and must be there",
            param="response_format.json_schema",
            code="invalid_value",
        )
    if schema is not None:
        field, strict = "response_format.json_schema.schema", schema.get("strict", False)
        return [Structure("json_schema", schema["schema"], field, strict)]
    if kind == "json_object":
        return [Structure("json_schema", json.dumps({"type": "object"}), "response_format")]
    return []


def _plain_schema(kind: str, schema: str, twice: bool) -> Structure:
    """llama.cpp's form of a schema, with either type. twice: OpenAI's form is there, too."""
    field = "response_format.schema"
    if kind == "text" or twice:
        raise InvalidRequestError(
            f"'{field}' belongs to the types 'json_object' and 'json_schema', and goes without "
            "'json_schema'; send one of them",
            param=field,
            code="invalid_value",
        )
    return Structure("json_schema", schema, field, strict=False)
