"""A tiktoken vocabulary converted to tokenizer.json, against a naive implementation with
`regex`."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from tokenizers import Tokenizer

from mlcc.errors import CheckpointError, MlccError, UnsupportedError
from mlcc_compiler.checkpoint.tokenizer.tiktoken import CUTS, NAME, tokenizer_of
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import check_tokenizer, tokenizer_json

TEXT = (
    "The theory's that THE théâtre HTTPServer won't open at 12345.6 o'clock;\n\n  it\u2019s "
    "你好世界, 再见world了 ok?!\r\n\tdef f(x):  return {'a': [1, 22, 333]}   ñandú I'LL WE'VE "
    "don'T ... 한국어 "
)
ADDED = {
    "END": {"content": "<|im_end|>", "special": True},
    "CALL": {"content": "<|tool_call_begin|>", "special": False},
}


def trained(merges: int, seed: int = 0) -> dict[bytes, int]:
    """Ranks that byte pair encoding gives the text: bytes in a shuffled order, then pairs."""
    order = list(range(256))
    random.Random(seed).shuffle(order)
    ranks = {bytes([byte]): rank for rank, byte in enumerate(order)}
    words = [[bytes([b]) for b in word.encode()] for word in regex.findall(CUTS, TEXT, regex.V1)]
    for _ in range(merges):
        counts: dict[tuple[bytes, bytes], int] = {}
        for word in words:
            for pair in pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        pair = max(counts, key=lambda p: (counts[p], p))
        ranks.setdefault(pair[0] + pair[1], len(ranks))
        words = [list(joined(word, pair)) for word in words]
    return ranks


def joined(word: list[bytes], pair: tuple[bytes, bytes]) -> Iterable[bytes]:
    at = 0
    while at < len(word):
        both = tuple(word[at : at + 2]) == pair
        yield word[at] + word[at + 1] if both else word[at]
        at += 2 if both else 1


def naive(text: str, ranks: dict[bytes, int]) -> list[int]:
    """Merge as tiktoken does: the pair of lowest rank first."""
    found = []
    for word in regex.findall(CUTS, text, regex.V1):
        data = word.encode()
        parts = [data] if data in ranks else [bytes([b]) for b in data]
        while len(parts) > 1:
            pairs = [ranks.get(a + b, 1 << 30) for a, b in pairwise(parts)]
            at = pairs.index(min(pairs))
            if pairs[at] == 1 << 30:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        found += [ranks[part] for part in parts]
    return found


def write(folder: Path, ranks: dict[bytes, int], kind: str = "TikTokenTokenizer") -> None:
    rows = (f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    (folder / NAME).write_text("".join(rows))
    added = {str(len(ranks) + i): token for i, token in enumerate(ADDED.values())}
    config = {"tokenizer_class": kind, "added_tokens_decoder": added}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("merges", [0, 40, 400])
def test_it_encodes_as_ranks_do(tmp_path: Path, merges: int) -> None:
    ranks = trained(merges)
    write(tmp_path, ranks)
    data = tokenizer_json(tmp_path)
    check_tokenizer(tmp_path, data)
    tokenizer = Tokenizer.from_str(data.decode())
    rng = random.Random(merges)
    for _ in range(200):
        start = rng.randrange(len(TEXT))
        text = TEXT[start : start + rng.randrange(40)][:: rng.choice((1, 1, -1))]
        ids = tokenizer.encode(text).ids
        assert ids == naive(text, ranks), text
        assert tokenizer.decode(ids) == text
    ids = tokenizer.encode("a<|im_end|><|tool_call_begin|>b").ids
    assert ids == [ranks[b"a"], len(ranks), len(ranks) + 1, ranks[b"b"]]
    assert tokenizer.decode(ids) == "a<|tool_call_begin|>b"  # a control token is no text


def test_the_cuts() -> None:
    assert regex.findall(CUTS, "HTTPServer's 你好a 12345 won'T", regex.V1) == [
        "HTTPServer's", " ", "你好", "a", " ", "123", "45", " won'T",
    ]  # fmt: skip


def test_bad_files_are_refused(tmp_path: Path) -> None:
    assert tokenizer_of(tmp_path) is None
    ranks = trained(0)
    write(tmp_path, ranks, kind="QWenTokenizer")
    with pytest.raises(UnsupportedError, match=r"'QWenTokenizer'.*Kimi.*put the tokenizer.json"):
        tokenizer_json(tmp_path)
    write(tmp_path, ranks)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TikTokenTokenizer"}')
    with pytest.raises(CheckpointError, match="'added_tokens_decoder'"):
        tokenizer_json(tmp_path)
    broken = {token: rank for token, rank in ranks.items() if token != b"a"}
    for wrong in (broken, {**ranks, b"ab": 999}):
        write(tmp_path, wrong)
        with pytest.raises(CheckpointError, match="misses a byte or a rank"):
            tokenizer_json(tmp_path)
    for text in ("YQ==\n", "YQ== x\n", "? 1\n"):
        (tmp_path / NAME).write_text(text)
        with pytest.raises(MlccError, match="fetch it again"):
            tokenizer_json(tmp_path)
