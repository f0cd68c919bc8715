"""Addresses of OpenAI's own client that are not built: refused by name with what to use instead."""

from __future__ import annotations

import pytest
from openai import OpenAI

from mlcc.api.errors import NotBuiltError, NotFoundError
from mlcc.service.http.not_built import NOT_BUILT
from mlcc.service.http.router import Router
from mlcc.service.http.routes import ROUTES

ROUTER = Router(ROUTES)
BUILT = {"chat", "completions", "embeddings", "files", "models", "responses", "batches"}


def test_each_part_of_the_client_is_built_or_refused_by_name() -> None:
    client = OpenAI(base_url="http://unused/v1", api_key="none")
    names = [name for name in dir(client) if not name.startswith(("_", "with_"))]
    parts = {name for name in names if hasattr(getattr(client, name), "_client")}
    assert parts >= BUILT
    renamed = {"beta": "assistants", "admin": "organization", "webhooks": "chat"}
    for part in sorted(parts - BUILT):
        address = f"/v1/{renamed.get(part, part)}"
        if address != "/v1/chat":
            assert address in NOT_BUILT, part


@pytest.mark.parametrize("path", [*NOT_BUILT, "/v1/audio/speech", "/v1/images/edits"])
def test_it_is_501_and_says_what_to_use(path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        with pytest.raises(NotBuiltError) as caught:
            ROUTER.find(method, path)
        error = caught.value
        assert error.http_status == 501 and error.code == "not_built"
        assert error.message.startswith(f"{path}: ")


def test_other_addresses_are_404() -> None:
    for path in ("/v1/audios", "/v1/", "/v2/audio", "/v1/moderation"):
        with pytest.raises(NotFoundError):
            ROUTER.find("POST", path)
