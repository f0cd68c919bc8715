"""The map from tensor to scheme: rules, quantized checkpoints, and explicit schemes."""

from __future__ import annotations

from typing import Any

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_compiler.quantization import Recipe, fitting, recipe, scheme
from mlcc_compiler.quantization.apply import apply_schemes, assign
from mlcc_targets import get_target
from tests.helpers.demo_model import DEMO

RULES = Recipe("mine", "q4_k", "int8_g32", "q6_k", (("*.v_proj.weight", "q6_k"),))


MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}


def model_of(kind: str, **changes: Any) -> Any:
    config = {"model_type": kind, "rms_norm_eps": 1e-6, "hidden_act": "silu", "vocab_size": 131}
    config |= {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}
    return build_model(config | {"max_position_embeddings": 128} | changes, 64, "float32").model


def test_the_first_rule_that_matches_decides() -> None:
    model = model_of("llama")
    found = assign(model, RULES)
    assert found.schemes["model.layers.0.self_attn.v_proj.weight"] == "q6_k"
    assert found.schemes["model.layers.0.self_attn.q_proj.weight"] == "q4_k"
    assert found.schemes["model.embed_tokens.weight"] == "int8_g32"
    assert found.schemes["lm_head.weight"] == "q6_k"
    assert not list(found.notes())
    apply_schemes(model, found.schemes)
    assert model.model.layers[0].self_attn.v_proj.scheme == "q6_k"


def test_only_recipes_that_keep_take_what_a_checkpoint_has() -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    model = model_of("llama")
    assert assign(model, recipe("q8"), {name: "iq4_xs"}).schemes[name] == "int8_g32"
    kept = assign(model, recipe("keep"), {name: "iq4_xs"}).schemes
    assert kept[name] == "iq4_xs"
    assert kept["model.layers.0.mlp.down_proj.weight"] == "bf16"


def test_an_explicit_scheme_is_reported() -> None:
    found = assign(model_of("llama", hidden_size=168, head_dim=32), RULES)
    assert found.schemes["model.layers.0.self_attn.q_proj.weight"] == "int4m_g24"
    notes = list(found.notes())
    assert any("int4m_g24 instead of q4_k" in n and "rows of 168" in n for n in notes)
    name = "model.layers.0.mlp.up_proj.weight"
    found = assign(model_of("llama"), recipe("keep"), {name: "nf4"})
    assert found.schemes[name] == "int8_g32"
    assert "no kernels" in "".join(found.notes())


@pytest.mark.parametrize(
    ("wanted", "there", "elsewhere"),
    [
        ("e4m3_row", "e4m3_row", "int8_g32"),
        ("e4m3_g64", "int8_g32", "int8_g32"),  # rows of 96
        ("nvfp4", "nvfp4", "int8_g16"),
    ],
)
def test_8_bit_floats_are_kept_where_kernels_read_them(
    wanted: str, there: str, elsewhere: str
) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    for e4m3, given in ((True, there), (False, elsewhere)):
        found = assign(model_of("llama"), recipe("keep"), {name: wanted}, e4m3=e4m3)
        assert found.schemes[name] == given
        assert ("no kernels" in "".join(found.notes())) == (given != wanted)


def test_experts_of_a_layer_are_of_one_scheme() -> None:
    model = model_of("qwen3_moe", **MOE)
    name = "model.layers.0.mlp.experts.1.up_proj.weight"
    found = assign(model, recipe("keep"), {name: "q4_k"})
    assert found.schemes[name] == "bf16"
    assert "one product" in "".join(found.notes())


def test_what_comes_nearest() -> None:
    for name, row, given in (
        ("q4_k", 256, "q4_k"),
        ("q4_k", 96, "q4_k"),
        ("q6_k", 40, "int6_g8"),
        ("iq4_xs", 72, "int4_g24"),
        ("int4a_g128", 192, "int4a_g96"),
        ("int4_g32", 100, "int4_g20"),
        ("int4_g32", 7, "bf16"),
        ("int8_row", 30, "bf16"),
        ("f16", 7, "f16"),
    ):
        assert fitting(scheme(name), row).name == given


def test_a_plan_says_every_scheme_the_most_used_first() -> None:
    checkpoint = Checkpoint.open(DEMO / "model")
    by_recipe = {
        quant: make_plan(checkpoint, get_target("reference"), Options(quant=quant)).scheme_summary()
        for quant in ("q4", "q8", "f32")
    }
    assert by_recipe["q4"] == "t5_g32, t4_g32 (head int8_g32)"
    assert (by_recipe["q8"], by_recipe["f32"]) == ("int8_g32", "f32")
