"""An encoder behind the API: inputs, outputs and refusals, by the engine in a Python program; then
once over HTTP, with a server's clients."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from openai import OpenAI

from mlcc import Engine
from mlcc.errors import DeviceError, InvalidRequestError, MlccError, UnsupportedError
from mlcc.local.resources import wait
from mlcc.service.embeddings import _floats
from mlcc_compiler.checkpoint.sentence_transformers import QWEN3_RERANKER
from tests.compiler.models.helpers.encoder_checkpoints import (
    CASES,
    CLASSIFIERS,
    DECODER,
    RERANKERS,
    Case,
    expected,
    make_encoder,
)
from tests.compiler.models.test_encoders import compiled

TEXTS = ["a cat.", "two dogs!", "hello world, this is a text"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any) -> tuple[Path, Any]:
    """(a compiled encoder with prompts, its folder) and the oracle."""
    folder = tmp_path_factory.mktemp("encoder") / "small"
    folder.mkdir()
    oracle = make_encoder(CASES["embeddinggemma"], folder)
    return compiled(folder, "cpu"), oracle


@pytest.fixture(scope="module")
def engine(made: tuple[Path, Any]) -> Iterator[Engine]:
    with Engine(made[0]) as engine:
        yield engine


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: Any) -> Iterator[tuple[Engine, Any]]:
    folder = tmp_path_factory.mktemp("reranker") / "scorer"
    folder.mkdir()
    oracle = make_encoder(RERANKERS["bert-reranker"], folder)
    with Engine(compiled(folder, "cpu")) as engine:
        yield engine, oracle


def post(engine: Engine, path: str, **fields: Any) -> Any:
    """Any address, as the local engine asks it."""
    answer = wait(engine._caller, engine._caller.ask("POST", path, fields))
    return answer.to_dict() if hasattr(answer, "to_dict") else answer


def tokens(engine: Engine, text: str) -> list[int]:
    found: list[int] = post(engine, "/tokenize", content=text, add_special=True)["tokens"]
    return found


@pytest.mark.feature("embeddings", "cpu", "runs")
def test_rows_are_those_of_transformers_and_of_length_one(
    engine: Engine, made: tuple[Path, Any]
) -> None:
    answer = engine.embeddings.create(input=TEXTS)
    ids = [tokens(engine, text) for text in TEXTS]
    assert answer.usage.to_dict() == {
        "prompt_tokens": sum(map(len, ids)),
        "total_tokens": sum(map(len, ids)),
    }
    for i, each in enumerate(ids):
        row = expected(CASES["embeddinggemma"], made[1], made[0].parent, each)
        np.testing.assert_allclose(
            answer.data[i].embedding, row / np.linalg.norm(row), rtol=0, atol=1e-4
        )
        assert (answer.data[i].index, answer.data[i].object) == (i, "embedding")


@pytest.mark.feature("embeddings", "cpu", "runs")
def test_every_way_of_writing_the_same(engine: Engine) -> None:
    one = engine.embeddings.create(input=TEXTS[0]).data[0].embedding
    ids = tokens(engine, TEXTS[0])
    for given in ([TEXTS[0]], ids, [ids]):
        assert engine.embeddings.create(input=given).data[0].embedding == one
    packed = engine.embeddings.create(input=TEXTS[0], encoding_format="base64").data[0].embedding
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(packed), "<f4"), one, rtol=1e-6)
    short = np.array(engine.embeddings.create(input=TEXTS[0], dimensions=5).data[0].embedding)
    np.testing.assert_allclose(short, np.array(one[:5]) / np.linalg.norm(one[:5]), rtol=1e-9)
    before = engine.embeddings.create(input=TEXTS[0], prompt_name="query").data[0].embedding
    written = CASES["embeddinggemma"].prompts["query"] + TEXTS[0]
    assert before == engine.embeddings.create(input=written).data[0].embedding != one


def test_more_texts_than_a_step_or_a_queue_takes(engine: Engine) -> None:
    rows = engine.embeddings.create(input=["a b c"] * 300).data
    assert [each.index for each in rows] == [*range(300)]
    assert len({tuple(np.round(each.embedding, 5)) for each in rows}) == 1


def test_requests_of_many_texts_share_the_queue(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large inputs are sent in waves: none fills the queue, and none is refused after its first
    wave."""
    client = engine._caller._client
    monkeypatch.setattr(client, "_limit", 20)
    with ThreadPoolExecutor() as pool:
        made = [pool.submit(engine.embeddings.create, input=["a b c"] * 90) for _ in range(4)]
        assert [len(each.result().data) for each in made] == [90] * 4
    assert not client.in_flight


