"""KServe's Open Inference Protocol over HTTP and Triton's generate extension: the toy's server, and
one of three encoders, of each task one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from mlcc import Engine
from tests.compiler.models.helpers.encoder_checkpoints import (
    CASES,
    CLASSIFIERS,
    RERANKERS,
    Case,
    make_encoder,
)
from tests.compiler.models.test_encoders import compiled
from tests.helpers.grpc_client import Client, array_of, free_port, request
from tests.helpers.open_inference import Texts, infer
from tests.runtime.local.test_embeddings import post
from tests.runtime.server.helpers.server_process import RunningServer, serving_models

TEXTS = ["a cat.", "two dogs!", "héllo"]
ENCODERS: dict[str, Case] = {
    "embed": CASES["roberta"],
    "score": RERANKERS["roberta-reranker"],
    "classify": CLASSIFIERS["roberta-classifier"],
}


def compiled_encoders(place: Path) -> dict[str, Path]:
    """An encoder of each task, by its name."""
    found = {}
    for name, case in ENCODERS.items():
        folder = place / name
        folder.mkdir()
        make_encoder(case, folder)
        found[name] = compiled(folder, "cpu")
    return found


@contextmanager
def serving(folders: dict[str, Path], *more: str) -> Iterator[str]:
    """The address of `mlcc serve` with these models and options."""
    with serving_models(*map(str, folders.values()), *more) as server:
        yield server.url


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compiled_encoders(tmp_path_factory.mktemp("encoders"))


@pytest.fixture(scope="module")
def grpc_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def encoders(folders: dict[str, Path], grpc_port: int) -> Iterator[str]:
    with serving(folders, "--grpc-port", str(grpc_port)) as url:
        yield url


@pytest.fixture(scope="module")
def rpc(encoders: str, grpc_port: int) -> Iterator[Client]:
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        yield Client(channel)


def get(url: str, path: str) -> tuple[int, Any]:
    answer = httpx.get(f"{url}/v2{path}", timeout=60)
    return answer.status_code, answer.json()


def change(url: str, path: str, content: str = "") -> httpx.Response:
    """Without a content type, as tritonclient sends it."""
    return httpx.post(f"{url}/v2/repository/{path}", content=content, timeout=60)


def test_health_and_what_the_server_is(server: RunningServer) -> None:
    url = server.url
    assert get(url, "/health/live") == (200, {"live": True})
    assert get(url, "/health/ready") == (200, {"ready": True})
    ready = (200, {"name": "toy", "ready": True})
    assert get(url, "/models/toy/ready") == get(url, "/models/toy/versions/1/ready") == ready
    _, about = get(url, "")
    assert about["name"] == "mlcc" and "binary_tensor_data" in about["extensions"]
    _, model = get(url, "/models/toy")
    tensors = [each["name"] for each in (*model["inputs"], *model["outputs"])]
    assert tensors == ["text_input", "text_output"] and model["versions"] == ["1"]
    assert get(url, "/models/toy/versions/1") == (200, model)
    row = {"name": "toy", "version": "1", "state": "READY", "reason": ""}
    assert change(url, "index").json() == change(url, "index", '{"ready": true}').json() == [row]
    assert change(url, "models/toy/load").status_code == 200


def test_refusals_have_the_protocols_shape(server: RunningServer) -> None:
    url, config = server.url, '{"parameters": {"config": "{}"}}'
    for answer, words in (
        (httpx.get(f"{url}/v2/models/other"), "'other'"),
        (httpx.get(f"{url}/v2/trace/setting"), "no such address"),
        (httpx.post(f"{url}/v2/models/toy/ready"), "takes GET only"),
        (httpx.get(f"{url}/v2/models/other/ready"), "'other'"),
        (httpx.get(f"{url}/v2/models/toy/versions/2"), "no version '2'"),
        (change(url, "models/toy/unload"), "stays loaded"),
        (change(url, "models/other/load"), "'other'"),
        (change(url, "models/toy/load", config), "'parameters.config' is not built"),
        (change(url, "models/toy/load", "{"), "not JSON"),
        (change(url, "index", "x" * 70_000), "more than 65536 bytes"),
    ):
        assert answer.status_code in (400, 404, 405) and words in answer.json()["error"], (
            answer.text
        )
        assert [*answer.json()] == ["error"]
    with pytest.raises(RuntimeError, match="/v2/models/toy/generate"):
        infer(url, "toy", [Texts("text", ["a"])])


@pytest.mark.feature("kserve", "cpu", "runs")
@pytest.mark.parametrize("binary", [True, False])
def test_embeddings(encoders: str, folders: dict[str, Path], binary: bool) -> None:
    assert change(encoders, "models/embed/load").status_code == 200
    _, about = get(encoders, "/models/embed")
    assert about["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    text = Texts("text", TEXTS, binary, column=binary)
    outputs = [{"name": "embedding", "parameters": {"binary_data": binary}}]
    found = infer(encoders, "embed", [text], id="7", outputs=outputs)
    rows, (output,) = found.arrays["embedding"], found.json["outputs"]
    assert rows.shape == (3, about["outputs"][0]["shape"][1]) and found.json["id"] == "7"
    assert ("data" in output) is not binary and output["datatype"] == "FP32"
    with Engine(folders["embed"]) as engine:
        expected = [each.embedding for each in engine.embeddings.create(input=TEXTS).data]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-6)
    options = {"dimensions": 8, "binary_data_output": binary}
    assert infer(encoders, "embed", [text], parameters=options).arrays["embedding"].shape == (3, 8)


@pytest.mark.feature("kserve", "cpu", "runs")
def test_scores_and_classes(encoders: str, folders: dict[str, Path]) -> None:
    pair = [Texts("document", TEXTS, binary=False), Texts("query", ["a cat"])]
    scores = infer(encoders, "score", pair).arrays["score"]
    with Engine(folders["score"]) as engine:
        answer = post(engine, "/v1/score", text_1="a cat", text_2=TEXTS)
    wanted = [each["score"] for each in answer["data"]]
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-6)
    with Engine(folders["classify"]) as engine:
        classes = post(engine, "/classify", input=TEXTS)["data"]
    for binary in (True, False):
        options = {"binary_data_output": binary}
        found = infer(encoders, "classify", [Texts("text", TEXTS)], parameters=options).arrays
        probabilities = [each["probs"] for each in classes]
        np.testing.assert_allclose(found["probabilities"], probabilities, rtol=0, atol=1e-6)
        assert [*found["label"]] == [each["label"] for each in classes]
    only = infer(encoders, "classify", [Texts("text", TEXTS)], outputs=[{"name": "label"}])
    assert [*only.arrays] == ["label"]
    with pytest.raises(RuntimeError, match="'query' has 2 texts and 'document' 3"):
        infer(encoders, "score", [Texts("query", ["a", "b"]), Texts("document", TEXTS)])


def test_a_repository_of_several(encoders: str) -> None:
    assert change(encoders, "models/classify/load").status_code == 200
    assert get(encoders, "/models/classify/ready")[0] == 200
    assert change(encoders, "models/classify/unload").status_code == 200
    assert get(encoders, "/models/classify/ready")[0] == 503
    assert get(encoders, "/health/ready")[0] == 200
    states = {row["name"]: row["state"] for row in change(encoders, "index").json()}
    assert states["classify"] == "UNAVAILABLE" and set(states) == set(ENCODERS)
    status, answer = get(encoders, "/models/classify")
    assert status == 400 and "/v2/repository/models/classify/load" in answer["error"]
    assert infer(encoders, "classify", [Texts("text", ["a"])]), "a request loads it"


@pytest.mark.feature("kserve-grpc", "cpu", "runs")
@pytest.mark.parametrize("raw", [True, False])
def test_grpc_has_the_tensors_of_http(encoders: str, rpc: Client, raw: bool) -> None:
    for model, texts in (
        ("embed", {"text": TEXTS}),
        ("score", {"document": TEXTS, "query": ["a cat"]}),
        ("classify", {"text": TEXTS}),
    ):
        rpc.call("RepositoryModelLoad", model_name=model)
        inputs = [Texts(name, some) for name, some in texts.items()]
        expected = infer(encoders, model, inputs).arrays
        found = rpc.call("ModelInfer", request(model, texts, raw))
        assert (found.model_name, found.id) == (model, "7")
        assert [output.name for output in found.outputs] == [*expected]
        assert bool(found.raw_output_contents) is raw
        for name, array in expected.items():
            np.testing.assert_array_equal(array_of(found, name), array)
    only = request("classify", {"text": TEXTS}, raw)
    only.outputs.add(name="label")
    assert [output.name for output in rpc.call("ModelInfer", only).outputs] == ["label"]
    cut = rpc.call("ModelInfer", request("embed", {"text": TEXTS}, raw, dimensions=8))
    assert array_of(cut, "embedding").shape == (3, 8)
    (streamed,) = rpc.stream([request("embed", {"text": TEXTS}, raw)])
    assert array_of(streamed.infer_response, "embedding").shape[0] == 3
    with pytest.raises(grpc.RpcError, match="the model's are 'text'"):
        rpc.call("ModelInfer", request("embed", {"words": TEXTS}, raw))


def test_a_repository_by_grpc(rpc: Client) -> None:
    rpc.call("RepositoryModelLoad", model_name="classify")
    assert rpc.call("ModelReady", name="classify", version="1").ready
    rpc.call("RepositoryModelUnload", model_name="classify")
    assert not rpc.call("ModelReady", name="classify").ready
    assert {row.name for row in rpc.call("RepositoryIndex").models} == set(ENCODERS)
    ready = {row.name for row in rpc.call("RepositoryIndex", ready=True).models}
    assert "classify" not in ready


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        (Texts("words", ["a"]), {}, "are 'words', and the model's are 'text'"),
        (Texts("text", ["a"], more={"datatype": "INT32"}), {}, r"'inputs\[0\].datatype' must be"),
        (Texts("text", ["a"], more={"shape": [2]}), {}, "there are 1 texts"),
        (Texts("text", ["a"], more={"shape": [1, 2]}), {}, "there are 1 texts"),
        (
            Texts("text", ["a"], more={"parameters": {"shared_memory_region": "x"}}),
            {},
            "shared_memory_region' is not built",
        ),
        (Texts("text", ["a"], binary=False, more={"data": [5]}), {}, "must be texts"),
        (Texts("text", ["a"], binary=False, more={"data": None}), {}, "is missing"),
        (Texts("text", ["a"], binary=False, more={"data": ["\ud800"]}), {}, "surrogate"),
        (Texts("text", ["a " * 300]), {}, "maximum context length"),
        (Texts("text", ["a"]), {"outputs": [{"name": "x"}]}, "outputs are 'embedding'"),
        (Texts("text", ["a"]), {"parameters": {"sequence_id": 5}}, "sequence_id' is not built"),
        (Texts("text", ["a"]), {"parameters": {"timeout": 1}}, "--timeout of `mlcc serve`"),
    ],
)
def test_what_is_wrong_is_named(
    encoders: str, text: Texts, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(RuntimeError, match=words):
        infer(encoders, "embed", [text], **more)


def test_a_text_is_cut_on_request(encoders: str) -> None:
    long = Texts("text", ["a " * 300])
    cut = infer(encoders, "embed", [long], parameters={"truncate_prompt_tokens": -1})
    assert cut.arrays["embedding"].shape[0] == 1


@pytest.mark.parametrize(
    ("length", "rest", "shape", "words"),
    [
        ("x", b"", [1], "Inference-Header-Content-Length"),
        ("99999", b"", [1], "Inference-Header-Content-Length"),
        ("", b"\x05\0\0\0ab", [1], "beyond its bytes"),
        ("", b"\x01\0\0\0\xff", [1], "not UTF-8"),
        ("", b"\x01\0\0\0a" * 2, [1], "there are 2 texts"),
        ("", b"\0", [1], "beyond its bytes"),
    ],
)
def test_bytes_that_are_no_tensor(
    encoders: str, length: str, rest: bytes, shape: list[int], words: str
) -> None:
    size = {"binary_data_size": len(rest)}
    fields = {"name": "text", "shape": shape, "datatype": "BYTES", "parameters": size}
    head = json.dumps({"inputs": [fields]}).encode()
    headers = {"inference-header-content-length": length or str(len(head))}
    url = f"{encoders}/v2/models/embed/infer"
    answer = httpx.post(url, content=head + rest, headers=headers)
    assert answer.status_code == 400 and words in answer.json()["error"], answer.text


def test_bytes_of_no_input_are_refused(encoders: str) -> None:
    field = Texts("text", ["a"], more={"parameters": {"binary_data_size": 5}}).described()
    head, raw = json.dumps({"inputs": [field]}).encode(), b"\x01\0\0\0a!"
    headers = {"inference-header-content-length": str(len(head))}
    url = f"{encoders}/v2/models/embed/infer"
    answer = httpx.post(url, content=head + raw, headers=headers)
    assert answer.status_code == 400 and "leave 1 bytes" in answer.json()["error"]


@pytest.mark.feature("kserve", "cpu", "runs")
def test_generate(server: RunningServer) -> None:
    url, body = f"{server.url}/v2/models/toy", {"max_tokens": 8, "temperature": 0}
    expected = httpx.post(f"{server.url}/v1/completions", json={"prompt": "hello", **body}).json()
    text = expected["choices"][0]["text"]
    flat = httpx.post(f"{url}/generate", content=json.dumps({"text_input": "hello", **body}))
    assert flat.json() == {"model_name": "toy", "model_version": "1", "text_output": text}
    nested = {"text_input": "hello", "parameters": body, "exclude_input_in_output": False}
    assert httpx.post(f"{url}/generate", json=nested).json()["text_output"] == "hello" + text
    stop = {"text_input": "hello", **body, "stop_words": [text[3]], "random_seed": 1}
    cut = httpx.post(f"{url}/generate", json=stop).json()["text_output"]
    assert cut == text[: text.index(text[3])]
    answer = httpx.post(f"{url}/generate_stream", json=nested)
    pieces = [json.loads(line[6:])["text_output"] for line in answer.text.splitlines() if line]
    assert "".join(pieces) == "hello" + text and len(pieces) > 2
    ignored = httpx.post(f"{url}/generate", json={"text_input": "a", **body, "beams": 4})
    assert ignored.headers["x-mlcc-ignored"] == "beams"
    for more, words in (
        ({"max_tokens": 0.5}, "'max_tokens' must be"),
        ({"n": 2}, "'n' is not built"),
        ({"parameters": 3}, "'parameters' must be an object"),
        ({"text_input": "x" * 600}, "prompt is too long"),
    ):
        wrong = httpx.post(f"{url}/generate", json={"text_input": "a", **more})
        assert wrong.status_code == 400 and words in wrong.json()["error"]
    unknown = httpx.post(f"{server.url}/v2/models/other/generate", json={"text_input": "a"})
    assert unknown.status_code == 404 and [*unknown.json()] == ["error"]
