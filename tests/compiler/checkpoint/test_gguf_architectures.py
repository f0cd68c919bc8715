"""A GGUF file of every architecture equals the model of its Hugging Face folder.

Configs, with frequencies, and tensors are equal; their logits are tested with the folder
(`models/test_architectures.py`). Falcon-H1's multipliers are part of a file's weights, so its
logits are compared.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.gguf.families.table import FAMILIES
from mlcc_compiler.checkpoint.gguf.names import locations
from mlcc_compiler.checkpoint.gguf.orders import rotary
from mlcc_compiler.checkpoint.open import open_checkpoint
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.options import Options
from mlcc_compiler.pipeline import trace
from mlcc_compiler.plan import make_plan
from mlcc_compiler.quantization import dequantize
from mlcc_compiler.weights.check import check_tensors
from mlcc_targets import get_target
from tests.compiler.checkpoint.helpers import gguf_keys
from tests.compiler.checkpoint.helpers.gguf_of import architecture_of, write_gguf
from tests.compiler.models.helpers.checkpoints import CASES as MODELS
from tests.compiler.models.helpers.checkpoints import (
    CONTEXT,
    DEEPSEEK_YARN,
    SMALL,
    make_checkpoint,
    save_random,
)
from tests.compiler.models.helpers.mixed import capacity_of, reference, run_mixed
from tests.compiler.models.helpers.mtp import make_eagle_checkpoint, make_mtp_checkpoint

UNCHANGED = (
    "llama", "llama-llama3-rope", "llama-linear", "llama-yarn", "llama-head-dim", "mistral",
    "mixtral", "ministral3", "ministral3-long", "granite", "granitemoe", "granitemoeshared",
    "qwen2", "qwen3", "olmoe", "minimax_m2", "ernie4_5", "glm4_moe", "gemma", "phi3",
    "phi3-longrope-short", "phi3-longrope-long", "olmo2", "olmo3", "exaone4", "exaone4-full",
    "glm4", "hunyuan_v1_dense", "deepseek_v2-groups",
    "granitemoehybrid", "granitemoehybrid-experts",
    "granitemoehybrid-rope", "qwen3_5", "qwen3_5_moe",
)  # fmt: skip
LLAMA4_LAYERS = {
    "num_hidden_layers": 4, "moe_layers": None, "interleave_moe_layer_step": 2,
    "no_rope_layers": None,
}  # fmt: skip
"""Which of them route and turn, as llama.cpp can say it."""
CASES: dict[str, dict[str, Any]] = {
    **{case: {} for case in UNCHANGED},
    "llama4_text": LLAMA4_LAYERS,
    "llama4_text@128": {
        "moe_layers": None, "interleave_moe_layer_step": 1, "no_rope_layers": None,
        "num_local_experts": 128, "use_qk_norm": False,
    },
    "llama4_text@dense": {
        "moe_layers": [], "interleave_moe_layer_step": 0, "no_rope_layers": [1, 1, 1],
        "num_local_experts": 0, "layer_types": ["full_attention"] * 3,
        "attention_chunk_size": None, "attn_temperature_tuning": False,
    },
    "gemma2": {"query_pre_attn_scalar": 32, "tie_word_embeddings": True},
    "gemma3": {"query_pre_attn_scalar": 32, "tie_word_embeddings": True},
    "gemma3n": {"intermediate_size": [96] * 4 + [64]},
    "gemma4": {},
    "gemma4-experts": {"use_bidirectional_attention": "vision"},
    "gemma4-experts@none": {"enable_moe_block": False, "use_bidirectional_attention": "vision"},
    "mamba2": {"max_position_embeddings": 1 << 20},
    "lfm2_moe": {"tie_word_embeddings": True, "routed_scaling_factor": 1.0},
    "mamba2-plain": {"time_step_limit": (0.0, float("inf")), "max_position_embeddings": 1 << 20},
    "smollm3": {"no_rope_layer_interval": 4},
    "cohere2": {"tie_word_embeddings": True},
    "qwen2_moe": {"mlp_only_layers": [], "use_sliding_window": False},
    "qwen3_moe": {"mlp_only_layers": []},
    "qwen3_next-experts": {"mlp_only_layers": []},
    "ernie4_5_moe": {"moe_layer_end_index": -1},
    "starcoder2": {"sliding_window": None},
    "nemotron": {"head_dim": 16},
    "gpt_oss": {"swiglu_limit": 7.0},
    "deepseek_v2": {"rope_parameters": DEEPSEEK_YARN | {"mscale": 0.6}},
    "deepseek_v3": {
        "rope_parameters": DEEPSEEK_YARN | {"mscale": 0.6}, "attention_bias": False,
        "num_nextn_predict_layers": 0,
    },
    "lfm2": {"conv_bias": False},
    "nemotron_h": {"time_step_min": 0.001},
    "nemotron_h-experts": {"n_group": 1, "topk_group": 1, "intermediate_size": 24},
}  # fmt: skip
"""Case of `models.checkpoints` -> fields that a GGUF file cannot represent otherwise."""
FOLDED = {
    "falcon_h1": {},
    "falcon_h1-norm": {"mamba_norm_before_gate": False, "mamba_proj_bias": False},
}
NOT_EXACT = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "nemotron", "qwen3_next", "qwen3_5"), 2e-7),
    **dict.fromkeys(("qwen3_5_moe", "mamba2", "granitemoehybrid", "nemotron_h"), 1e-6),
}
"""Rounding in float32: of 1 added to norms and subtracted again, and of a logarithm of
exponentials."""


def make(case: str, folder: Path, changes: dict[str, Any]) -> Any:
    name, options = MODELS[case.partition("@")[0]]
    config = getattr(transformers, name)(**{**SMALL, **options, **changes})
    return save_random(config, folder)


def check_equal(wanted: Any, found: Any, where: str) -> None:
    """Floats as files have them, in 32 bits."""
    if is_dataclass(wanted):
        assert type(wanted) is type(found), where
        for each in fields(wanted):
            name = each.name
            check_equal(getattr(wanted, name), getattr(found, name), f"{where}.{name}")
    elif isinstance(wanted, tuple):
        assert len(wanted) == len(found), where
        for i, (one, other) in enumerate(zip(wanted, found, strict=True)):
            check_equal(one, other, f"{where}[{i}]")
    elif isinstance(wanted, float):
        assert wanted == pytest.approx(found, rel=2e-6), where
    else:
        assert wanted == found, where


@pytest.mark.parametrize("case", CASES)
def test_gguf_is_the_same_model(case: str, tmp_path: Path) -> None:
    make(case, tmp_path, CASES[case])
    folder = Checkpoint.open(tmp_path)
    file = open_checkpoint(write_gguf(tmp_path, tmp_path / "model.gguf"))
    context = CONTEXT.get(case, 128)
    expected, found = (build_model(c.config, context) for c in (folder, file))
    check_equal(expected.config, found.config, "config")
    assert not file.notes
    traced = trace(found.model)
    check_tensors(dict(zip(traced.names, traced.shapes, strict=True)), file.tensors.shapes)
    within = NOT_EXACT.get(case.partition("-")[0], 0)
    for name in traced.names:
        numbers = file.tensors.read(name), folder.tensors.read(name)
        bound = within if "norm" in name or "A_log" in name else 0
        np.testing.assert_allclose(*numbers, rtol=bound, atol=bound, err_msg=name)


@pytest.mark.parametrize("case", FOLDED)
def test_factors_in_the_weights(case: str, tmp_path: Path) -> None:
    oracle = make(case, tmp_path, FOLDED[case])
    file = open_checkpoint(write_gguf(tmp_path, tmp_path / "model.gguf"))
    plan = make_plan(file, get_target("cpu"), Options(quant="f32", context=128, max_batch=8))
    assert run_mixed(reference(plan, capacity_of(plan)), oracle, 128) < 5e-5


def test_every_family_is_here() -> None:
    """Without those that another case covers."""
    found = set()
    for case, changes in {**CASES, **FOLDED}.items():
        name, options = MODELS[case.partition("@")[0]]
        config = getattr(transformers, name)(**{**SMALL, **options, **changes}).to_dict()
        found.add(architecture_of(config))
    seeing = {"qwen2vl", "qwen3vl", "qwen3vlmoe"}  # tests/compiler/vision/test_mmproj.py
    assert set(FAMILIES) == found | seeing


def test_experts_lie_in_one_tensor(tmp_path: Path) -> None:
    """Experts in every layer: llama.cpp's files of Qwen3-MoE have no other kind."""
    make("qwen3_moe", tmp_path, CASES["qwen3_moe"])
    folder = Checkpoint.open(tmp_path)
    file = open_checkpoint(write_gguf(tmp_path, tmp_path / "model.gguf"))
    name = "model.layers.1.mlp.experts.4.down_proj.weight"
    np.testing.assert_array_equal(file.tensors.read(name), folder.tensors.read(name))
    assert set(file.tensors.shapes) == set(folder.tensors.shapes)