def test_cut_texts_fit_into_the_pages_there_are(made: tuple[Path, Any]) -> None:
    with Engine(made[0], kv_pages=3) as engine:
        answer = engine.embeddings.create(input="a " * 300, truncate_prompt_tokens=-1)
    assert answer.usage.prompt_tokens == 48


def test_what_is_not_finite_is_no_row() -> None:
    assert list(_floats(np.float32([1, 2]).tobytes())) == [1, 2]
    for bad in (np.nan, np.inf):
        with pytest.raises(DeviceError, match="--quant f32"):
            _floats(np.float32([1, bad]).tobytes())


def test_long_texts_are_refused_or_cut_before_the_last_token(engine: Engine) -> None:
    long = "a " * 300
    with pytest.raises(InvalidRequestError, match="truncate_prompt_tokens") as error:
        engine.embeddings.create(input=[long])
    assert (error.value.code, error.value.param) == ("context_length_exceeded", "input")
    for cut, most in ((-1, 128), (9, 9)):
        answer = engine.embeddings.create(input=long, truncate_prompt_tokens=cut)
        assert answer.usage.prompt_tokens == most
        ids = tokens(engine, "a " * (most - 2))
        assert len(ids) == most and ids[-1] == 3
        same = engine.embeddings.create(input=[ids]).data[0].embedding
        np.testing.assert_allclose(answer.data[0].embedding, same, atol=1e-5)


@pytest.mark.parametrize(
    "fields, param, text",
    [
        ({"input": []}, "input", "an array of token ids"),
        ({"input": ""}, "input", "not empty"),
        ({}, "input", "missing"),
        ({"input": "a", "dimensions": 33}, "dimensions", "32 numbers"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "base64"),
        ({"input": "a", "prompt_name": "x"}, "prompt_name", "'query'"),
        ({"input": [[131]]}, "input", "vocabulary is 0 .. 130"),
        ({"input": [5, 6], "prompt_name": "query"}, "prompt_name", "before texts"),
        ({"input": "a", "truncate_prompt_tokens": 999}, "truncate_prompt_tokens", "1 .. 128"),
    ],
)
def test_refusals_name_the_field(
    engine: Engine, fields: dict[str, Any], param: str, text: str
) -> None:
    with pytest.raises(InvalidRequestError, match=text) as error:
        engine.embeddings.create(**fields)
    assert error.value.param == param


def test_generating_models_and_encoders_refuse_each_others_requests(
    engine: Engine, reranker: tuple[Engine, Any]
) -> None:
    messages = [{"role": "user", "content": "hi"}]
    for path, fields in (
        ("/v1/chat/completions", {"messages": messages}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/responses", {"input": "hi"}),
        (
            "/v1/messages",
            {"model": "small", "messages": messages, "max_tokens": 3},
        ),
        ("/completion", {"prompt": "hi"}),
    ):
        with pytest.raises(MlccError, match="is an encoder and writes nothing"):
            post(engine, path, **fields)
    with pytest.raises(UnsupportedError, match="scores pairs"):
        reranker[0].embeddings.create(input="a")


def test_other_protocols(engine: Engine) -> None:
    rows = [each.embedding for each in engine.embeddings.create(input=TEXTS).data]
    ollama = post(engine, "/api/embed", input=TEXTS)
    assert ollama["embeddings"] == rows and ollama["prompt_eval_count"] > 0
    assert post(engine, "/api/embeddings", prompt=TEXTS[0])["embedding"] == rows[0]
    assert len(post(engine, "/api/embed", input="a " * 300)["embeddings"][0]) == 32
    with pytest.raises(MlccError, match="maximum context length"):
        post(engine, "/api/embed", input="a " * 300, truncate=False)
    for path, fields, text in (
        ("/api/embed", {"input": ["a"] * 2049}, "2048"),
        ("/api/embed", {"input": "a", "prompt": "b"}, "leave 'prompt' out"),
        ("/api/embeddings", {"input": ["a", "b"]}, "send them to /api/embed"),
    ):
        with pytest.raises(InvalidRequestError, match=text):
            post(engine, path, **fields)


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: Any) -> Iterator[dict[str, tuple[Engine, Any]]]:
    """Engines and oracles: of one label of three, and of several of seven."""
    made = {}
    with ExitStack() as stack:
        for kind, case in (("one", "bert-classifier"), ("several", "roberta-classifier")):
            folder = tmp_path_factory.mktemp(kind) / "sorter"
            folder.mkdir()
            oracle = make_encoder(CLASSIFIERS[case], folder)
            made[kind] = stack.enter_context(Engine(compiled(folder, "cpu"))), oracle
        yield made


