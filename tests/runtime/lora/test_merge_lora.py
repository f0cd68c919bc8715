"""`--merge-lora`: the compiled weights are W + scale B A, and invalid folders are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.open import open_checkpoint
from mlcc_compiler.checkpoint.safetensors import supports_rows
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_compiler.weights.merge_lora import with_lora
from mlcc_targets import get_target
from tests.compiler.checkpoint.helpers.gguf_of import write_gguf
from tests.compiler.models.helpers.checkpoints import make_checkpoint
from tests.runtime.lora.folders import DEMO, config_of, matrices, merged, save, write_config
from tests.runtime.lora.rooms import save_small


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


def test_rows_are_those_of_the_sums(tmp_path: Path) -> None:
    """A converter that reads by rows must not see the base's."""
    found = with_lora(Checkpoint.open(DEMO), save(tmp_path / "a", modules=("q_proj",))).tensors
    assert supports_rows(found)
    for part in ("q_proj", "k_proj"):
        name = f"model.layers.1.self_attn.{part}.weight"
        whole = found.read(name)
        for rows in (slice(0, 5), slice(5, len(whole))):
            np.testing.assert_allclose(found.read_rows(name, rows), whole[rows], atol=1e-6)


def test_a_quantized_base_keeps_its_schemes(tmp_path: Path) -> None:
    """Merged matrices are quantized again in their scheme, and not widened to 16 bits."""
    make_checkpoint("llama", tmp_path)
    base = open_checkpoint(write_gguf(tmp_path, tmp_path / "m.gguf", lambda name: "Q4_0"))
    folder = save(tmp_path / "a", modules=("q_proj", "up_proj"), model=tmp_path)
    found, options = with_lora(base, folder), Options(quant="keep", context=32, max_batch=2)
    before, after = (make_plan(c, get_target("reference"), options) for c in (base, found))
    assert before.schemes == after.schemes and found.quantized
    name = "model.layers.0.self_attn.q_proj.weight"
    assert after.schemes[name] == "int4_g32" and name not in found.tensors.schemes
    assert not np.array_equal(found.tensors.read(name), base.tensors.read(name))
    assert not supports_rows(found.tensors)  # as the base is none


def test_what_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is for another base"):
        with_lora(Checkpoint.open(DEMO), save_small(tmp_path / "small"))
    folder = save(tmp_path / "a", modules=("q_proj",), layers=(0, 1))
    with pytest.raises(CheckpointError, match=r"has no matrices of .*2.self_attn.q_proj.* and 1"):
        with_lora(Checkpoint.open(DEMO), folder)
    write_config(folder, config_of(4, 8, ["q_proj"], layers_to_transform=[0, 1]))
    with_lora(Checkpoint.open(DEMO), folder)
