"""KServe's protocol by gRPC over the toy's server: calls, streams, keys, limits, TLS and the drain.
Encoders are in `test_kserve.py`."""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import httpx
import pytest
import trustme

from mlcc.errors import MlccError
from mlcc.server import serve
from mlcc.server.grpc.messages import NOT_SERVING, SERVING
from mlcc.util import extras
from tests.helpers.grpc_client import Client, free_port, request, texts_of
from tests.runtime.server.helpers.server_process import (
    RunningServer,
    engine_stats,
    eventually,
    idle,
    running,
)

GREEDY = {"max_tokens": 8, "temperature": 0}


@contextmanager
def serving(*options: str, key: str = "") -> Iterator[tuple[RunningServer, Client]]:
    """A toy server and a client of its gRPC port."""
    port = free_port()
    metadata = [("authorization", f"Bearer {key}")] if key else []
    with (
        running("--grpc-port", str(port), *options) as server,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield server, Client(channel, metadata)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[RunningServer, Client]]:
    with serving("--max-body", "20000") as made:
        yield made


def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), error.value.details()


def test_health_and_metadata(both: tuple[RunningServer, Client]) -> None:
    server, client = both
    assert client.call("ServerLive").live and client.call("ServerReady").ready
    assert client.check() == SERVING
    assert client.call("ServerMetadata").name == "mlcc"
    model = client.call("ModelMetadata", name="toy", version="1")
    about = httpx.get(f"{server.url}/v2/models/toy").json()
    for mine, theirs in ((model.inputs, about["inputs"]), (model.outputs, about["outputs"])):
        assert [(t.name, t.datatype, [*t.shape]) for t in mine] == [
            (t["name"], t["datatype"], t["shape"]) for t in theirs
        ]
    assert client.call("ModelReady", name="toy").ready
    (row,) = client.call("RepositoryIndex", ready=True).models
    assert (row.name, row.version, row.state) == ("toy", "1", "READY")
    client.call("RepositoryModelLoad", model_name="toy")


def test_config_and_statistics(both: tuple[RunningServer, Client]) -> None:
    """The numbers of HTTP's routes, which count each answer once."""
    server, client = both
    config = client.call("ModelConfig", name="toy", version="1").config
    assert (config.name, config.backend, config.max_batch_size) == ("toy", "mlcc", 0)
    (text,), (made,) = config.input, config.output
    assert (text.name, text.data_type, [*text.dims]) == ("text_input", 13, [1])
    assert (made.name, made.data_type) == ("text_output", 13)
    assert config.model_transaction_policy.decoupled

    def counted() -> Any:
        (row,) = client.call("ModelStatistics").model_stats
        return row

    before, began = counted(), time.time()
    client.call("ModelInfer", request("toy", {"text_input": ["hello"]}, **GREEDY))
    with pytest.raises(grpc.RpcError):
        client.call("ModelInfer", request("toy", {"text_input": ["a"]}, max_tokens=-5))
    after = counted()
    assert after.inference_count == before.inference_count + 1
    assert after.execution_count >= before.execution_count + 8  # a step a token
    assert abs(after.last_inference / 1000 - began) < 60
    old, new = before.inference_stats, after.inference_stats
    assert new.success.count == old.success.count + 1 and new.success.ns > old.success.ns
    assert new.fail == old.fail  # what was refused never ran
    success = new.success.ns - old.success.ns
    parts = [getattr(new, name) for name in ("queue", "compute_infer")]
    assert [part.count for part in parts] == [new.success.count] * 2
    old_ns = old.queue.ns + old.compute_infer.ns
    assert 0 < sum(part.ns for part in parts) - old_ns < success
    assert all(part.ns > 0 for part in parts)
    (row,) = httpx.get(f"{server.url}/v2/models/toy/stats").json()["model_stats"]
    assert row["inference_stats"]["success"]["count"] == new.success.count
    assert refused(lambda: client.call("ModelStatistics", name="no"))[0].name == "NOT_FOUND"
    assert refused(lambda: client.call("ModelConfig", name="no"))[0].name == "NOT_FOUND"


