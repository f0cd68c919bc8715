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
from tests.helpers.grpc_client import free_port
from tests.runtime.server.clients.test_kserve import TEXTS, compiled_encoders, serving
from tests.runtime.server.helpers.server_process import running

CLIENT, GRPC = "tritonclient (KServe)", "tritonclient (gRPC)"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def grpc_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, grpc_port: int) -> Iterator[str]:
    folders = compiled_encoders(tmp_path_factory.mktemp("encoders"))
    with serving(folders, "--grpc-port", str(grpc_port)) as address:
        yield address


def program(url: str, feature: str, name: str = "triton_.py") -> Any:
    command = [*command_of(name), url, feature]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def post(url: str, path: str, **body: Any) -> Any:
    return httpx.post(url + path, json=body, timeout=120).json()["data"]


def of_each(feature: str) -> pytest.MarkDecorator:
    """A parameter `ask`: each program, and the client whose feature it proves."""
    http = pytest.param("triton_.py", marks=pytest.mark.client(CLIENT, feature))
    grpc = pytest.param("triton_grpc.py", marks=pytest.mark.client(GRPC, feature))
    return pytest.mark.parametrize("name", [http, grpc])


def answer(name: str, feature: str, url: str, grpc_port: int) -> Any:
    place = url if name == "triton_.py" else f"127.0.0.1:{grpc_port}"
    return program(place, feature, name)


@of_each("embeddings")
def test_embeddings(url: str, grpc_port: int, name: str) -> None:
    wanted = [row["embedding"] for row in post(url, "/v1/embeddings", model="embed", input=TEXTS)]
    for rows in answer(name, "embeddings", url, grpc_port):
        np.testing.assert_allclose(rows, wanted, rtol=0, atol=1e-6)


@of_each("scores")
def test_scores_and_classes(url: str, grpc_port: int, name: str) -> None:
    found = answer(name, "scores", url, grpc_port)
    scores = post(url, "/v1/score", model="score", text_1="a cat", text_2=TEXTS)
    wanted = [each["score"] for each in scores]
    np.testing.assert_allclose(found["scores"], wanted, rtol=0, atol=1e-6)
    classes = post(url, "/classify", model="classify", input=TEXTS)
    assert found["labels"] == [each["label"] for each in classes]
    wanted = [each["probs"] for each in classes]
    np.testing.assert_allclose(found["probs"], wanted, rtol=0, atol=1e-6)


@of_each("models")
def test_the_repository(url: str, grpc_port: int, name: str) -> None:
    found = answer(name, "repository", url, grpc_port)
    assert found["states"] == [True, False]
    (tensor,) = found["inputs"]
    assert (tensor["name"], tensor["datatype"]) == ("text", "BYTES")
    assert [*map(int, tensor["shape"])] == [-1]  # as JSON, gRPC's are texts
    assert sorted(found["names"]) == ["classify", "embed", "score"]


@of_each("models")
def test_config_and_statistics(url: str, grpc_port: int, name: str) -> None:
    found = answer(name, "statistics", url, grpc_port)
    assert found["output"] == ["embedding", "TYPE_FP32"] and "embed" in found["names"]
    count, successes, took, stepped = found["counts"]
    assert count == successes >= len(TEXTS) and took and stepped


@pytest.mark.client(GRPC, "streamed_generate")
def test_a_text_by_a_stream() -> None:
    port = free_port()
    with running("--grpc-port", str(port)) as server:
        found = program(f"127.0.0.1:{port}", "text", "triton_grpc.py")
        for name, prompt in (("1", "hello"), ("2", "you")):
            body = {"prompt": prompt, "max_tokens": 8, "temperature": 0}
            made = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120).json()
            assert found["pieces"][name] == made["choices"][0]["text"]
    (error,) = found["errors"]
    assert "'n' is not built" in error