def formats(name: str) -> str:
    kinds: dict[str, Any] = {"attn_q": "Q4_0", "attn_k": "Q5_1", "ffn_down": "BF16"}
    return next((kind for part, kind in kinds.items() if f".{part}." in name), "Q8_0")


def test_permuted_rows_keep_their_blocks(tmp_path: Path) -> None:
    """Rows of q and k, put in order as codes and as floats, are the same."""
    make_checkpoint("llama", tmp_path)
    tensors = open_checkpoint(write_gguf(tmp_path, tmp_path / "m.gguf", formats)).tensors
    prefix = "model.layers.0.self_attn"
    assert tensors.schemes[f"{prefix}.q_proj.weight"] == "int4_g32"
    assert tensors.schemes[f"{prefix}.k_proj.weight"] == "int5m_g32"
    assert tensors.nearest["model.layers.0.mlp.down_proj.weight"] == "bf16"
    for part in "qk":
        name = f"{prefix}.{part}_proj.weight"
        np.testing.assert_array_equal(dequantize(tensors.quantized(name)), tensors.read(name))
        close = Checkpoint.open(tmp_path).tensors.read(name)
        np.testing.assert_allclose(tensors.read(name), close, atol=0.15)


def fp8(name: str) -> str:
    return "Q8_0"


