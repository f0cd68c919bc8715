"""The description of the API equals the tables, is complete, and loads nothing from other
hosts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.openapi.models import OpenAPI

from mlcc.api.openai import shapes
from mlcc.api.schema import chat_fields, message_fields
from mlcc.api.schema.schema import Object, Use
from mlcc.server.docs_page import document_endpoint, reference_page
from mlcc.service.http.routes import ROUTES
from tests.runtime.server.helpers.server_process import RunningServer, running

VALUES = (*vars(chat_fields).values(), *vars(message_fields).values())
TABLES = [*{table.name: table for table in VALUES if isinstance(table, Object)}.values()]
TABLES += [one.body for one in ROUTES if one.body and one.body not in TABLES]


@pytest.fixture(scope="module")
def closed() -> Iterator[RunningServer]:
    with running("--api-key", "sesame") as server:
        yield server


@pytest.fixture(scope="module")
def document(closed: RunningServer) -> dict[str, Any]:
    """The document, which needs no key."""
    answer = httpx.get(f"{closed.url}/openapi.json")
    assert answer.status_code == 200
    return dict(answer.json())


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(found := value.get("$ref"), str):
            yield found
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_it_is_openapi_and_every_name_in_it_is_there(document: dict[str, Any]) -> None:
    OpenAPI(**document)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def test_every_address_and_which_need_the_key(document: dict[str, Any]) -> None:
    found = {
        (method.upper(), path): "security" in operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    open_ones = ("/health", "/ready", "/v2/health/live", "/v2/health/ready")
    assert found == {(one.method, one.path): one.path not in open_ones for one in ROUTES}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_field_of_every_table(document: dict[str, Any], table: Object) -> None:
    schema = document["components"]["schemas"][table.name]
    assert list(schema["properties"]) == [field.name for field in table.fields]
    assert schema["required"] == [field.name for field in table.fields if field.required]
    for field in table.fields:
        described = schema["properties"][field.name]
        if field.use is Use.NOT_BUILT:
            assert described["enum"] == [*field.neutral, None]
        elif field.use is Use.HONOURED:
            assert described.get("description", "") == field.about


def test_bounds_choices_and_null(document: dict[str, Any]) -> None:
    chat = document["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    assert chat["temperature"]["anyOf"] == [
        {"type": "number", "minimum": 0, "maximum": 2}, {"type": "null"},
    ]  # fmt: skip
    role = document["components"]["schemas"]["Message"]["properties"]["role"]
    assert role["enum"] == ["system", "developer", "user", "assistant", "tool", "function"]


def test_answers_have_the_shapes_that_are_sent(
    document: dict[str, Any], closed: RunningServer
) -> None:
    answer = httpx.post(
        f"{closed.url}/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
        headers={"Authorization": "Bearer sesame"},
    ).json()
    schemas = document["components"]["schemas"]
    assert set(schemas) >= {name for name in vars(shapes) if name.startswith("Chat")}
    assert set(schemas["ChatCompletion"]["required"]) == set(answer)
    assert set(schemas["ChatChoice"]["required"]) == set(answer["choices"][0])


def test_the_page_needs_no_key_and_nothing_from_elsewhere(closed: RunningServer) -> None:
    page = httpx.get(f"{closed.url}/docs")
    assert page.status_code == 200 and "ChatCompletionRequest" in page.text
    assert "//" not in page.text and "<script" not in page.text
    assert set(re.findall(r"(?:href|src)=([^# >]+)", page.text)) == {"openapi.json"}
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_without_the_key_paths_are_not_disclosed(closed: RunningServer) -> None:
    for path in ("/v1/nothing", "/redoc", "/docs/", "/v1/models/a%0Ab", "/%0A"):
        assert httpx.get(f"{closed.url}{path}").status_code == 401
    assert httpx.head(f"{closed.url}/v1/models").status_code == 401
    assert httpx.options(f"{closed.url}/v1/models").status_code == 401


def test_the_description_is_built_outside_the_event_loop() -> None:
    """Building it takes longer than a stream should wait: starlette runs endpoints that are no
    coroutines in a thread."""
    for endpoint in (document_endpoint(dict), reference_page(dict)):
        assert not inspect.iscoroutinefunction(endpoint)