@pytest.mark.feature("classify", "cpu", "runs")
@pytest.mark.parametrize("kind", ["one", "several"])
def test_classes_are_transformers(classifiers: dict[str, tuple[Engine, Any]], kind: str) -> None:
    engine, oracle = classifiers[kind]
    response = post(engine, "/classify", input=TEXTS)
    raw = post(engine, "/classify", input=TEXTS, use_activation=False)["data"]
    activation = torch.sigmoid if kind == "several" else partial(torch.softmax, dim=-1)
    assert response["usage"]["prompt_tokens"] == sum(len(tokens(engine, text)) for text in TEXTS)
    for text, found, logits in zip(TEXTS, response["data"], raw, strict=True):
        with torch.no_grad():
            wanted = oracle(torch.tensor([tokens(engine, text)])).logits[0]
        np.testing.assert_allclose(logits["probs"], wanted, rtol=0, atol=1e-4)
        np.testing.assert_allclose(found["probs"], activation(wanted), rtol=0, atol=1e-4)
        assert found["label"] == oracle.config.id2label[int(wanted.argmax())]
        assert found["num_classes"] == len(wanted) == (7 if kind == "several" else 3)
    one = post(engine, "/classify", input=TEXTS[1])["data"]
    assert [each["label"] for each in one] == [response["data"][1]["label"]]
    ids = post(engine, "/classify", input=[tokens(engine, text) for text in TEXTS])["data"]
    assert [each["probs"] for each in ids] == [each["probs"] for each in response["data"]]


