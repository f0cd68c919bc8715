"""Random values in the quantization config of a checkpoint, and in the vocabulary of a GGUF file:
refused in one line, or harmless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.errors import MlccError
from mlcc_compiler.checkpoint.gguf.tokenizer.build import tokenizer_of
from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import Vocabulary
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import check_tokenizer
from tests.compiler.checkpoint.test_quantized_safetensors import CASES, NAME, K, N, opened

MUTATIONS = [None, [], {}, -1, 0, 2**63, 7, "", "a" * 5000, "\x1b[2K\n", True, 1.5, [[]], 10**400]
KEY = "tokenizer.ggml."
WORDS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "pre": "gpt-2", "tokens": ["a", "b", "ab", "</s>"], "merges": ["a b"],
        "token_type": np.array([1, 1, 1, 3]), "eos_token_id": 3,
    },
    "llama": {
        "tokens": ["<unk>", "<s>", "</s>", "a", "b", "ab"],
        "scores": np.array([0.0, 0, 0, -1, -2, -3]),
        "token_type": np.array([2, 3, 3, 1, 1, 1]), "unknown_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "add_space_prefix": True, "add_bos_token": True,
    },
    "t5": {
        "tokens": ["<pad>", "</s>", "<unk>", "\u2581", "a"],
        "scores": np.array([0.0, 0, 0, -2, -1.5]), "token_type": np.array([3, 3, 2, 1, 1]),
        "unknown_token_id": 2, "eos_token_id": 1, "add_eos_token": True,
        "remove_extra_whitespaces": True,
    },
    "bert": {
        "tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "b"],
        "token_type": np.array([3, 3, 3, 3, 1, 1]), "unknown_token_id": 1, "bos_token_id": 2,
        "seperator_token_id": 3,
    },
}  # fmt: skip
"""A sound vocabulary of each kind."""
VALUES = [
    "", "a" * 5000, -1, 0, 1, 99, 2**63, True, -5.5, float("nan"), [], ["a"], ["a", "a"],
    ["\ud800"] * 6, ["a\x00", "", " ", "\u2581", "<0x0A>", "b"], ["a b c"], [" "],
    np.array([], np.uint8), np.array([1, 2]), np.full(6, 77), np.full(6, np.inf),
    np.arange(200, dtype=np.uint8),
]  # fmt: skip
"""A random value of any type of a header (`gguf.header.Value`)."""


@pytest.mark.parametrize("case", CASES)
def test_any_value_of_a_quantization_config(case: str, tmp_path: Path) -> None:
    tensors, config, _, _ = CASES[case]()
    keys = [*config, "group_size", "bits", "format", "checkpoint_format", "weight_block_size"]
    for i, (key, value) in enumerate((k, v) for k in dict.fromkeys(keys) for v in MUTATIONS):
        if key == "quant_method":
            continue  # of another format
        folder = tmp_path / str(i)
        folder.mkdir()
        try:
            found = opened(folder, tensors, config | {key: value})
            numbers = found.read(f"{NAME}.weight")
        except MlccError as error:
            assert error.message.isprintable() and len(error.message) < 4200, (key, value)
        else:
            assert numbers.shape == (N, K), (key, value)


@pytest.mark.parametrize("kind", WORDS)
def test_any_value_of_a_vocabulary(kind: str) -> None:
    """Random values of every key of every kind of tokenizer: the result loads and tokenizes a
    text."""
    sound = {KEY + key: value for key, value in WORDS[kind].items()} | {KEY + "model": kind}
    outcomes = {outcome(sound)}
    assert outcomes == {"read"}
    more = (
        "pre",
        "precompiled_charsmap",
        "add_eos_token",
        "padding_token_id",
        "mask_token_id",
        "eot_token_id",
    )
    for key in dict.fromkeys((*sound, *(KEY + each for each in more))):
        outcomes |= {outcome(sound | {key: value}) for value in VALUES}
    assert outcomes == {"read", "refused"}


def outcome(keys: dict[str, Any]) -> str:
    try:
        words = Vocabulary.of(keys)
        data = tokenizer_of(words)
        _ = words.end_ids, words.special_tokens
        check_tokenizer(Path("words.gguf"), data)
    except MlccError as error:
        assert error.message.isprintable() and len(error.message) < 4200
        return "refused"
    return "read"