@pytest.mark.parametrize("width", [16, 32])
def test_columns_in_another_order(width: int, tmp_path: Path) -> None:
    """Whole blocks are put back as they are; heads of half a block are not."""
    make("qwen3_5", tmp_path, {"linear_value_head_dim": width})
    tensors = open_checkpoint(write_gguf(tmp_path, tmp_path / "m.gguf", fp8)).tensors
    name = "model.layers.0.linear_attn.out_proj.weight"
    close = Checkpoint.open(tmp_path).tensors.read(name)
    np.testing.assert_allclose(tensors.read(name), close, atol=0.02)
    assert ("of its formats: int8_g32" in " ".join(tensors.notes)) == (width == 16)
    if width == 16:
        assert name not in tensors.schemes and tensors.nearest[name] == "int8_g32"
    else:
        np.testing.assert_array_equal(dequantize(tensors.quantized(name)), tensors.read(name))


@pytest.mark.parametrize("gate", ["Q8_0", "Q5_1"])
def test_one_matrix_that_is_two(gate: str, tmp_path: Path) -> None:
    make("qwen3_next-experts", tmp_path, {"mlp_only_layers": []})
    path = write_gguf(tmp_path, tmp_path / "m.gguf", lambda n: gate if "attn_gate" in n else "Q8_0")
    tensors = open_checkpoint(path).tensors
    name = "model.layers.0.linear_attn.in_proj_qkvz.weight"
    if gate == "Q8_0":
        np.testing.assert_array_equal(dequantize(tensors.quantized(name)), tensors.read(name))
    else:
        assert name not in tensors.schemes and tensors.nearest[name] == "int8_g32"
        with pytest.raises(CheckpointError, match="no scheme"):
            tensors.quantized(name)
    close = Checkpoint.open(tmp_path).tensors.read(name)
    np.testing.assert_allclose(tensors.read(name), close, atol=0.15)


def test_experts_of_gpt_oss_stay_mxfp4(tmp_path: Path) -> None:
    make("gpt_oss", tmp_path, CASES["gpt_oss"])
    kinds = lambda n: "MXFP4" if "_exps" in n else "Q8_0"  # noqa: E731
    tensors = open_checkpoint(write_gguf(tmp_path, tmp_path / "m.gguf", kinds)).tensors
    for part in ("gate", "up", "down"):
        name = f"model.layers.1.mlp.experts.3.{part}_proj.weight"
        assert tensors.schemes[name] == "mxfp4"
        np.testing.assert_array_equal(dequantize(tensors.quantized(name)), tensors.read(name))


