"""Added and special tokens from all files of a folder: ids and texts as transformers has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlcc.errors import CheckpointError
from mlcc.model.tokenizer.tokenizer import FileTokenizer
from mlcc_compiler.checkpoint.folder import Checkpoint
from tests.compiler.weights.hf_folder import hf_folder

TEXT = "<|im_start|>ab <tool> a<|im_end|> \nb<|x|>a</s>"
BASE = 98
START, END, TOOL = "<|im_start|>", "<|im_end|>", "<tool>"


def added(number: int, text: str, **flags: Any) -> dict[str, Any]:
    none = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": number, "content": text, **none, "special": True, **flags}


def entry(number: int, text: str, **flags: Any) -> dict[str, Any]:
    row = added(number, text, **flags)
    return {str(row.pop("id")): row}


def folder_of(
    path: Path, own: list[dict[str, Any]], more: list[str], rows: int = 120, **files: Any
) -> Path:
    """A folder with a tokenizer of printable characters, BASE tokens; `more`: further ones of its
    vocabulary; `own`: its added tokens beside </s>."""
    vocab = {chr(32 + i): i for i in range(95)} | {"</s>": 95, "Ġ": 96, "Ċ": 97}
    vocab |= {text: BASE + i for i, text in enumerate(more)}
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    cuts = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tree = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "pre_tokenizer": cuts, "post_processor": None, "decoder": cuts, "model": model,
        "added_tokens": [added(95, "</s>"), *own],
    }  # fmt: skip
    config = {"model_type": "llama", "vocab_size": rows, "eos_token_id": 95}
    files = {"tokenizer_config__json": {}, **files}
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    files["tokenizer_config__json"] = named | files["tokenizer_config__json"]
    return hf_folder(path, config__json=config, tokenizer__json=tree, **files)


CASES: dict[str, dict[str, Any]] = {
    "added_tokens_decoder": {
        "tokenizer_config__json": {
            "added_tokens_decoder": entry(98, START) | entry(99, END, special=False),
            "eos_token": END,
        }
    },
    "flags": {
        "own": [added(98, END, special=False, normalized=True)],
        "tokenizer_config__json": {"added_tokens_decoder": entry(98, END, rstrip=True)},
    },
    "added_tokens.json": {"added_tokens__json": {END: 99, START: 98, TOOL: 100}},
    "added_tokens.json, named": {
        "added_tokens__json": {START: 98, END: 99},
        "tokenizer_config__json": {"eos_token": END},
    },
    "special_tokens_map.json": {
        "special_tokens_map__json": {
            "eos_token": {"content": END, "lstrip": False, "rstrip": False},
            "additional_special_tokens": [START],
        }
    },
    "a list": {"tokenizer_config__json": {"extra_special_tokens": [START, END]}},
    "an older list": {"tokenizer_config__json": {"additional_special_tokens": [START, END]}},
    "roles": {"tokenizer_config__json": {"extra_special_tokens": {"x_token": "<|x|>", "y": END}}},
    "a list of objects": {
        "tokenizer_config__json": {
            "extra_special_tokens": [{"__type": "AddedToken", **added(0, TOOL, lstrip=True)}]
        }
    },
    "a map's objects": {
        "special_tokens_map__json": {
            "mask_token": {"content": TOOL, "lstrip": True, "rstrip": True}
        }
    },
    "a model's own": {
        "tokenizer_config__json": {"model_specific_special_tokens": {"x_token": "<|x|>"}}
    },
    "a role": {"tokenizer_config__json": {"image_token": "<|x|>"}},
    "ignored files": {
        "tokenizer_config__json": {"added_tokens_decoder": entry(98, START)},
        "special_tokens_map__json": {"additional_special_tokens": [END]},
        "added_tokens__json": {TOOL: 99},
    },
    "of the vocabulary": {"more": [END], "tokenizer_config__json": {"eos_token": END}},
    "marked plain": {
        "own": [added(98, END, special=False, normalized=True)],
        "tokenizer_config__json": {"eos_token": END},
    },
    "a gap": {"tokenizer_config__json": {"added_tokens_decoder": entry(99, START, lstrip=True)}},
    "add_bos_token": {"tokenizer_config__json": {"bos_token": "</s>", "add_bos_token": True}},
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_ids_of_transformers(case: dict[str, Any], tmp_path: Path) -> None:
    """Oracle: transformers.AutoTokenizer on the same folder."""
    transformers = pytest.importorskip("transformers")
    folder = folder_of(tmp_path, case.get("own", []), case.get("more", []), **{
        name: value for name, value in case.items() if "__" in name
    })  # fmt: skip
    checkpoint = Checkpoint.open(folder)
    ours = FileTokenizer(folder / "tokenizer.json", checkpoint.tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for special in (True, False):
        ids = list(ours.encode(TEXT, add_special_tokens=special))
        assert ids == theirs(TEXT, add_special_tokens=special)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert checkpoint.special_tokens["eos_token"] == theirs.eos_token
    assert theirs.eos_token_id in checkpoint.eos_token_ids


def test_what_the_compile_reports(tmp_path: Path) -> None:
    decoder = entry(98, START) | entry(99, END) | entry(101, TOOL)
    files = {"tokenizer_config__json": {"added_tokens_decoder": decoder}}
    notes = Checkpoint.open(folder_of(tmp_path, [], [], rows=100, **files)).tokenizer_notes
    assert notes == [
        "tokenizer: <|im_start|> (98), <|im_end|> (99) added from the files beside tokenizer.json",
        "tokenizer: <tool> (100) left out: beyond the embedding's 100 rows, so the model cannot "
        "use them",
    ]
    whole = folder_of(tmp_path / "whole", [added(98, END)], [])
    checkpoint = Checkpoint.open(whole)
    assert checkpoint.tokenizer == (whole / "tokenizer.json").read_bytes()
    assert checkpoint.tokenizer_notes == []


@pytest.mark.parametrize("decoder", [["a"], {"x": {"content": "a"}}, {"1": "a"}, {"1": {}}])
def test_a_list_that_is_none(decoder: Any, tmp_path: Path) -> None:
    files = {"tokenizer_config__json": {"added_tokens_decoder": decoder}}
    with pytest.raises(CheckpointError, match="is no list of tokens and ids; fetch it again"):
        _ = Checkpoint.open(folder_of(tmp_path, [], [], **files)).tokenizer
    bad = folder_of(tmp_path / "b", [], [], added_tokens__json=json.dumps({"a": None}))
    with pytest.raises(CheckpointError, match=r"added_tokens\.json is no list"):
        _ = Checkpoint.open(bad).tokenizer
