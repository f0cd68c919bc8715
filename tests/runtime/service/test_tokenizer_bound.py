"""A text refused for its length has more tokens than the context: the bound is never too low."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from mlcc.model.tokenizer.longest_token import longest_text
from mlcc.model.tokenizer.tokenizer import FileTokenizer

DEMO = Path(__file__).parents[3] / "examples" / "demo" / "model" / "tokenizer.json"
BYTES = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
FALLBACK = {f"<0x{byte:02X}>": byte for byte in range(256)}


def by_bytes(normalizer: Any = None, before: Any = None) -> Tokenizer:
    made = Tokenizer(models.BPE({**BYTES, "ab": 256, "abab": 257}, [("a", "b"), ("ab", "ab")]))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([before, level]) if before else level
    if normalizer:
        made.normalizer = normalizer
    return made


def by_characters() -> Tokenizer:
    """A BPE over characters, as of Llama 2 and Gemma."""
    made = Tokenizer(
        models.BPE({**FALLBACK, "▁": 256, "a": 257, "▁a": 258}, [("▁", "a")], byte_fallback=True)
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.ByteFallback()
    return made


ENCODINGS = 200
LETTERS = "ab ▁\u0301\u0345\u0313é\u1f82한\u1112\u1161\u11ab🙂\n"
BOUNDED = {
    "bytes": (by_bytes(), 4),
    "composed": (by_bytes(normalizers.NFC()), 16),
    "characters": (by_characters(), 6),
    "demo": (Tokenizer.from_file(str(DEMO)), 15),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_the_bound(name: str) -> None:
    tokenizer, longest = BOUNDED[name]
    assert longest_text(tokenizer) == longest


@pytest.mark.parametrize("name", BOUNDED)
@settings(deadline=None, max_examples=150)
@given(st.text(st.sampled_from(LETTERS)) | st.text())
def test_no_text_has_fewer_tokens_than_its_length_says(name: str, text: str) -> None:
    tokenizer, longest = BOUNDED[name]
    count = len(tokenizer.encode(text, add_special_tokens=False).ids)
    assert count * longest >= len(text)


def unknown(**options: Any) -> Tokenizer:
    return Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], **options))


def swallowing() -> Tokenizer:
    made = by_bytes()
    made.add_special_tokens([AddedToken("<end>", rstrip=True)])
    return made


@pytest.mark.parametrize(
    "tokenizer",
    [
        by_bytes(normalizers.Strip()),
        by_bytes(normalizers.Replace(" ", "")),
        by_bytes(normalizers.BertNormalizer()),
        by_bytes(None, pre_tokenizers.Whitespace()),
        by_bytes(None, pre_tokenizers.Split(" ", "removed")),
        unknown(),
        unknown(unk_token="<unk>", fuse_unk=True),
        Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")),
        Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")),
        Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0)),
        swallowing(),
    ],
)
def test_no_bound_where_text_may_be_dropped(tokenizer: Tokenizer) -> None:
    assert longest_text(tokenizer) is None


@pytest.mark.parametrize("call", ["encode", "decode"])
def test_other_threads_run_while_a_text_is_encoded_or_decoded(call: str) -> None:
    """Rounds of another thread, each of which needs the interpreter: none would come to its end
    while the call held on to that, but one before and one after. On a busy machine the thread
    may wait for a core during one encoding, not during all."""
    tokenizer, rounds, done = FileTokenizer(DEMO), 0, threading.Event()
    ids = [*tokenizer.encode("hello world " * 20, add_special_tokens=False)] * 2000

    def during() -> int:
        started = rounds
        if call == "encode":
            tokenizer.encode("hello world " * 20_000, add_special_tokens=False)
        else:
            tokenizer.decode(ids)
        return rounds - started

    def count() -> None:
        nonlocal rounds
        while not done.is_set():
            rounds += 1
            time.sleep(0)  # hands over at once, as this test does not

    other = threading.Thread(target=count)
    other.start()
    try:
        assert any(during() > 10 for _ in range(ENCODINGS))
    finally:
        done.set()
        other.join()