def test_nvfp4_has_a_factor_for_each_tensor(tmp_path: Path) -> None:
    """Or for each expert, as llama.cpp's converter writes it."""
    sizes = {"hidden_size": 64, "moe_intermediate_size": 64, "mlp_only_layers": []}
    make("qwen3_moe", tmp_path, sizes)
    kinds = lambda n: "NVFP4" if "_exps" in n or "attn_q" in n else "Q8_0"  # noqa: E731
    tensors = open_checkpoint(write_gguf(tmp_path, tmp_path / "m.gguf", kinds)).tensors
    close = Checkpoint.open(tmp_path).tensors
    for part in ("mlp.experts.3.gate", "mlp.experts.2.down", "self_attn.q"):
        name = f"model.layers.1.{part}_proj.weight"
        assert tensors.schemes[name] == "nvfp4"
        matrix = tensors.quantized(name)
        matrix.check(name)
        np.testing.assert_array_equal(dequantize(matrix), tensors.read(name))
        wanted = close.read(name)
        np.testing.assert_allclose(tensors.read(name), wanted, atol=np.abs(wanted).max() / 5)
    assert set(tensors.shapes) == set(close.shapes)
    wrong = {"blk.1.attn_q.weight": tensors.found["blk.1.attn_norm.weight"]}
    with pytest.raises(CheckpointError, match=r"not a number for 'blk\.1\.attn_q"):
        replace(tensors, factors=wrong).quantized("model.layers.1.self_attn.q_proj.weight")


def test_gate_and_up_in_one_tensor_keep_their_blocks(tmp_path: Path) -> None:
    make("gemma4-experts", tmp_path, CASES["gemma4-experts"])
    tensors = open_checkpoint(write_gguf(tmp_path, tmp_path / "m.gguf", fp8)).tensors
    view = Checkpoint.open(tmp_path).tensors
    for part in ("gate", "up", "down"):
        name = f"model.layers.1.moe.experts.3.{part}_proj.weight"
        np.testing.assert_array_equal(dequantize(tensors.quantized(name)), tensors.read(name))
        np.testing.assert_allclose(tensors.read(name), view.read(name), atol=0.02)
    with pytest.raises(CheckpointError, match="7 rows an expert, which are no two halves"):
        locations("gemma4", {"blk.0.ffn_gate_up_exps.weight": (2, 7, 4)}, {})


def test_stacked_matrices_keep_their_blocks(tmp_path: Path) -> None:
    """Those of Gemma 3n's states."""
    make("gemma3n", tmp_path, {})
    kinds = lambda n: "Q8_0" if "altup_unembd" in n else "F32"  # noqa: E731
    tensors = open_checkpoint(write_gguf(tmp_path, tmp_path / "m.gguf", kinds)).tensors
    name = "model.altup_unembed_projections.1.weight"
    assert tensors.schemes[name] == "int8_g32"
    np.testing.assert_array_equal(dequantize(tensors.quantized(name)), tensors.read(name))
    close = Checkpoint.open(tmp_path).tensors.read(name)
    np.testing.assert_allclose(tensors.read(name), close, atol=0.02)
    with pytest.raises(CheckpointError, match="and no few matrices"):
        locations("gemma3n", {"altup_proj.weight": (4, 4)}, {})


def test_older_files_of_mixtures() -> None:
    """Mixtral's experts were tensors of their own, latents' matrix was whole."""
    shapes = {"blk.0.ffn_up.1.weight": (8, 4), "blk.0.attn_q.weight": (8, 8)}
    config = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1}
    found = locations("llama", shapes, config)
    assert "model.layers.0.mlp.experts.1.up_proj.weight" in found
    whole = locations("deepseek2", {"blk.0.attn_kv_b.weight": (8, 4)}, config)
    assert whole["model.layers.0.self_attn.kv_b_proj.weight"].shape == (8, 4)
    half = locations("deepseek2", {"blk.0.attn_k_b.weight": (2, 4, 4)}, config)
    assert list(half) == ["blk.0.attn_k_b.weight"]  # which the model does not have


def test_the_first_layer_for_drafts_is_read() -> None:
    config = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1}
    shapes = {f"blk.{i}.{part}.weight": (8,) for i in range(3) for part in ("attn_norm", "attn_q")}
    shapes |= {f"blk.{i}.nextn.{part}.weight": (8, 8) for i in (1, 2)
               for part in ("eh_proj", "embed_tokens")}  # fmt: skip
    found = locations("glm4moe", shapes, config | {"num_nextn_predict_layers": 2})
    assert sorted(found) == [
        "model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.weight",
        "mtp.fc.weight", "mtp.layers.0.input_layernorm.weight",
        "mtp.layers.0.self_attn.q_proj.weight",
    ]  # fmt: skip
    assert "model.layers.1.self_attn.q_proj.weight" in locations("glm4moe", shapes, config)


