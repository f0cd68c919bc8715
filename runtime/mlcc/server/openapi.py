"""The OpenAPI document, generated from the schema tables: requests from
`mlcc.api.schema.chat_fields`, responses from the typed dictionaries of `mlcc.api.openai.shapes`,
routes from `mlcc.service.http.routes`.

It describes; validation and its error messages belong to those tables.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from mlcc import __version__
from mlcc.api.anthropic import shapes as anthropic_shapes
from mlcc.api.kserve import shapes as kserve_shapes
from mlcc.api.llamacpp import shapes as llamacpp_shapes
from mlcc.api.ollama import shapes as ollama_shapes
from mlcc.api.openai import batch_shapes, shapes
from mlcc.api.openai_responses import shapes as responses_shapes
from mlcc.api.schema.schema import (
    ByToken,
    Custom,
    Either,
    Field,
    Flag,
    Integer,
    JsonType,
    Many,
    Number,
    Object,
    Tagged,
    Text,
    Use,
)
from mlcc.api.tgi import shapes as tgi_shapes
from mlcc.errors import MlccError
from mlcc.service.http.routes import (
    HEALTH,
    KSERVE_LIVE,
    KSERVE_READY,
    PLAIN_TEXT,
    READY,
    ROUTES,
    Route,
)
from mlcc.service.http.types import (
    LINES_TYPE,
    ApiResponse,
    anthropic_error_response,
    error_response,
    kserve_error_response,
    ollama_error_response,
    tgi_error_response,
)

Schema = dict[str, Any]
SHAPES = (
    *(shapes, batch_shapes, responses_shapes, anthropic_shapes, ollama_shapes, llamacpp_shapes),
    *(tgi_shapes, kserve_shapes),
)
"""Modules whose typed dictionaries are response types."""

PUBLIC = (HEALTH, READY, KSERVE_LIVE, KSERVE_READY)
"""Routes that need no API key, so that monitoring can use them. Neither does the OpenAPI document:
it reveals nothing that mlcc's sources do not."""
_ABOUT = "A language model behind OpenAI's API. A field that is not built is refused by name."
_KEY = {
    "type": "http",
    "description": "A key of `--api-key` or `--api-keys`, if the server has one; also taken as the "
    "header x-api-key.",
    "scheme": "bearer",
}
_NOT_BUILT = "Not built yet: accepted only with a value that changes nothing."
_METADATA = "Accepted; never changes an answer."
_PLAIN: Mapping[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_EVENTS = (
    "With `stream`, server-sent events: each is one of these. OpenAI's chunks end with [DONE]."
)
_LINES = "With `stream`, lines of JSON: each is one of these."
_ERRORS: Mapping[Callable[[MlccError], ApiResponse], str] = {
    error_response: "ErrorBody",
    anthropic_error_response: "AnthropicError",
    ollama_error_response: "OllamaError",
    tgi_error_response: "TgiError",
    kserve_error_response: "KserveError",
}


def openapi_document(root_path: str = "") -> Schema:
    """Return the document of all routes. root_path: the prefix that a proxy adds to paths."""
    document: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "mlcc", "description": _ABOUT, "version": __version__},
    }
    if root_path:
        document["servers"] = [{"url": root_path}]
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    document["paths"] = paths
    document["components"] = {"securitySchemes": {"key": _KEY}, "schemas": _components(ROUTES)}
    return document


def _operation(route: Route) -> Schema:
    words = [route.method.lower(), *re.findall(r"\w+", route.path)]
    found: Schema = {"summary": route.summary, "operationId": "_".join(words)}
    if route not in PUBLIC:
        found["security"] = [{"key": []}]
    if names := re.findall(r"\{(\w+)\}", route.path):
        word = {"in": "path", "required": True, "schema": {"type": "string"}}
        found["parameters"] = [{"name": name, **word} for name in names]
    if route.body:
        body = {"application/json": {"schema": _ref(route.body.name)}}
        found["requestBody"] = {"required": True, "content": body}
    if route.form:
        form = {name: {"type": "string"} for name in (*route.form, *route.form_options)}
        form[route.form[0]]["format"] = "binary"
        schema = {"type": "object", "properties": form, "required": [*route.form]}
        content = {"multipart/form-data": {"schema": schema}}
        found["requestBody"] = {"required": True, "content": content}
    return {**found, "responses": _responses(route)}


def _components(routes: tuple[Route, ...]) -> dict[str, Schema]:
    """Return every schema that the operations reference, by name."""
    found: dict[str, Schema] = {}
    for route in routes:
        if route.body:
            _add_object(route.body, found)
    for module in SHAPES:
        for name, shape in vars(module).items():
            if is_typeddict(shape) and not name.startswith("_"):
                found[name] = _typed_dict(shape)
    return dict(sorted(found.items()))


