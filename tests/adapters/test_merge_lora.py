"""`--merge-lora`: the checkpoint that is compiled is W + scale B A, and bad folders are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adapters.folders import DEMO, config_of, matrices, merged, save, write_config
from adapters.rooms import save_small
from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.weights.merge_lora import with_lora


def test_the_weights_are_the_sums(tmp_path: Path) -> None:
    folder = save(tmp_path / "a", 4, 8, ("q_proj", "down_proj"), dtype="float16", use_rslora=True)
    found = with_lora(Checkpoint.open(DEMO), folder)
    wanted, plain = matrices(merged(tmp_path / "m", folder, 8 / 2)), matrices()
    assert found.name == Checkpoint.open(DEMO).name
    for name, tensor in wanted.items():
        got = found.tensors.read(name)
        adapted = name.split(".")[-2] in ("q_proj", "down_proj")
        np.testing.assert_allclose(got, tensor, atol=2e-6 if adapted else 0)
        assert np.array_equal(got, plain[name]) != adapted
    assert found.tensors.shapes == Checkpoint.open(DEMO).tensors.shapes


def test_what_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is for another base"):
        with_lora(Checkpoint.open(DEMO), save_small(tmp_path / "small"))
    folder = save(tmp_path / "a", modules=("q_proj",), layers=(0, 1))
    with pytest.raises(CheckpointError, match=r"has no matrices of .*2.self_attn.q_proj.* and 1"):
        with_lora(Checkpoint.open(DEMO), folder)
    write_config(folder, config_of(4, 8, ["q_proj"], layers_to_transform=[0, 1]))
    with_lora(Checkpoint.open(DEMO), folder)
