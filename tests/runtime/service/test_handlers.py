"""Every path has one file with its handler, which the table names."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from mlcc.service.http.router import MODULES, Router, batch_handler, handler, service_handler
from mlcc.service.http.routes import ROUTES

ADDRESSES = """
GET / /health /ready /props /slots /v1/models /v1/models/{name} /api/ps /api/tags /api/version
GET /v1/responses/{name} /v1/responses/{name}/input_items
GET /v1/files /v1/files/{name} /v1/files/{name}/content /v1/batches /v1/batches/{name}
DELETE /v1/files/{name}
POST /v1/files /v1/batches /v1/batches/{name}/cancel
DELETE /api/delete /v1/responses/{name}
POST /v1/chat/completions /v1/completions /v1/embeddings /v1/score /v1/rerank /v2/rerank
POST /score /rerank /v1/responses /v1/responses/input_tokens /v1/responses/{name}/cancel
POST /v1/messages /v1/messages/count_tokens /v1/load_lora_adapter /v1/unload_lora_adapter
POST /api/chat /api/generate /api/embed /api/embeddings /api/show /api/pull /api/push /api/copy
POST /api/create /completion /completions /embedding /infill /tokenize /detokenize /apply-template
POST /models/load /models/unload / /generate /generate_stream
POST /classify
POST /sleep /wake_up
POST /v1/audio/transcriptions /v1/audio/translations
GET /info /is_sleeping /v2 /v2/health/live /v2/health/ready
GET /v2/models/{model} /v2/models/{model}/ready
GET /v2/models/{model}/versions/{version} /v2/models/{model}/versions/{version}/ready
GET /v2/models/{model}/config /v2/models/{model}/versions/{version}/config /v2/models/stats
GET /v2/models/{model}/stats /v2/models/{model}/versions/{version}/stats
POST /v2/models/{model}/infer /v2/models/{model}/versions/{version}/infer
POST /v2/models/{model}/generate /v2/models/{model}/generate_stream
POST /v2/repository/index /v2/repository/models/{model}/load /v2/repository/models/{model}/unload
"""
"""What clients know: each is a promise."""


def test_no_address_has_changed() -> None:
    promised = {
        (method, path)
        for method, *paths in map(str.split, ADDRESSES.strip().splitlines())
        for path in paths
    }
    assert {(route.method, route.path) for route in ROUTES} == promised


def test_each_address_is_answered_once() -> None:
    named = [route for routes in MODULES.values() for route in routes]
    assert len(named) == len(set(named)) and set(named) == set(ROUTES)
    for route in named:
        found = [find(route) for find in (handler, service_handler, batch_handler)]
        assert found.count(None) == 2, route.path


@pytest.mark.parametrize(
    ("method", "path", "pattern", "version"),
    [
        ("GET", "/v2/models/org/name", "/v2/models/{model}", None),
        ("GET", "/v2/models/org/name/ready", "/v2/models/{model}/ready", None),
        ("POST", "/v2/models/org/name/infer", "/v2/models/{model}/infer", None),
        ("GET", "/v2/models/org/name/stats", "/v2/models/{model}/stats", None),
        ("POST", "/v2/repository/models/org/name/load", "/v2/repository/models/{model}/load", None),
        ("POST", "/v2/models/org/name/versions/1/infer",
         "/v2/models/{model}/versions/{version}/infer", "1"),
    ],
)  # fmt: skip
def test_names_of_the_hub_have_slashes(
    method: str, path: str, pattern: str, version: str | None
) -> None:
    route, parameters = Router(ROUTES).find(method, path)
    assert route.path == pattern
    assert (parameters["model"], parameters.get("version")) == ("org/name", version)


@pytest.mark.parametrize("module", MODULES)
def test_a_file_answers_what_the_table_says(module: str) -> None:
    file = import_module(module)
    kinds = ("HANDLERS", "SERVICE_HANDLERS", "BATCH_HANDLERS")
    answered = {route for kind in kinds for route in getattr(file, kind, {})}
    assert answered == set(MODULES[module])


def test_no_protocol_is_imported_before_it_is_spoken() -> None:
    script = (
        "import sys, mlcc.service.service\n"
        "tools = 'mlcc.api.parsers.tools.'\n"
        "late = ('mlcc.service.protocols.', tools + 'kimi', tools + 'glm')\n"
        "print([name for name in sys.modules if name.startswith(late)])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
