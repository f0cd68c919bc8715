"""`tritonclient`, unmodified, in the environment of the clients: its answers are those of OpenAI's
and vLLM's routes. Every run has the same requests without its packages
(tests/runtime/server/clients/test_kserve.py)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.e2e.clients.environments import command_of
from tests.runtime.server.clients.test_kserve import TEXTS, compiled_encoders, serving

CLIENT = "tritonclient (KServe)"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(compiled_encoders(tmp_path_factory.mktemp("encoders"))) as address:
        yield address


def program(url: str, feature: str) -> Any:
    command = [*command_of("triton_.py"), url, feature]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def post(url: str, path: str, **body: Any) -> Any:
    return httpx.post(url + path, json=body, timeout=120).json()["data"]


@pytest.mark.client(CLIENT, "embeddings")
def test_embeddings(url: str) -> None:
    wanted = [row["embedding"] for row in post(url, "/v1/embeddings", model="embed", input=TEXTS)]
    for rows in program(url, "embeddings"):
        np.testing.assert_allclose(rows, wanted, rtol=0, atol=1e-6)


@pytest.mark.client(CLIENT, "scores")
def test_scores_and_classes(url: str) -> None:
    found = program(url, "scores")
    scores = post(url, "/v1/score", model="score", text_1="a cat", text_2=TEXTS)
    wanted = [each["score"] for each in scores]
    np.testing.assert_allclose(found["scores"], wanted, rtol=0, atol=1e-6)
    classes = post(url, "/classify", model="classify", input=TEXTS)
    assert found["labels"] == [each["label"] for each in classes]
    wanted = [each["probs"] for each in classes]
    np.testing.assert_allclose(found["probs"], wanted, rtol=0, atol=1e-6)


@pytest.mark.client(CLIENT, "models")
def test_the_repository(url: str) -> None:
    found = program(url, "repository")
    assert found["states"] == [True, False]
    assert found["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert sorted(found["names"]) == ["classify", "embed", "score"]
