"""Token ids and texts are equal with mlcc's tokenizer and with that of a C host."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from mlcc.embedded.c.tokenizer import HostTokenizer
from mlcc.engine.text.tokenizer import TokenTexts
from mlcc.errors import ArtifactError
from mlcc.model.tokenizer.tokenizer import FileTokenizer
from mlcc.model.tokenizer.vocabulary import parts_of_characters

FILE = Path(__file__).parents[3] / "examples/demo/model/tokenizer.json"
VOCAB = 1280


class Host:
    """The module `_mlcc`, as far as texts go."""

    def __init__(self, tokenizer: FileTokenizer) -> None:
        self._tokenizer = tokenizer

    def decode(self, engine: int, ids: bytes) -> bytes:
        return self._tokenizer.decode(array("i", ids)).encode()

    def encode(self, engine: int, text: str, special: bool) -> list[int]:
        return [*self._tokenizer.encode(text, add_special_tokens=special)]

    def special_tokens(self, engine: int) -> str:
        return json.dumps(self._tokenizer.special_tokens())


def test_parts_of_characters_have_the_same_bytes() -> None:
    own = FileTokenizer(FILE)
    here = TokenTexts(own, VOCAB)
    there = TokenTexts(HostTokenizer(Host(own), 0, FILE), VOCAB)
    blind = TokenTexts(HostTokenizer(Host(own), 0), VOCAB)
    assert all(here.of(t) == there.of(t) for t in range(VOCAB))
    assert all(here.of(t).bytes is not None for t in range(VOCAB))
    unknown = {t for t in range(VOCAB) if blind.of(t).bytes is None}
    assert unknown == parts_of_characters(FILE).keys() and len(unknown) > 100
    assert [t for t in range(VOCAB) if not here.of(t).text] == [0, 1, 2, 3]  # control tokens
    for texts in (there, blind):
        assert [texts.written(t) for t in range(4)] == [here.written(t) for t in range(4)]
    assert here.written(3) == "<|im_end|>"


def test_a_vocabulary_in_order_of_scores_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    vocabulary = [["<unk>", 0.0], ["<0xE2>", 0.0], ["▁a", -1.0], ["<0x61>", 0.0]]
    file.write_text(json.dumps({"model": {"vocab": vocabulary}}))
    assert parts_of_characters(file) == {1: "<0xE2>"}
    file.write_text("{}")
    with pytest.raises(ArtifactError, match="compile the model again"):
        parts_of_characters(file)