def _responses(route: Route) -> Schema:
    good: Schema = {"schema": _ref(route.response) if route.response else {}}
    content: Schema = {"application/json": good}
    if route.response == PLAIN_TEXT:
        content = {"text/plain": {"schema": {"type": "string"}}}
    if route.event:
        about = _LINES if route.stream_type == LINES_TYPE else _EVENTS
        content[route.stream_type] = {"schema": {"description": about, **_ref(route.event)}}
    refusal = {"application/json": {"schema": _ref(_ERRORS[route.errors])}}
    return {
        "200": {"description": "The answer.", "content": content},
        "default": {"description": "A refusal or a failure.", "content": refusal},
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _add_object(table: Object, found: dict[str, Schema]) -> None:
    """Add a request object and its nested objects."""
    found[table.name] = {
        "type": "object",
        "properties": {field.name: _field(field) for field in table.fields},
        "required": [field.name for field in table.fields if field.required],
        "additionalProperties": not table.closed,
    }
    for field in table.fields:
        for inner in _objects(field.type):
            _add_object(inner, found)


def _objects(kind: JsonType) -> Iterator[Object]:
    if isinstance(kind, Object):
        yield kind
    elif isinstance(kind, Many):
        yield from _objects(kind.item)
    elif isinstance(kind, Either):
        yield from (*_objects(kind.plain), *_objects(kind.array))
    elif isinstance(kind, Tagged):
        yield from kind.kinds.values()
    elif isinstance(kind, Custom):
        for shape in kind.shapes:
            yield from _objects(shape)


def _field(field: Field) -> Schema:
    """Return the schema of a field; `null` always means absent."""
    if field.use is Use.METADATA:
        return {"description": _METADATA}
    if field.use is Use.NOT_BUILT:
        return {"description": _NOT_BUILT, "enum": [*field.neutral, None]}
    about = {"description": field.about} if field.about else {}
    schema = _json_type(field.type)
    return {**about, **(schema if field.required else _any_of(schema, {"type": "null"}))}


def _json_type(kind: JsonType) -> Schema:
    if isinstance(kind, Object):
        return _ref(kind.name)
    if isinstance(kind, (Number, Integer)):
        found: Schema = {"type": "number" if isinstance(kind, Number) else "integer"}
        if kind.low > -math.inf:
            found["minimum"] = kind.low
        return {**found, "maximum": kind.high} if kind.high < math.inf else found
    if isinstance(kind, Flag):
        return {"type": "boolean"}
    if isinstance(kind, Text):
        found = {"type": "string", **({"enum": [*kind.choices]} if kind.choices else {})}
        return found if kind.allow_empty else {**found, "minLength": 1}
    if isinstance(kind, Many):
        found = {"type": "array", "items": _json_type(kind.item), "minItems": kind.least}
        return {**found, "maxItems": int(kind.most)} if kind.most < math.inf else found
    if isinstance(kind, ByToken):
        return {"type": "object", "additionalProperties": _json_type(kind.item)}
    if isinstance(kind, Either):
        return _any_of(_json_type(kind.plain), _json_type(kind.array))
    if isinstance(kind, Tagged):
        return _any_of(*[_tagged(kind, name) for name in kind.kinds], *[{}] * kind.open)
    if isinstance(kind, Custom):
        return _any_of(*map(_json_type, kind.shapes))
    return {}


def _tagged(kind: Tagged, name: str) -> Schema:
    """Return the schema of one variant, with its discriminator value."""
    discriminator = {"properties": {kind.key: {"enum": [name]}}}
    must = {} if name == kind.default else {"required": [kind.key]}
    return {"allOf": [_ref(kind.kinds[name].name), {**discriminator, **must}]}


def _any_of(*choices: Schema) -> Schema:
    """Return a flattened `anyOf`."""
    flat = [inner for one in choices for inner in (one["anyOf"] if [*one] == ["anyOf"] else [one])]
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _typed_dict(shape: Any) -> Schema:
    hints = get_type_hints(shape)
    return {
        "type": "object",
        "description": " ".join((shape.__doc__ or "").split()),
        "properties": {name: _annotation(hint) for name, hint in hints.items()},
        "required": sorted(shape.__required_keys__),
    }


def _annotation(hint: Any) -> Schema:
    """Convert a Python type annotation of a response type."""
    origin = get_origin(hint)
    if origin is Literal:
        return {"enum": [*get_args(hint)]}
    if origin in (Union, types.UnionType):
        return _any_of(*map(_annotation, get_args(hint)))
    if origin is list:
        return {"type": "array", "items": _annotation(get_args(hint)[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _annotation(get_args(hint)[1])}
    if hint is Any:
        return {}
    return _ref(hint.__name__) if is_typeddict(hint) else {"type": _PLAIN[hint]}
