"""tokenizer.json of a checkpoint with a `tiktoken.model` vocabulary: Moonshot AI's (Kimi K2 and
Linear, Moonlight). Its own Python code is never run.

A line of the file is a token's bytes in base64 and its rank: the pair whose joined token has the
lowest rank is merged first. The parts of a token follow from the ranks (`_halves`), so the
vocabulary is written as merges, the only form tokenizer.json knows. The pre-tokenizer's pattern is
in no file: other checkpoints are refused, as a tokenizer that differs in one rule gives wrong
answers without an error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.files import read, read_object

NAME = "tiktoken.model"
KIND = "TikTokenTokenizer"
"""The class named in Moonshot's tokenizer_config.json."""
_LARGEST = 64 << 20
_ENGLISH = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = (
    rf"[{kinds}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]" for kinds in (r"\p{Lu}\p{Lt}", r"\p{Ll}")
)
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
CUTS = "|".join(
    [
        r"[\p{Han}]+",
        f"{_BEFORE}{_UPPER}*{_LOWER}+{_ENGLISH}",
        f"{_BEFORE}{_UPPER}+{_LOWER}*{_ENGLISH}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
"""Chinese separately; words with contractions such as 's and n't; up to three digits; the rest."""
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
Ranks = Mapping[bytes, int]


def tokenizer_of(folder: Path) -> bytes | None:
    """tokenizer.json's bytes; None if the folder has no ranks. Raises CheckpointError, or
    UnsupportedError for an unknown pre-tokenizer."""
    data = read(folder, NAME, _LARGEST)
    if data is None:
        return None
    config = read_object(folder, "tokenizer_config.json") or {}
    if config.get("tokenizer_class") != KIND:
        raise UnsupportedError(
            f"{folder}: has only {NAME} and no tokenizer.json, and its tokenizer_config.json names "
            f"{config.get('tokenizer_class')!r:.60} where mlcc knows {KIND} alone (Kimi): put the "
            "tokenizer.json of a conversion of this model into the folder"
        )
    ranks = _ranks(folder / NAME, data)
    return tree_of(ranks, CUTS, list(_added(folder, config)))


def tree_of(
    ranks: Ranks,
    pattern: str,
    added: list[dict[str, Any]],
    first: int = 0,
    begin: Mapping[str, Any] | None = None,
) -> bytes:
    """tokenizer.json's bytes. pattern: what words are; first: id of the token of rank 0; begin: the
    added token before every text."""
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    tree = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, _BYTES]},
        "post_processor": None if begin is None else _template(begin),
        "decoder": _BYTES,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,  # a word that is a token is that token
            "vocab": {token["content"]: token["id"] for token in added if token["id"] < first}
            | {_text(token): first + rank for token, rank in ranks.items()},
            "merges": [[_text(left), _text(right)] for left, right in _merges(ranks)],
        },
    }
    return json.dumps(tree, ensure_ascii=False).encode()


def _template(begin: Mapping[str, Any]) -> dict[str, Any]:
    """A token before every text, and between the two of a pair."""
    text, number = begin["content"], begin["id"]
    mark = {"SpecialToken": {"id": text, "type_id": 0}}
    parts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    return {
        "type": "TemplateProcessing",
        "single": [mark, parts[0]],
        "pair": [mark, parts[0], mark, parts[1]],
        "special_tokens": {text: {"id": text, "ids": [number], "tokens": [text]}},
    }


def _ranks(path: Path, data: bytes) -> dict[bytes, int]:
    """Token -> rank, in the order of ranks. Raises CheckpointError."""
    try:
        rows = [line.split() for line in data.splitlines() if line.strip()]
        return ranks_of(path, [(token, int(rank)) for token, rank in rows])
    except ValueError as error:
        raise CheckpointError(f"{path}: is no list of tokens and ranks; fetch it again") from error


def ranks_of(path: Path, rows: Sequence[tuple[str | bytes, int]]) -> dict[bytes, int]:
    """Token -> rank, in the order of ranks; rows: tokens in base64, and ranks. Raises
    CheckpointError, and ValueError for what is no base64."""
    found = {base64.b64decode(token, validate=True): rank for token, rank in rows}
    single = all(bytes([byte]) in found for byte in range(256))
    if not single or sorted(found.values()) != list(range(len(rows))):
        raise CheckpointError(f"{path}: misses a byte or a rank; fetch it again")
    return dict(sorted(found.items(), key=lambda row: row[1]))


def _merges(ranks: Ranks) -> Iterator[tuple[bytes, bytes]]:
    """The merge that produces each token, lowest rank first."""
    for token, rank in ranks.items():
        if len(token) > 1 and (halves := _halves(token, rank, ranks)) is not None:
            yield halves


def _halves(token: bytes, rank: int, ranks: Ranks) -> tuple[bytes, bytes] | None:
    """The two tokens left of a token's bytes after all merges of lower rank; None if there are
    more, as for a token that only a whole word can be."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, rank) for a, b in pairwise(parts)]
        lowest = min(pairs)
        if lowest >= rank:
            return None
        at = pairs.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]


def _added(folder: Path, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Control tokens, as tokenizer_config.json has them. Raises CheckpointError."""
    try:
        for number, token in sorted(
            config["added_tokens_decoder"].items(), key=lambda r: int(r[0])
        ):
            flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
            yield {
                "id": int(number),
                "content": str(token["content"]),
                **{flag: bool(token.get(flag, False)) for flag in flags},
            }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder / 'tokenizer_config.json'}: 'added_tokens_decoder' does not name its control "
            "tokens; fetch it again"
        ) from error


def _printable() -> dict[int, str]:
    """Every byte as a printable character, as in GPT-2 (Radford et al., 2019)."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = count(0x100)
    return {byte: chr(byte if byte in seen else next(others)) for byte in range(256)}


_CHARACTERS = _printable()


def _text(token: bytes) -> str:
    return "".join(_CHARACTERS[byte] for byte in token)
