"""The OpenAPI document as JSON, and as the page /docs: HTML without scripts, which works offline
and sends no request to another host.

The endpoints are no coroutines, so they run in a thread: building the document takes longer than a
stream should wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

Document = Mapping[str, Any]
Page = Callable[[Request], HTMLResponse]

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color-scheme:light dark}td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
    "code{white-space:pre-wrap}"
)


def document_endpoint(document: Callable[[], Document]) -> Callable[[Request], JSONResponse]:
    """Return the endpoint that sends what `document` returns."""

    def show(request: Request) -> JSONResponse:
        return JSONResponse(document())

    return show


def reference_page(document: Callable[[], Document]) -> Page:
    """Return the endpoint that renders what `document` returns."""

    def show(request: Request) -> HTMLResponse:
        return HTMLResponse("".join(_page(document())), headers=_HEADERS)

    return show


def _page(document: Document) -> Iterator[str]:
    title = f"{document['info']['title']} {document['info']['version']}"
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
    yield f"<style>{_STYLE}</style><h1>{escape(title)}</h1>"
    yield f"<p>{escape(document['info']['description'])} "
    yield "For programs: <a href=openapi.json>openapi.json</a>.</p>"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation['summary'])} {_types(operation)}</p>"
    yield "<h1>Types</h1>"
    for name, schema in document["components"]["schemas"].items():
        yield f"<h2 id={name}>{name}</h2><p>{escape(schema.get('description', ''))}</p><table>"
        for field, type_ in schema["properties"].items():
            mark = "" if field in schema["required"] else " (optional)"
            yield f"<tr><td><code>{field}</code>{mark}<td><code>{_type(type_)}</code>"
            yield f"<td>{escape(type_.get('description', ''))}"
        yield "</table>"


def _types(operation: Document) -> str:
    """Describe the request and response types of an operation."""
    body = operation.get("requestBody")
    taken = [_type(one["schema"]) for one in body["content"].values()] if body else []
    given = [_type(one["schema"]) for one in operation["responses"]["200"]["content"].values()]
    takes = f"Takes <code>{taken[0]}</code>, gives" if taken else "Gives"
    return f"{takes} <code>{' or, as events, '.join(given)}</code>."


def _type(schema: Document) -> str:
    """Render a schema as text, with links for names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href=#{name}>{name}</a>"
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return escape(" | ".join(map(repr, schema["enum"])))
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    if "properties" in schema:
        return "a form of " + ", ".join(map(escape, schema["properties"]))
    bounds = [f"{sign} {schema[key]:g}" for key, sign in _BOUNDS if key in schema]
    return escape(" ".join([schema.get("type", "anything"), *bounds]))


_BOUNDS = (("minimum", "≥"), ("maximum", "≤"))
