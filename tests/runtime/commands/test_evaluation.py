"""`mlcc eval`: rows that cannot be scored are refused by line number, truncated ones are
counted."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mlcc.engine.batch.batch import Batch
from mlcc.errors import InvalidRequestError
from mlcc.eval.evaluation import ids_of, perplexity, read_rows, score_tasks
from mlcc.model.model import Model
from mlcc.model.tokenizer.tokenizer import FileTokenizer
from tests.helpers.toy.toy_model import CAPACITY, VOCAB, open_toy, toy_text

HELLO = [{"role": "user", "content": "hi"}]


class Uniform:
    """Thinks every token equally likely: its perplexity is the size of the vocabulary."""

    capacity = replace(CAPACITY, context=32)

    def log_likelihood(self, batch: Batch, targets: Sequence[int]) -> float:
        assert len(targets) == batch.num_rows
        return -math.log(VOCAB) * len(targets)


UNIFORM = Model(toy_text(), Uniform())  # type: ignore[arg-type]


def silent(done: int) -> None:
    pass


@pytest.mark.parametrize(
    ("content", "gist"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\xff\n", "UTF-8"),
        (b"[]", ":1: is not a JSON object"),
        (b'{"messages": [], "answer": "x"}', ":1: 'messages' must be"),
        (b'{"messages": "hi", "answer": "x"}', ":1: 'messages' must be"),
        (json.dumps({"messages": HELLO, "answer": 42}).encode(), ":1: 'answer' must be"),
        (json.dumps({"messages": [{"role": "user"}], "answer": ""}).encode(), "content"),
        (json.dumps({"messages": HELLO, "answer": "", "task": 1}).encode(), "'task' must be"),
        (json.dumps({"messages": HELLO, "answer": ""}).encode() + b"\n{}\n", ":2: lacks messages"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, gist: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError) as caught:
        read_rows(path, ("messages", "answer"))
    assert str(path) in caught.value.message and gist in caught.value.message
    assert "\n" not in caught.value.message


def test_a_prompt_that_is_too_long_names_its_row() -> None:
    rows = [{"messages": [{"role": "user", "content": "x" * n}], "answer": ""} for n in (1, 600)]
    with pytest.raises(InvalidRequestError, match=r"task row 2: .* 6\d\d tokens"):
        score_tasks(open_toy(), rows, silent)


def test_texts_that_are_cut_are_counted() -> None:
    notes: list[str] = []
    found = perplexity(UNIFORM, ["hello", "y" * 32, "y" * 33], silent, notes.append)
    assert found == pytest.approx(VOCAB)
    assert notes == ["1 of 3 texts are scored up to the context of 32 tokens only"]


def test_nothing_to_predict_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="nothing to predict"):
        perplexity(UNIFORM, ["x", ""], silent, pytest.fail)


def test_a_text_begins_as_the_tokenizer_has_it_begin() -> None:
    words = {"<bos>": 0, "</s>": 1, "a": 2, "b": 3}
    special = [
        {"id": i, "content": word, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for word, i in (("<bos>", 0), ("</s>", 1))
    ]  # fmt: skip
    either = [{"SpecialToken": {"id": word, "type_id": 0}} for word in ("<bos>", "</s>")]
    single = [either[0], {"Sequence": {"id": "A", "type_id": 0}}, either[1]]
    written = {"<bos>": 0, "</s>": 1}
    template = {
        "type": "TemplateProcessing", "single": single, "pair": single,
        "special_tokens": {w: {"id": w, "ids": [i], "tokens": [w]} for w, i in written.items()},
    }  # fmt: skip
    data = {
        "version": "1.0", "added_tokens": special, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": template,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "b"},
    }  # fmt: skip
    tokenizer = FileTokenizer(Path("unread"), json.dumps(data).encode())
    assert ids_of(tokenizer, "a b") == [0, 2, 3]
    assert ids_of(tokenizer, "<bos>a b") == [0, 2, 3]
    assert ids_of(tokenizer, "") == [0]
    del data["post_processor"]
    assert ids_of(FileTokenizer(Path("unread"), json.dumps(data).encode()), "a b") == [2, 3]