@pytest.mark.feature("kserve-grpc", "cpu", "runs")
@pytest.mark.parametrize("raw", [True, False])
def test_texts_are_those_of_http(both: tuple[RunningServer, Client], raw: bool) -> None:
    server, client = both
    body = {"text_input": "hello", **GREEDY}
    text = httpx.post(f"{server.url}/v2/models/toy/generate", json=body).json()["text_output"]
    found = client.call("ModelInfer", request("toy", {"text_input": ["hello"]}, raw, **GREEDY))
    assert (texts_of(found), found.id, bool(found.raw_output_contents)) == ([text], "7", raw)
    options = {"text_input": ["hello"], "sampling_parameters": [json.dumps(GREEDY)]}
    made = request("toy", options, False, triton_enable_empty_final_response=True)
    made.inputs.add(name="exclude_input_in_output", datatype="BOOL", shape=[1])
    made.inputs[-1].contents.bool_contents.append(False)
    *pieces, last = [one.infer_response for one in client.stream([made])]
    assert "".join(texts_of(piece)[0] for piece in pieces) == "hello" + text and len(pieces) > 2
    final = "triton_final_response"
    ends = [one.parameters[final].bool_param for one in (*pieces, last)]
    assert ends == [False] * len(pieces) + [True] and not last.outputs
    made.inputs.add(name="stream", datatype="BOOL", shape=[1]).contents.bool_contents.append(False)
    (whole,) = client.stream([made])
    assert texts_of(whole.infer_response) == ["hello" + text]


def test_a_stream_answers_several_requests_and_survives_errors(
    both: tuple[RunningServer, Client],
) -> None:
    _, client = both
    good = [request("toy", {"text_input": [f"text {i}"]}, **GREEDY) for i in range(3)]
    for number, one in enumerate(good):
        one.id = str(number)
    wrong = request("toy", {"text_input": ["a"]}, max_tokens=-5)
    unknown = request("other", {"text_input": ["a"]})
    texts, errors = dict.fromkeys("012", ""), []
    for answer in client.stream([good[0], wrong, unknown, *good[1:]]):
        if answer.error_message:
            errors.append((answer.infer_response.id, answer.error_message))
        else:
            texts[answer.infer_response.id] += texts_of(answer.infer_response)[0]
    assert [texts[one.id] for one in good] == [
        texts_of(client.call("ModelInfer", one))[0] for one in good
    ]
    assert [name for name, _ in errors] == ["7", "7"]
    assert any("'max_tokens'" in text for _, text in errors) and "other" in str(errors)


@pytest.mark.parametrize(
    ("made", "code", "words"),
    [
        (request("toy", {"text_input": ["a"]}, n=2), "INVALID_ARGUMENT", "'n' is not built"),
        (request("other", {"text_input": ["a"]}), "NOT_FOUND", "'other'"),
        (request("toy", {"text": ["a"]}), "INVALID_ARGUMENT", "/v2/models/toy/generate"),
        (request("toy", {"text_input": ["a", "b"]}), "INVALID_ARGUMENT", "a request for each"),
        (
            request("toy", {"text_input": ["a"], "words": ["b"]}),
            "INVALID_ARGUMENT",
            "'words' is no input of a model that writes text",
        ),
        (
            request("toy", {"text_input": ["a"], "sampling_parameters": ["3"]}),
            "INVALID_ARGUMENT",
            "must be a JSON object",
        ),
        (
            request("toy", {"text_input": ["a"], "stream": ["x"]}),
            "INVALID_ARGUMENT",
            "must be one BOOL",
        ),
        (request("toy", {"text_input": ["x" * 30_000]}), "RESOURCE_EXHAUSTED", "larger than 20000"),
        (request("toy", {"text_input": ["x" * 200_000]}), "RESOURCE_EXHAUSTED", "larger than max"),
    ],
)
def test_what_is_wrong_has_a_code_and_a_message(
    both: tuple[RunningServer, Client], made: Any, code: str, words: str
) -> None:
    found, text = refused(lambda: both[1].call("ModelInfer", made))
    assert found.name == code and words in text, text


def test_odd_messages(both: tuple[RunningServer, Client]) -> None:
    client = both[1]
    odd = request("toy", {"text_input": ["a"]})
    odd.raw_input_contents.append(b"")
    code, text = refused(lambda: client.call("ModelInfer", odd))
    assert code is grpc.StatusCode.INVALID_ARGUMENT and "has 2 entries" in text
    odd = request("toy", {"text_input": ["a"]})
    odd.raw_input_contents[0] = b"\x09\0\0\0a"
    assert "beyond its bytes" in refused(lambda: client.call("ModelInfer", odd))[1]
    garbage = SimpleNamespace(SerializeToString=lambda: b"\xff\xff\xff\xff")
    for call in ("ModelInfer", "ModelReady", "RepositoryModelLoad"):
        code, _ = refused(lambda call=call: client.call(call, garbage))
        assert code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    ask = client._channel.unary_unary("/inference.GRPCInferenceService/TraceSetting")
    assert refused(lambda: ask(b""))[0] is grpc.StatusCode.UNIMPLEMENTED
    assert refused(lambda: client.call("ModelReady", name="other"))[0].name == "NOT_FOUND"
    code, _ = refused(lambda: client.call("RepositoryModelUnload", model_name="toy"))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


