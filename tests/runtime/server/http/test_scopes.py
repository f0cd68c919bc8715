"""Scopes of API keys: what changes the server for all needs `admin`, and without a key nothing is
shown of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mlcc.server.auth.key_file import ApiKey, digest_of
from mlcc.server.auth.keyring import Keyring
from mlcc.service.http.routes import ADMIN, ANY_KEY, INFERENCE, ROUTES, SCOPES, Route
from mlcc.service.http.types import error_response
from tests.runtime.server.helpers.server_process import PLAIN, RunningServer, running

KEYS = [
    {"name": "user", "key": "u"},
    {"name": "ops", "key": "o", "scopes": ["admin"]},
    {"name": "all", "key": "a", "scopes": ["inference", "admin"]},
]
PUBLIC = ("/health", "/ready", "/v2/health/live", "/v2/health/ready")
CHANGING = {
    "/models/load",
    "/models/unload",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/sleep",
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
    "/wake_up",
    "/api/pull",
    "/api/create",
    "/api/copy",
    "/api/push",
    "/api/delete",
}
BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    file.write_text(json.dumps({"keys": KEYS}))
    with running("--api-keys", str(file)) as started:
        yield started


def ask(server: RunningServer, method: str, path: str, key: str) -> httpx.Response:
    url, headers = server.url + path, {"x-api-key": key} if key else {}
    body = BODY if method == "POST" else None
    return httpx.request(method, url, json=body, headers=headers, timeout=60, verify=PLAIN)


def test_every_address_that_changes_something_is_for_administrators() -> None:
    """An address that is new must be put on one side or the other."""
    assert {one.path for one in ROUTES if one.scope == ADMIN} == CHANGING
    asked = {one.path for one in ROUTES if one.scope == INFERENCE and one.method != "GET"}
    stored = {"/v1/responses/{name}", "/v1/responses/{name}/cancel"}  # of the key's own
    stored |= {"/v1/files", "/v1/files/{name}", "/v1/batches/{name}/cancel"}
    answered = {one.path for one in ROUTES if one.body and one.scope == INFERENCE}
    answered |= {"/v1/audio/transcriptions", "/v1/audio/translations"}
    assert asked == answered | stored
    assert all(one.method in ("GET", "HEAD") for one in ROUTES if one.scope == ANY_KEY)


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: f"{one.method} {one.path}")
def test_a_key_without_the_scope_is_refused(server: RunningServer, route: Route) -> None:
    method, path, scope = route.method, route.path, route.scope
    place = path.replace("{name}", "toy").replace("{model}", "toy")
    assert ask(server, method, place, "a").status_code != 403
    for key, scopes in (("u", (INFERENCE,)), ("o", (ADMIN,))):
        answer = ask(server, method, place, key)
        allowed = path in PUBLIC or scope in (ANY_KEY, *scopes)
        assert (answer.status_code == 403) is not allowed
        if not allowed:
            assert f"needs the scope '{scope}'" in answer.text
            assert ("insufficient_scope" in answer.text) is (route.errors is error_response)


def test_ways_round(server: RunningServer) -> None:
    for method, path in (
        ("POST", "/v1/%6coad_lora_adapter"),
        ("POST", "/models/load?x=1"),
        ("GET", "/metrics"),
        ("HEAD", "/metrics"),
    ):
        assert ask(server, method, path, "u").status_code == 403
        assert ask(server, method, path, "a").status_code != 403
    for path in ("/models/load/", "//models/load", "/MODELS/LOAD"):
        assert ask(server, "POST", path, "u").status_code == 404


def test_health_without_a_key_shows_nothing_of_others(server: RunningServer) -> None:
    for key in ("", "wrong"):
        for method in ("GET", "HEAD"):
            assert ask(server, method, "/health", key).status_code == 200
        assert ask(server, "GET", "/health", key).json() == {"status": "ok"}
        assert ask(server, "GET", "/ready", key).json() == {"status": "ready"}
    assert ask(server, "GET", "/health", "u").json()["engine"]["running"] == 0


def test_the_only_key_may_do_everything_and_of_several_none_unless_it_says_so() -> None:
    assert Keyring().has_admin
    (key,) = alone = (ApiKey("key 1", digest_of("a")),)
    assert Keyring(["a"]).scopes(key) == SCOPES and Keyring(["a"]).has_admin
    several = Keyring(["a", "b"])
    assert several.scopes(alone[0]) == (INFERENCE,) and not several.has_admin
    assert several.scopes(ApiKey("x", b"", scopes=(ADMIN,))) == (ADMIN,)


def test_scopes_change_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": KEYS[:1]}))
    with running("--api-keys", str(file)) as server:
        assert ask(server, "GET", "/metrics", "u").status_code == 200
        new = tmp_path / "new"
        new.write_text(json.dumps({"keys": KEYS}))
        new.replace(file)
        assert ask(server, "GET", "/metrics", "u").status_code == 403
