"""A tokenizer over an index gives the ids and texts of the whole tokenizer."""

from __future__ import annotations

import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from mlcc.model.tokenizer import index, indexed
from mlcc.model.tokenizer.index import TokenIndex, build
from mlcc.model.tokenizer.indexed import IndexedTokenizer, open_tokenizer
from mlcc.model.tokenizer.native import NativeTokenizer
from mlcc.model.tokenizer.tokenizer import MANY_IDS, FileTokenizer
from mlcc.util.file_cache import TOKENIZERS

DEMO = Path(__file__).parents[3] / "examples" / "demo" / "model" / "tokenizer.json"
BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
MERGES = [("a", "b"), ("ab", "ab"), ("b", "a"), ("▁", "ab"), ("▁ab", "ba"), ("c", "é"), ("▁", "▁")]
SIGNS = "abcé ▁漢🦥\nABX<>|"


def sentencepiece(fallback: bool) -> Tokenizer:
    """As of Gemma; without byte fallback, unknown characters become one `<unk>`."""
    letters = [*"▁abcé", *(left + right for left, right in MERGES)]
    vocabulary = {**BYTES, "<unk>": 256, **{piece: 257 + i for i, piece in enumerate(letters)}}
    model = models.BPE(vocabulary, MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=fallback)
    made = Tokenizer(model)
    made.normalizer = normalizers.Replace(" ", "▁")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    made.add_special_tokens(["<a>", "<|ab|>"])
    return made


def by_bytes() -> Tokenizer:
    """As of Llama 3: whole words first, and control tokens behind the vocabulary."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = sorted(level.alphabet())
    merges = [("a", "b"), ("Ġ", "ab"), ("ab", "ab"), ("Ã", "©")]
    pieces = [*letters, *(left + right for left, right in merges), "abcabc"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    made.pre_tokenizer, made.decoder = level, decoders.ByteLevel()
    made.add_special_tokens(["<|ab|>", AddedToken("<a>", special=True, rstrip=True)])
    made.add_tokens([AddedToken("XX", normalized=True), AddedToken("AB", normalized=False)])
    return made


KINDS = {
    "characters": lambda: sentencepiece(True),
    "unknown": lambda: sentencepiece(False),
    "bytes": by_bytes,
    "demo": lambda: Tokenizer.from_file(str(DEMO)),
}


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileTokenizer, IndexedTokenizer]:
    path = tmp_path / "tokenizer.json"
    KINDS[request.param]().save(str(path))
    data = build(path.read_bytes())
    assert data is not None
    return FileTokenizer(path), IndexedTokenizer(path, TokenIndex(data))


def texts(whole: FileTokenizer) -> list[str]:
    rng = random.Random(1)
    ids = [[rng.randrange(400) for _ in range(8)] for _ in range(30)]
    spelled = ["".join(whole.piece(i) or "" for i in row) for row in ids]
    signs = ["".join(rng.choices(SIGNS, k=rng.randrange(24))) for _ in range(60)]
    words = ["<|ab|>abab<a> abcabc", "abcabc", "What is 17 + 25?", "XXAB", "", " ab"]
    return [*spelled, *signs, *words]


def test_ids_and_texts_are_those_of_the_whole(pair: tuple[FileTokenizer, IndexedTokenizer]) -> None:
    whole, small = pair
    for text in texts(whole):
        for special in (True, False):
            ids = whole.encode(text, add_special_tokens=special)
            assert small.encode(text, add_special_tokens=special) == ids, text
        assert small.decode(ids) == whole.decode(ids)
    rng = random.Random(2)
    for _ in range(50):
        ids = [rng.randrange(420) for _ in range(12)]
        assert small.decode(ids) == whole.decode(ids)
    assert [*map(small.piece, range(420))] == [*map(whole.piece, range(420))]
    assert small.special_tokens() == whole.special_tokens()
    assert "whole" not in vars(small), "the file was read"
    assert small.longest == whole.longest


def test_long_texts_are_read_by_the_whole(pair: tuple[FileTokenizer, IndexedTokenizer]) -> None:
    whole, small = pair
    text = "ab ba " * 2000
    ids = whole.encode(text, add_special_tokens=True)
    assert small.encode(text, add_special_tokens=True) == ids and "whole" in vars(small)


def test_many_ids_are_decoded_by_the_whole(pair: tuple[FileTokenizer, IndexedTokenizer]) -> None:
    whole, small = pair
    rng = random.Random(3)
    ids = [rng.randrange(400) for _ in range(MANY_IDS + 1)]
    at_once = whole._tokenizer.decode(ids, skip_special_tokens=True)
    few = whole._tokenizer.decode(ids[:-1], skip_special_tokens=True)
    assert small.decode(ids[:-1]) == whole.decode(ids[:-1]) == few
    assert "whole" not in vars(small)
    assert small.decode(ids) == whole.decode(ids) == at_once
    assert "whole" in vars(small)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "WordPiece"},
        {"continuing_subword_prefix": "##"},
        {"end_of_word_suffix": "</w>"},
        {"dropout": 0.1},
        {"vocab": {"a": 0, "b": 4_000_000_000}, "merges": []},
        {"vocab": {"a": 0, "b": -1}, "merges": []},
        {"vocab": {"a": "0"}, "merges": []},
        {"merges": [["a", "never"]]},
        {"merges": None},
    ],
)
def test_others_have_no_index(change: dict[str, Any]) -> None:
    tree = json.loads(by_bytes().to_str())
    tree["model"] |= change
    assert build(json.dumps(tree).encode()) is None


def test_a_control_token_that_could_be_a_word_has_no_index() -> None:
    made = by_bytes()
    made.add_tokens([AddedToken("abab", single_word=True), AddedToken("xyz", single_word=True)])
    assert build(made.to_str().encode()) is None
    lower = by_bytes()
    lower.normalizer = normalizers.Lowercase()
    assert build(lower.to_str().encode()) is None


def test_the_second_start_reads_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    digest = sha256(DEMO.read_bytes()).hexdigest()
    assert isinstance(open_tokenizer(DEMO, digest), FileTokenizer) and not TOKENIZERS.size()
    monkeypatch.setattr(indexed, "SMALLEST_FILE", 0)
    made: list[bytes] = []
    monkeypatch.setattr(index, "build", lambda text: made.append(build(text)) or made[-1])
    for _ in range(2):
        assert isinstance(open_tokenizer(DEMO, digest), IndexedTokenizer) and len(made) == 1
    (entry,) = TOKENIZERS.folder().iterdir()
    entry.write_bytes(entry.read_bytes()[:-4] + b"oops")
    open_tokenizer(DEMO, digest)
    assert len(made) == 2, "a damaged index was used"
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert open_tokenizer(DEMO, digest).encode("a", add_special_tokens=False)


def test_a_tokenizer_without_an_index_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(indexed, "SMALLEST_FILE", 0)
    path = tmp_path / "tokenizer.json"
    Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>")).save(str(path))
    digest = sha256(path.read_bytes()).hexdigest()
    assert isinstance(open_tokenizer(path, digest), FileTokenizer | NativeTokenizer)
    monkeypatch.setattr(index, "build", lambda text: pytest.fail("built again"))
    assert isinstance(open_tokenizer(path, digest), FileTokenizer | NativeTokenizer)