def test_random_messages_end_in_a_code(both: tuple[RunningServer, Client]) -> None:
    """Any bytes, and requests with some bytes changed: each call ends, and the next is answered."""
    server, client = both
    calls = ("ModelInfer", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics")
    rng, calls = random.Random(7), (*calls, "RepositoryIndex")
    valid = request("toy", {"text_input": ["hello"]}, **GREEDY)
    before, codes = texts_of(client.call("ModelInfer", valid)), Counter[str]()
    whole = valid.SerializeToString(deterministic=True)  # else maps have any order
    for _ in range(300):
        data = bytearray(whole if rng.random() < 0.7 else rng.randbytes(40))
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        sent = SimpleNamespace(SerializeToString=lambda data=data: bytes(data))
        try:
            client.call(rng.choice(calls), sent)
        except grpc.RpcError as error:
            assert "Traceback" not in error.details() and "bug" not in error.details()
            codes[error.code().name] += 1
    assert codes.keys() <= {"INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL", "UNKNOWN"}, codes
    assert len(codes) > 2 and codes.total() > 100, codes
    eventually(lambda: idle(server))
    assert texts_of(client.call("ModelInfer", valid)) == before


def test_a_deadline_and_a_cancel_end_the_work() -> None:
    with serving("--delay", "0.05") as (server, client):
        slow = request("toy", {"text_input": ["hello"]}, max_tokens=400, ignore_eos=True)
        code, _ = refused(lambda: client.call("ModelInfer", slow, timeout=1))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert eventually(lambda: idle(server), 10)
        answers: Any = client.stream([slow])
        next(answers)
        assert engine_stats(server)["running"] == 1
        answers.cancel()
        assert eventually(lambda: idle(server), 10)


def test_keys_scopes_and_metrics(tmp_path: Path) -> None:
    keys = [
        {"name": "user", "key": "a" * 24, "scopes": ["inference"]},
        {"name": "admin", "key": "b" * 24, "scopes": ["inference", "admin"]},
    ]
    (file := tmp_path / "keys.json").write_text(json.dumps({"keys": keys}))
    with serving("--api-keys", str(file)) as (server, client):
        assert client.call("ServerLive").live and client.check() == SERVING
        for call in ("ServerMetadata", "ModelInfer", "RepositoryIndex"):
            code, text = refused(lambda call=call: client.call(call))
            assert code is grpc.StatusCode.UNAUTHENTICATED and "authorization" in text
        with pytest.raises(grpc.RpcError):
            [*client.stream([])]
        client._metadata = [("authorization", f"Bearer {'a' * 24}")]
        made = request("toy", {"text_input": ["hello"]}, **GREEDY)
        assert texts_of(client.call("ModelInfer", made))
        code, text = refused(lambda: client.call("RepositoryModelLoad", model_name="toy"))
        assert code is grpc.StatusCode.PERMISSION_DENIED and "'admin'" in text
        client._metadata = [("x-api-key", "b" * 24)]
        client.call("RepositoryModelLoad", model_name="toy")
        headers = {"authorization": f"Bearer {'b' * 24}"}
        metrics = httpx.get(f"{server.url}/metrics", headers=headers).text
        line = next(line for line in metrics.splitlines() if "/generate" in line and "200" in line)
        assert line.endswith(" 1.0")


def test_tls(tmp_path: Path) -> None:
    authority, port = trustme.CA(), free_port()
    issued = authority.issue_cert("localhost")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with (
        running("--grpc-port", str(port), "--cert", str(chain), str(key)),
        grpc.secure_channel(f"localhost:{port}", credentials) as channel,
    ):
        assert Client(channel).call("ServerReady").ready


def test_a_drain_ends_what_runs_and_refuses_the_rest() -> None:
    with serving("--delay", "0.05") as (server, client):
        slow = request("toy", {"text_input": ["hello"]}, max_tokens=30, ignore_eos=True)
        answers = client.stream([slow])
        first = next(answers)
        server.process.terminate()
        assert eventually(lambda: not client.call("ServerReady").ready, 10)
        assert client.check() == NOT_SERVING and client.call("ServerLive").live
        code, text = refused(lambda: client.call("ServerMetadata"))
        assert code is grpc.StatusCode.UNAVAILABLE and "shutting down" in text
        rest = [texts_of(one.infer_response)[0] for one in answers]
        assert len(rest) > 10 and first.infer_response.outputs


def test_a_taken_port_and_missing_packages_are_named_before_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = other.getsockname()[1]
        with pytest.raises(MlccError, match="choose another --grpc-port"):
            serve.check_grpc(serve.HttpOptions("127.0.0.1", 0, grpc_port=taken))
    monkeypatch.setattr(extras, "is_here", lambda package: package != "grpc")
    with pytest.raises(MlccError, match=r'--grpc-port needs grpc.*"mlcc\[grpc\]"'):
        serve.check_grpc(serve.HttpOptions("127.0.0.1", 0, grpc_port=0))
