"""Infill: the detected family of a tokenizer, and the prompt sent to the engine."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from mlcc.api.openai.infill import FAMILIES, Infill, family_of
from mlcc.model.model import Model, ModelText
from mlcc.service.http.types import JSON_TYPE, ApiRequest
from mlcc.service.served_model import OneModel, ServedModel
from mlcc.service.service import Service
from mlcc.worker.client import EngineThread, WorkerClient
from tests.helpers.toy.toy_model import Letters, open_toy, toy_text

MARKS = {"<fim_prefix>": 93, "<fim_suffix>": 94, "<fim_middle>": 95, "<file_sep>": 92}
"""StarCoder's infill tokens, with the ids of the toy's last tokens."""


class Gapped(Letters):
    """Letters, and control tokens for gaps."""

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        ids = array("i")
        while text:
            mark = next((m for m in MARKS if text.startswith(m)), "")
            plain = super().encode(text[:1], add_special_tokens=False)
            ids.extend([MARKS[mark]] if mark else plain)
            text = text[len(mark) or 1 :]
        return ids


def gapped_text() -> ModelText:
    return replace(toy_text(), tokenizer=Gapped())


def open_gapped() -> Model:
    return replace(open_toy(), text=gapped_text())


def tokenizer_of(*tokens: str) -> Callable[[str], int | None]:
    made = Tokenizer(BPE({"a": 0, "<": 1, "?": 2}, [], unk_token="?"))
    made.add_tokens([AddedToken(token, special=False, normalized=False) for token in tokens])

    def token(text: str) -> int | None:
        ids = made.encode(text, add_special_tokens=False).ids
        return ids[0] if len(ids) == 1 else None

    return token


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.prefix)
def test_a_tokenizer_tells_its_family(family: Infill) -> None:
    assert family_of(tokenizer_of(*family.tokens)) == family
    assert family_of(tokenizer_of(*family.tokens[1:])) is None


def test_one_token_for_all_that_is_unknown_is_no_family() -> None:
    assert family_of(lambda text: 7) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("<|fim_prefix|>", "<|fim_prefix|>A<|fim_suffix|>B<|fim_middle|>"),
        ("<\uff5cfim\u2581begin\uff5c>",
         "<\uff5cfim\u2581begin\uff5c>A<\uff5cfim\u2581hole\uff5c>B<\uff5cfim\u2581end\uff5c>"),
        ("\u2581<PRE>", "\u2581<PRE>A\u2581<SUF>B\u2581<MID>"),
        ("[PREFIX]", "[SUFFIX]B[PREFIX]A"),
    ],
)  # fmt: skip
def test_prompts_are_written_as_the_model_cards_do(name: str, text: str) -> None:
    family = next(family for family in FAMILIES if family.prefix == name)
    assert family.text("A", "B") == text


def ask(path: str, **fields: Any) -> Any:
    """The answer of a service over the toy with marks for gaps."""

    async def asked(process: EngineThread) -> Any:
        engine = WorkerClient(process, 8)
        engine.start()

        async def read() -> bytes:
            return json.dumps(fields).encode()

        request = ApiRequest("POST", path, {"content-type": JSON_TYPE}, read)
        response = await Service(OneModel(ServedModel(engine, gapped_text()))).answer(request)
        engine.stop()
        assert isinstance(response.body, str)
        return json.loads(response.body)

    process = EngineThread(partial(open_gapped))
    try:
        return asyncio.run(asked(process))
    finally:
        process.close()


def test_four_protocols_ask_the_same_of_the_engine() -> None:
    greedy = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
    written = "<fim_prefix>def f(<fim_suffix>): pass<fim_middle>"
    expected = ask("/v1/completions", prompt=written, stop_token_ids=[92], **greedy)
    text, tokens = expected["choices"][0]["text"], expected["usage"]["prompt_tokens"]
    assert tokens == len("def f(): pass") + 3
    openai = ask("/v1/completions", prompt="def f(", suffix="): pass", **greedy)
    assert openai["choices"][0]["text"] == text and openai["usage"]["prompt_tokens"] == tokens
    llama = ask("/infill", input_prefix="def ", prompt="f(", input_suffix="): pass", **greedy)
    assert llama["content"] == text and llama["tokens_evaluated"] == tokens
    options = {"temperature": 0, "num_predict": 8, "ignore_eos": True}
    ollama = ask("/api/generate", prompt="def f(", suffix="): pass", stream=False, options=options)
    assert ollama["response"] == text and ollama["prompt_eval_count"] == tokens
    assert "insert" in ask("/api/show", model="toy")["capabilities"]


def test_other_files_stand_before_it() -> None:
    files = [{"filename": "a.py", "text": "x = 1"}, {"text": "y"}]
    answer = ask("/infill", input_prefix="A", input_suffix="B", input_extra=files, n_predict=1)
    head = "<file_sep>a.py\nx = 1\n<file_sep>y\n<file_sep>"
    assert answer["prompt"] == head + "<fim_prefix>A<fim_suffix>B<fim_middle>"


def test_a_gap_is_between_texts() -> None:
    error = ask("/v1/completions", prompt=[5, 6], suffix="a")["error"]
    assert (error["param"], error["code"]) == ("prompt", "invalid_value")
