"""`huggingface_hub.InferenceClient`, unmodified, against the routes of TGI."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import ValidationError

from tests.runtime.server.helpers.server_process import RunningServer

LONG = {"max_new_tokens": 12}


@pytest.fixture
def made(server: RunningServer) -> InferenceClient:
    return InferenceClient(server.url, provider="hf-inference")


def greedy(server: RunningServer, prompt: str, count: int) -> dict[str, Any]:
    """The same completion of /v1/completions: what TGI's routes must answer."""
    body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "logprobs": 2}
    return dict(httpx.post(f"{server.url}/v1/completions", json=body).json()["choices"][0])


def test_a_text_and_its_stream_are_those_of_completions(
    server: RunningServer, made: InferenceClient
) -> None:
    expected = greedy(server, "hello", 12)["text"]
    assert made.text_generation("hello", **LONG) == expected
    pieces = list(made.text_generation("hello", stream=True, **LONG))
    assert len(pieces) == 12 and "".join(pieces) == expected
    assert made.text_generation("hello", return_full_text=True, **LONG) == "hello" + expected
    assert made.text_generation("hello", temperature=1.0, top_p=1.0, **LONG) == expected


def test_details_name_every_token(server: RunningServer, made: InferenceClient) -> None:
    expected = greedy(server, "hello", 6)
    found = made.text_generation(
        "hello", details=True, decoder_input_details=True, top_n_tokens=2, max_new_tokens=6
    )
    details = found.details
    assert details is not None and details.finish_reason == "length" and details.seed is None
    assert [token.text for token in details.tokens] == expected["logprobs"]["tokens"]
    logprobs = [token.logprob for token in details.tokens]
    assert logprobs == pytest.approx(expected["logprobs"]["token_logprobs"])
    ids = httpx.post(f"{server.url}/tokenize", json={"content": found.generated_text}).json()
    assert [token.id for token in details.tokens] == ids["tokens"]
    assert "".join(token.text for token in details.prefill) == "hello"
    assert details.prefill[0].logprob is None and details.prefill[1].logprob < 0
    assert details.top_tokens and [len(top) for top in details.top_tokens] == [2] * 6
    first = [dict(top[0])["id"] for top in details.top_tokens]
    assert first == [token.id for token in details.tokens]


def test_the_last_event_has_the_whole_text(made: InferenceClient) -> None:
    events = list(made.text_generation("hello", stream=True, details=True, **LONG))
    assert [event.index for event in events] == list(range(1, 13))
    assert all(event.generated_text is event.details is None for event in events[:-1])
    last = events[-1]
    assert last.generated_text == "".join(event.token.text for event in events)
    assert last.details is not None
    assert (last.details.finish_reason, last.details.generated_tokens) == ("length", 12)
    assert last.details.input_length == len("hello")


def test_a_stop_string_is_part_of_the_text(made: InferenceClient) -> None:
    whole = made.text_generation("hello", **LONG)
    stop = whole[3:5]
    found = made.text_generation("hello", stop=[stop], details=True, **LONG)
    assert found.generated_text == whole[: whole.index(stop) + 2]
    assert found.details is not None and found.details.finish_reason == "stop_sequence"
    assert "".join(token.text for token in found.details.tokens) == found.generated_text
    assert len(found.details.tokens) == found.details.generated_tokens
    assert "".join(made.text_generation("hello", stop=[stop], stream=True, **LONG)) == (
        found.generated_text
    )


def test_sampling_by_a_seed_that_is_reported(made: InferenceClient) -> None:
    ask: dict[str, Any] = {"do_sample": True, "details": True, **LONG}
    first = made.text_generation("hello", **ask)
    assert first.details is not None and first.details.seed is not None
    again = made.text_generation("hello", seed=first.details.seed, **ask)
    assert again.generated_text == first.generated_text
    others = {made.text_generation("hello", do_sample=True, seed=n, **LONG) for n in range(4)}
    assert len(others) > 1, "seeds differ"


def test_an_end_token_is_special_and_outside_the_text(made: InferenceClient) -> None:
    for seed in range(200):
        ask: dict[str, Any] = {"do_sample": True, "seed": seed, "details": True}
        found = made.text_generation("hello", max_new_tokens=60, **ask)
        assert found.details is not None
        if found.details.finish_reason == "eos_token":
            *rest, last = found.details.tokens
            assert last.special and not any(token.special for token in rest)
            assert found.generated_text == "".join(token.text for token in rest)
            assert len(found.details.tokens) == found.details.generated_tokens
            return
    raise AssertionError("no answer of 200 ended by itself")


def test_the_best_of_several(made: InferenceClient) -> None:
    ends = set()
    for seed in range(12):
        ask: dict[str, Any] = {"do_sample": True, "seed": seed, "details": True}
        found = made.text_generation("hello", best_of=3, **ask, **LONG)
        assert found.details is not None and found.details.best_of_sequences is not None
        every = [found.details, *found.details.best_of_sequences]
        means = [sum(t.logprob for t in one.tokens) / len(one.tokens) for one in every]
        assert len(means) == 3 and means == sorted(means, reverse=True), seed
        ends |= {one.finish_reason for one in every}
    assert ends == {"length", "eos_token"}, "an end token counts, too"


def test_a_prompt_is_truncated_from_the_left(made: InferenceClient) -> None:
    assert made.text_generation("x" * 600 + "hello", truncate=5, **LONG) == (
        made.text_generation("hello", **LONG)
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"watermark": True}, "'parameters.watermark' is not built"),
        ({"top_k": -1}, "'parameters.top_k' must be"),
        ({"best_of": 2}, "'do_sample'"),
        ({"best_of": 2, "do_sample": True, "stream": True}, "without streaming"),
        ({"decoder_input_details": True, "details": True, "stream": True}, "without streaming"),
        ({"adapter_id": "other"}, "'other'"),
        ({"grammar": {"type": "regex", "value": ""}}, "'parameters.grammar.value'"),
        ({"grammar": {"type": "json", "value": "no"}}, "must be a JSON Schema"),
    ],
)
def test_refusals_are_read(made: InferenceClient, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        found = made.text_generation("hello", **fields)
        if fields.get("stream"):
            list(found)


def test_a_prompt_that_is_too_long_is_refused(made: InferenceClient) -> None:
    with pytest.raises(ValidationError, match="prompt is too long"):
        made.text_generation("x" * 600)


def test_what_the_server_is(made: InferenceClient) -> None:
    found = made.get_endpoint_info()
    assert (found["model_id"], found["max_total_tokens"]) == ("toy", 512)
    assert found["max_input_tokens"] < found["max_total_tokens"] and made.health_check()


def test_both_addresses_and_their_shapes(server: RunningServer) -> None:
    body = {"inputs": "hello", "parameters": LONG}
    one = httpx.post(f"{server.url}/generate", json=body).json()
    assert [*one] == ["generated_text"]
    assert httpx.post(f"{server.url}/", json=body).json() == [one]
    answer = httpx.post(f"{server.url}/generate_stream", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [json.loads(line[5:]) for line in answer.text.splitlines() if line]
    assert len(lines) == 12 and lines[-1]["generated_text"] == one["generated_text"]
    ignored = httpx.post(f"{server.url}/generate", json={**body, "parameters": {"beams": 2}})
    assert ignored.headers["x-mlcc-ignored"] == "parameters.beams"
