"""Tensors of an encoder's checkpoint that are defined by several files of its folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.safetensors import supports_rows
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import token_ids
from mlcc_compiler.weights.encoder import LABELS, with_answers, with_dense
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

NORM = "model.norm.weight"
EMBED = "model.embed_tokens.weight"


@pytest.fixture
def tiny(tmp_path: Path) -> Checkpoint:
    return Checkpoint.open(write_checkpoint(tmp_path / "tiny"))


def answers_of(checkpoint: Checkpoint) -> list[str]:
    return list(token_ids(checkpoint.tokenizer))[:2]


def check_rows(tensors: Any, name: str) -> None:
    """Tensors read by rows equal those read whole."""
    assert supports_rows(tensors)
    whole = tensors.read(name)
    for rows in (slice(0, 1), slice(1, 3), slice(0, len(whole))):
        np.testing.assert_array_equal(tensors.read_rows(name, rows), whole[rows])


def test_rows_of_dense_modules(tiny: Checkpoint) -> None:
    module = tiny.folder / "2_Dense"
    module.mkdir()
    weight = np.arange(32, dtype=np.float32).reshape(8, 4)
    save_file({"linear.weight": weight}, module / "model.safetensors")
    tensors = with_dense(tiny, ["2_Dense"]).tensors
    np.testing.assert_array_equal(tensors.read("dense.0.linear.weight"), weight)
    check_rows(tensors, "dense.0.linear.weight")
    check_rows(tensors, EMBED)


def test_rows_of_answers(tiny: Checkpoint) -> None:
    tensors = with_answers(tiny, answers_of(tiny)).tensors
    check_rows(tensors, LABELS)
    check_rows(tensors, EMBED)


def test_rows_are_read_only_where_the_base_can(tiny: Checkpoint) -> None:
    """Packed matrices are read whole: every call would unpack the whole matrix."""
    joined = with_answers(tiny, answers_of(tiny))
    base = SimpleNamespace(shapes=joined.tensors.shapes)
    object.__setattr__(joined.tensors, "base", base)
    assert not supports_rows(joined.tensors)


def test_answers_that_the_head_has_no_row_for(tiny: Checkpoint, tmp_path: Path) -> None:
    save_file({EMBED: np.zeros((1, 4), np.float32)}, tiny.folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="no reranker that is read by them"):
        with_answers(Checkpoint.open(tiny.folder), answers_of(tiny))
