"""Requests that a web page of another origin can make a browser send. None may reach an address
that answers or changes something; Ollama's addresses, which take curl's bodies without a header,
are no exception."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from mlcc.service.http.routes import OLLAMA, ROUTES, Route
from tests.runtime.server.helpers.server_process import RunningServer, running

FORM = "application/x-www-form-urlencoded"
SIMPLE_TYPES = ("", "text/plain", FORM, "multipart/form-data; boundary=x")
"""What a page may send without asking the server first (Fetch standard, CORS-safelisted)."""
FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null", "Sec-Fetch-Site": "cross-site"},  # a sandboxed frame
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},  # another port of this machine
)
POSTED = [route for route in ROUTES if route.method == "POST"]
BODY = '{"model": "toy", "messages": [], "prompt": "a"}'


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running("--hosts", "") as started:
        yield started


def post(server: RunningServer, path: str, kind: str, **headers: str) -> httpx.Response:
    found = {**headers, **({"Content-Type": kind} if kind else {})}
    return httpx.post(server.url + path, content=BODY, headers=found, timeout=60)


@pytest.mark.parametrize("route", POSTED, ids=lambda route: route.path)
def test_a_foreign_page_is_refused(server: RunningServer, route: Route) -> None:
    path = route.path.replace("{name}", "resp_1")
    for headers in FOREIGN:
        for kind in SIMPLE_TYPES:
            answer = post(server, path, kind, **headers)
            unread = route.body is None and answer.status_code in (400, 404)
            assert answer.status_code in (403, 415) or unread, (headers, kind, answer.text)


def test_curl_without_a_header_asks_ollamas_addresses(server: RunningServer) -> None:
    """As the examples of Ollama's API do."""
    for kind in ("", FORM):
        body = '{"model": "toy", "prompt": "a", "stream": false, "options": {"num_predict": 1}}'
        headers = {"Content-Type": kind} if kind else {}
        url = f"{server.url}/api/generate"
        assert httpx.post(url, content=body, headers=headers, timeout=60).json()["done"] is True
        assert post(server, "/v1/chat/completions", kind).status_code == 415
    assert post(server, "/api/generate", "text/plain").status_code == 415
    assert all(route.any_content_type for route in OLLAMA)
    assert not any(route.any_content_type for route in ROUTES if route not in OLLAMA)
