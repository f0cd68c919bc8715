"""Each field of a family's config that changes the arithmetic is read or refused.

Every field of `transformers`' config class, except sizes and fields for training or tokens, gets
another value: the logits then follow `transformers`, or the compile is refused. Only with --long
except for one family, as each field needs a model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from huggingface_hub.errors import StrictDataclassError

from mlcc.errors import MlccError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.models.registry import ARCHITECTURES
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import CASES, SMALL, config_of, save_random
from tests.compiler.models.helpers.mixed import capacity_of, reference, run_mixed

SIZES = set(SMALL) - {"tie_word_embeddings"}
NO_ARITHMETIC = {
    "add_cross_attention", "architectures", "attention_dropout", "attn_implementation",
    "chunk_size_feed_forward", "cross_attention_hidden_size", "decoder_start_token_id", "dtype",
    "embd_pdrop", "embedding_dropout", "eod_token_id", "experts_implementation",
    "hidden_dropout", "id2label", "initializer_range", "is_decoder", "is_encoder_decoder",
    "label2id", "mamba_ssm_cache_dtype", "model_type", "mtp_layers_block_type", "name_or_path",
    "num_labels", "num_logits_to_keep", "num_mtp_layers", "num_nextn_predict_layers",
    "original_max_position_embeddings", "output_attentions", "output_hidden_states",
    "output_router_logits", "pretraining_tp", "problem_type", "resid_pdrop", "residual_dropout",
    "return_dict", "router_aux_loss_coef", "router_jitter_noise", "sep_token_id",
    "task_specific_params", "tie_encoder_decoder", "tokenizer_class", "transformers_version",
    "use_cache", "use_return_dict",
}  # fmt: skip
OTHER: dict[str, Any] = {
    "hidden_act": "gelu",
    "hidden_activation": "gelu",
    "head_dim": 24,
    "sliding_window": 7,
    "num_experts_per_tok": 1,
    "layer_types": None,
    "no_rope_layers": [0, 1, 1, 0, 0, 1, 0],
    "sliding_window_pattern": 2,
    "max_window_layers": 1,
    "mlp_only_layers": [0],
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 3.0,
    "query_pre_attn_scalar": 20,
    "partial_rotary_factor": 0.25,
    "time_step_limit": (0.5, 1.0),
    "time_step_min": 0.2,
    "position_embedding_type": "rope",
    "mamba_hidden_act": "gelu",
    "mlp_hidden_act": "silu",
    "num_local_experts": 4,
    "attention_head_dim": 24,
    "first_k_dense_replace": 0,
    "moe_k": 1,
    "moe_layer_end_index": 0,
    "moe_layer_interval": 2,
    "moe_layer_start_index": 0,
    "moe_num_shared_experts": 0,
    "n_group": 2,
    "n_shared_experts": 3,
    "shared_intermediate_size": 0,
    "topk_group": 3,
    "clip_qkv": 0.5,
    "attention_chunk_size": 20,
    "floor_scale": 20,
    "moe_layers": [1],
    "altup_active_idx": 1,
    "altup_num_inputs": 4,
    "num_kv_shared_layers": 1,
    "top_k_experts": 1,
    "linear_head_dim": 12,
    "linear_num_heads": 2,
    "linear_conv_kernel_dim": 3,
    "q_lora_rank": 16,
    "decoder_sparse_step": 2,
    "topk_method": "greedy",
    "use_bidirectional_attention": True,
}
OTHER_SIZES: dict[str, Any] = {
    "block_multiple_of": 32,
    "chunk_size": 8,
    "conv_L_cache": 4,
    "conv_kernel": 3,
    "expand": 3,
    "full_attn_idxs": [0],
    "hidden_size_per_layer_input": 12,
    "interleave_moe_layer_step": 2,
    "intermediate_size_mlp": 64,
    "kv_lora_rank": 24,
    "laurel_rank": 8,
    "linear_key_head_dim": 16,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 6,
    "linear_value_head_dim": 32,
    "mamba_chunk_size": 8,
    "mamba_d_conv": 3,
    "mamba_d_head": 8,
    "mamba_d_ssm": 64,
    "mamba_d_state": 12,
    "mamba_expand": 3,
    "mamba_head_dim": 16,
    "mamba_n_groups": 4,
    "mamba_n_heads": 4,
    "mamba_num_heads": 4,
    "moe_intermediate_size": 40,
    "moe_latent_size": 16,
    "moe_num_experts": 8,
    "moe_shared_expert_intermediate_size": 48,
    "n_groups": 4,
    "n_routed_experts": 12,
    "no_rope_layer_interval": 3,
    "num_dense_layers": 2,
    "num_expert_group": 2,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "num_heads": 4,
    "num_shared_experts": 2,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "rotary_dim": 8,
    "shared_expert_intermediate_size": 48,
    "ssm_state_size": 12,
    "state_size": 12,
    "time_step_rank": 8,
    "v_head_dim": 20,
    "vocab_size_per_layer_input": 140,
}
"""Fields of one family, mostly with other tensors."""
FAMILIES = [case for case in CASES if "-" not in case]
MORE = ["deepseek_v2-groups", *(case for case in CASES if case.endswith("-experts"))]
"""Cases of families whose first case lacks the part that the field configures."""
SHOWN = "cohere2"


def flipped(name: str, value: Any) -> Any:
    """Another value of the same kind; None if there is no useful one."""
    if name in ("layer_types", "layers_block_type") and isinstance(value, list):
        other = {"full_attention": "sliding_attention", "sliding_attention": "full_attention"}
        slides = set(value) <= {*other, "chunked_attention"}
        return [other.get(kind, kind) for kind in value] if slides else [*value[1:], value[0]]
    if name == "mlp_layer_types" and isinstance(value, list):
        return [{"dense": "sparse", "sparse": "dense"}.get(kind, kind) for kind in value]
    if name in OTHER or name in OTHER_SIZES:
        return OTHER.get(name, OTHER_SIZES.get(name))
    if isinstance(value, list) and all(isinstance(number, float) for number in value):
        return [number * 1.5 for number in value]
    if isinstance(value, bool):
        return not value
    return value * 1.5 if isinstance(value, float) else None


def fields_of(case: str) -> list[tuple[str, Any]]:
    """(name, another value) of each field worth changing."""
    config = config_of(case)
    skipped = SIZES | NO_ARITHMETIC
    named = {k: v for k, v in config.to_dict().items() if k not in skipped}
    found = {k: flipped(k, v) for k, v in named.items()}
    return [(k, v) for k, v in found.items() if v is not None and v != named[k]]


def long_but(case: str) -> list[pytest.MarkDecorator]:
    return [] if case == SHOWN else [pytest.mark.long]


def cases() -> list[Any]:
    return [
        pytest.param(
            case,
            field,
            value,
            id=f"{case}-{field}",
            marks=[] if case == SHOWN else pytest.mark.long,
        )
        for case in [*FAMILIES, *MORE]
        for field, value in fields_of(case)
    ]


def test_fields_are_found() -> None:
    assert {field for field, _ in fields_of("cohere2")} >= {"layer_norm_eps", "logit_scale"}
    assert set(FAMILIES) <= set(ARCHITECTURES)


@pytest.mark.parametrize(("case", "field", "value"), cases())
def test_another_value_is_followed_or_refused(
    case: str, field: str, value: Any, tmp_path: Path
) -> None:
    check_followed(lambda: config_of(case, **{field: value}), field, tmp_path)


def check_followed(make: Callable[[], Any], field: str, tmp_path: Path) -> None:
    """Check that the reference gives the logits of the config's random model, or that the compile
    is refused with the field's name."""
    try:
        oracle = save_random(make(), tmp_path)
    except (ValueError, KeyError, RuntimeError, StrictDataclassError) as error:
        pytest.skip(f"transformers takes no such value: {type(error).__name__}")
    try:
        plan = make_plan(
            Checkpoint.open(tmp_path),
            get_target("reference"),
            Options(quant="f32", context=128, max_batch=8),
        )
    except MlccError as refusal:
        assert field in str(refusal) or "support" in str(refusal), refusal
        return
    try:
        executor = reference(plan, capacity_of(plan))
        error = run_mixed(executor, oracle, plan.limits.context, spread=0.3)
    except ValueError as error_of_oracle:
        if "sliding_window" not in str(error_of_oracle):
            raise
        pytest.skip("transformers runs no such model")
    assert np.isfinite(error) and error < 5e-5


def test_types_of_layers_alone_make_smollm3_slide(tmp_path: Path) -> None:
    """`use_sliding_window` is for those that are not named."""
    types = ["sliding_attention", "full_attention"]
    more = {"use_sliding_window": False, "sliding_window": 7, "layer_types": types}
    oracle = save_random(transformers.SmolLM3Config(**{**SMALL, **more}), tmp_path)
    options = Options(quant="f32", context=128, max_batch=8)
    plan = make_plan(Checkpoint.open(tmp_path), get_target("reference"), options)
    assert plan.config.windows == (7, None)
    error = run_mixed(reference(plan, capacity_of(plan)), oracle, plan.limits.context)
    assert error < 5e-5