def test_what_has_no_classes_says_so(
    classifiers: dict[str, tuple[Engine, Any]], engine: Engine, reranker: tuple[Engine, Any]
) -> None:
    """A reranker is a classifier of one label; the score of a single text is its probability."""
    classifier, scorer = classifiers["one"][0], reranker[0]
    with pytest.raises(UnsupportedError, match="makes embeddings and makes no classes"):
        post(engine, "/classify", input="a")
    for path, body in (
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/score", {"text_1": "a", "text_2": "b"}),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    ):
        with pytest.raises(UnsupportedError, match="puts texts into classes and makes no"):
            post(classifier, path, **body)
    with pytest.raises(InvalidRequestError, match="maximum context length"):
        post(classifier, "/classify", input="a " * 200)
    cut = post(classifier, "/classify", input="a " * 200, truncate_prompt_tokens=-1)
    assert cut["usage"]["prompt_tokens"] == 128
    (found,) = post(scorer, "/classify", input="a cat")["data"]
    with torch.no_grad():
        logit = reranker[1](torch.tensor([tokens(scorer, "a cat")])).logits[0]
    np.testing.assert_allclose(found["probs"], torch.sigmoid(logit), rtol=0, atol=1e-4)
    assert (found["label"], found["num_classes"]) == ("LABEL_0", 1)


@pytest.mark.feature("rerank", "cpu", "runs")
def test_rerank_is_transformers_order(reranker: tuple[Engine, Any]) -> None:
    engine, oracle = reranker
    documents = ["dogs bark.", "a cat sleeps", "cars 12", "cat"]
    answer = engine.rerank.create(query="a cat", documents=documents)
    scores = {each.index: each.relevance_score for each in answer.results}
    one = tokens(engine, "a cat")
    for i, document in enumerate(documents):
        other = tokens(engine, document)[1:]
        kinds = torch.tensor([[0] * len(one) + [1] * len(other)])
        with torch.no_grad():
            logit = oracle(torch.tensor([one + other]), token_type_ids=kinds).logits[0, 0]
        assert abs(scores[i] - float(torch.sigmoid(logit))) < 1e-4
    assert [each.relevance_score for each in answer.results] == sorted(scores.values())[::-1]
    top = engine.rerank.create(
        query="a cat", documents=[{"text": d} for d in documents], top_n=1, return_documents=False
    )
    assert len(top.results) == 1 and "document" not in top.results[0].to_dict()
    response = post(engine, "/v1/score", text_1="a cat", text_2=documents)
    assert [each["score"] for each in response["data"]] == [scores[i] for i in range(4)]
    with pytest.raises(InvalidRequestError, match="text_1"):
        post(engine, "/v1/score", text_1=["a", "b"], text_2=documents)
    with pytest.raises(InvalidRequestError, match="maximum context length"):
        engine.rerank.create(query="a", documents=["b " * 200])
    cut = engine.rerank.create(query="a", documents=["b " * 200], truncate_prompt_tokens=-1)
    assert cut.usage.total_tokens == 128
    with pytest.raises(InvalidRequestError, match="'query' has 125 tokens and leaves no") as error:
        engine.rerank.create(query="a " * 125, documents=["b"], truncate_prompt_tokens=-1)
    assert error.value.param == "query"


@pytest.mark.feature("rerank", "cpu", "runs")
def test_a_language_model_scores_by_its_next_token(tmp_path: Path) -> None:
    """The score as in Qwen3-Reranker's model card: the softmax of the logits of "no" and "yes"."""
    config = {**DECODER, "max_position_embeddings": 1024, "tie_word_embeddings": True}
    oracle = make_encoder(Case("Qwen3Config", config, "Qwen3ForCausalLM"), tmp_path)
    (tmp_path / "modules.json").unlink()
    made = compiled(tmp_path, "cpu", reranker=True)
    documents = ["a cat", "dogs 12", "b" * 40]
    with Engine(made) as engine:
        answer = engine.rerank.create(query="what", documents=documents)
        text = QWEN3_RERANKER.replace("{query}", "what")
        asked = [text.replace("{document}", each) for each in documents]
        ids = [post(engine, "/tokenize", content=each)["tokens"] for each in asked]
        with pytest.raises(InvalidRequestError, match="maximum context length"):
            engine.rerank.create(query="what", documents=["b " * 1000])
        cut = engine.rerank.create(query="what", documents=["b " * 1000], truncate_prompt_tokens=-1)
        assert cut.usage.total_tokens == 1024
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    for each in answer.results:
        with torch.no_grad():
            logits = oracle(torch.tensor([ids[each.index]])).logits[0, -1]
        no, yes = logits[vocabulary["no"]], logits[vocabulary["yes"]]
        assert abs(each.relevance_score - float(torch.sigmoid(yes - no))) < 1e-4


def test_an_embedding_model_scores_by_cosines(engine: Engine) -> None:
    rows = [np.array(each.embedding) for each in engine.embeddings.create(input=TEXTS).data]
    response = post(engine, "/v1/score", text_1=TEXTS[0], text_2=TEXTS)["data"]
    np.testing.assert_allclose([each["score"] for each in response], [rows[0] @ r for r in rows])


@pytest.mark.feature("embeddings", "cpu", "runs")
def test_over_http_and_by_the_command(made: tuple[Path, Any], engine: Engine) -> None:
    """The server's address is in its first line."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "mlcc", "serve", str(made[0]), "--port", "0"]
    wanted = [each.embedding for each in engine.embeddings.create(input=TEXTS).data]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            url = line.partition(" answers at ")[2].partition(" ")[0]
            example = process.stdout.readline()
            client = OpenAI(base_url=url, api_key="none")
            answer = client.embeddings.create(model="small", input=TEXTS)
            np.testing.assert_allclose([e.embedding for e in answer.data], wanted, atol=1e-6)
            place = url.removesuffix("/v1") + "/embedding"
            response = httpx.post(place, json={"content": TEXTS[0]}).json()
            np.testing.assert_allclose(response[0]["embedding"][0], wanted[0], atol=1e-6)
        finally:
            process.terminate()
    assert f"{url}/embeddings" in example
    command = [sys.executable, "-m", "mlcc", "embed", str(made[0]), *TEXTS]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    found = [json.loads(line) for line in lines.splitlines()]
    assert [each["text"] for each in found] == TEXTS
    np.testing.assert_allclose([each["embedding"] for each in found], wanted, atol=1e-6)