def test_a_gguf_file_drafts_as_its_folder_does(tmp_path: Path) -> None:
    make_mtp_checkpoint("glm4_moe", tmp_path)
    folder = Checkpoint.open(tmp_path)
    file = open_checkpoint(write_gguf(tmp_path, tmp_path / "model.gguf"))
    given = Options(quant="f32", context=128, max_batch=2, mtp=True)
    plan, other = (make_plan(each, get_target("cpu"), given) for each in (file, folder))
    check_equal(other.architecture.config, plan.architecture.config, "config")
    assert plan.sources.keys() == other.sources.keys() and "mtp.fc.weight" in plan.sources
    for name, source in plan.sources.items():
        numbers = file.tensors.read(source), folder.tensors.read(other.sources[name])
        np.testing.assert_array_equal(*numbers, err_msg=name)
    file = open_checkpoint(write_gguf(tmp_path, tmp_path / "q8.gguf", lambda name: "Q8_0"))
    kept = make_plan(file, get_target("cpu"), replace(given, quant="keep")).schemes
    assert (kept["lm_head.weight"], kept["mtp.lm_head.weight"]) == ("int8_g32", "t4_g32")
    assert kept["mtp.fc.weight"] == "int8_g32"


def test_a_head_of_floats_is_quantized_beside_a_quantized_model(tmp_path: Path) -> None:
    make_eagle_checkpoint(tmp_path / "model", tmp_path / "head")
    given = Options(quant="keep", context=128, max_batch=2, draft_head=tmp_path / "head")
    for kind, schemes in (("Q8_0", ["bf16", "int8_g32", "t4_g32"]), ("F32", ["f32"] * 3)):
        path = write_gguf(tmp_path / "model", tmp_path / f"{kind}.gguf", lambda name, k=kind: k)
        found = make_plan(open_checkpoint(path), get_target("cpu"), given).schemes
        parts = ("fc", "midlayer.mlp.up_proj", "lm_head")
        assert [found[f"mtp.{part}.weight"] for part in parts] == schemes
    for quant, fc in (("q4", "int8_g32"), ("q4_g32", "int8_g32"), ("q8", "int8_g32")):
        found = make_plan(open_checkpoint(path), get_target("cpu"), replace(given, quant=quant))
        assert found.schemes["mtp.fc.weight"] == fc


def test_rows_that_are_no_heads_are_refused_by_name(tmp_path: Path) -> None:
    make_checkpoint("llama", tmp_path)
    file = open_checkpoint(write_gguf(tmp_path, tmp_path / "m.gguf"))
    name = "model.layers.0.self_attn.q_proj.weight"
    place = replace(file.tensors.locations[name], rows=rotary(5))
    tensors = replace(file.tensors, locations={name: place})
    with pytest.raises(CheckpointError, match=r"'blk\.0\.attn_q\.weight' has 64 rows"):
        tensors.read(name)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"gemma4.rope.dimension_count_swa": 8}, "'gemma4.rope.dimension_count_swa' must be as"),
        ({"gemma4.attention.head_count_kv": [1, 2, 2, 2, 2]}, "the same in all layers of a type"),
        ({"gemma4.feed_forward_length": [96, 96, 96, 96, 97]}, "the first layer's, or twice"),
        ({"gemma3n.activation_sparsity_scale": [1.5]}, "a number for each of 5 layers"),
        ({"gemma3n.attention.sliding_window_pattern": [True]}, "one for each layer"),
    ],
)
def test_odd_gemmas_are_refused_by_name(
    metadata: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = next(iter(metadata)).partition(".")[0]
    make(family, tmp_path, {})
    changed = {name.removeprefix(f"{family}."): value for name, value in metadata.items()}
    own = gguf_keys.MORE[f"{family}_text"]
    with monkeypatch.context() as patched:
        patched.setitem(gguf_keys.MORE, f"{family}_text", lambda config: own(config) | changed)
        file = write_gguf(tmp_path, tmp_path / "model.gguf")
    with pytest.raises((CheckpointError, UnsupportedError), match=words):
        open_checkpoint(file)
