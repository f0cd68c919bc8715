"""The CPU kernel table: kernels are chosen by vector width and instructions, never by CPU name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mlcc_compiler.kernels.cpu.attention import attention, cross_attention, mla_cache
from mlcc_compiler.kernels.cpu.attention import latent as attend_latents
from mlcc_compiler.kernels.cpu.elementwise import (
    activation,
    altup,
    concat,
    conformer,
    embedding,
    inputs_embeds,
    lora,
    norm,
    pooling,
    rope,
)
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.kv_cache import append, hidden_states, rope_and_append
from mlcc_compiler.kernels.cpu.linear import amx_gated, linear
from mlcc_compiler.kernels.cpu.moe import biased_router, expert_bias, experts, router
from mlcc_compiler.kernels.cpu.sampling import adjust, top_logprobs
from mlcc_compiler.kernels.cpu.sampling import sample as sampling
from mlcc_compiler.kernels.cpu.ssm import conv, delta_rule, selective_scan
from mlcc_compiler.kernels.kernel_set import Emitter, Factory, KernelSet, Layout
from mlcc_targets import Target

FACTORIES: dict[str, Factory] = {
    "rms_norm": norm.rms_norm,
    "layer_norm": norm.layer_norm,
    "add_rms_norm": norm.add_rms_norm,
    "rope_table": rope.rope_table,
    "mrope_table": rope.mrope_table,
    "growth": rope.growth,
    "rope": rope.rope,
    "activated": activation.activated,
    "gated": activation.gated,
    "gated_fused": activation.gated_fused,
    "activated_few": activation.activated_few,
    "gated_few": activation.gated_few,
    "softcap": activation.softcap,
    "route": router.route,
    "route_corrected": biased_router.route_corrected,
    "combine": router.combine,
    "add_expert_bias": expert_bias.add_expert_bias,
    "scale_chosen": expert_bias.scale_chosen,
    "clamped_swiglu": expert_bias.clamped_swiglu,
    "add": activation.add,
    "scale": activation.scale,
    "mix": altup.mix,
    "match_magnitude": altup.match_magnitude,
    "above": altup.above,
    "relative_attention": conformer.relative_attention,
    "depthwise_conv": conformer.depthwise_conv,
    "group_moments": conformer.group_moments,
    "cumulative_norm": conformer.cumulative_norm,
    "next_rows": conformer.next_rows,
    "scale_columns": activation.scale_columns,
    "subtract_columns": activation.subtract_columns,
    "clip": activation.clip,
    "take_parts": concat.take_parts,
    "side_by_side": concat.side_by_side,
    "take_rows": append.take_rows,
    "mean_rows": pooling.mean_rows,
    "remap": pooling.remap,
    "replace_from": pooling.replace_from,
    "inputs_embeds": inputs_embeds.inputs_embeds,
    "embedding_bag": inputs_embeds.embedding_bag,
    "cross_attention": cross_attention.cross_attention,
    "cross_weights": cross_attention.cross_weights,
    "keep_hidden": hidden_states.keep_hidden,
    "hidden_states": hidden_states.hidden_states,
    "spread_logits": hidden_states.spread_logits,
    "read_step": append.read_step,
    "append_kv": append.append_kv,
    "rotate_and_append": rope_and_append.rotate_and_append,
    "append_latent": mla_cache.append_latent,
    "copy_pages": append.copy_pages,
    "adapt_shrink": lora.adapt_shrink,
    "adapt_expand": lora.adapt_expand,
    "causal_conv": conv.causal_conv,
    "delta_rule": delta_rule.delta_rule,
    "selective_scan": selective_scan.selective_scan,
    "adjust": adjust.adjust,
}

EMITTERS: dict[str, Emitter] = {
    "linear": linear.emit_linear,
    "activated_linear": linear.emit_activated_linear,
    "gated_linear": linear.emit_gated_linear,
    "embedding": embedding.emit_embedding,
    "expert_linear": experts.emit_expert_linear,
    "attention": attention.emit_attention,
    "latent_attention": attend_latents.emit_latent_attention,
    "sample": sampling.emit_sample,
    "top_logprobs": top_logprobs.emit_top_logprobs,
}

LAYOUTS: dict[str, Layout] = {
    "matrix": linear.layout,
    "table": embedding.layout,
    "experts": experts.layout,
}


def cpu_kernels(isa: Isa) -> KernelSet:
    """The set for one kind of CPU."""
    return KernelSet(
        isa,
        FACTORIES,
        EMITTERS,
        LAYOUTS,
        frozenset({"qkv", "gate_up"}),
        linear.share_input,
        partial(amx_gated.fuses_gated, isa),
    )


def kernels_of(target: Target, activation_bits: int = 8, rounds_rows: bool = True) -> KernelSet:
    """The set for a target's row; activations of quantized products are rounded to 8 or 16 bits,
    and to bf16 only if rows may be rounded."""
    found = Isa.from_features(target.arch, target.features)
    isa = replace(
        found,
        has_bf16=found.has_bf16 and rounds_rows,
        has_tiles=found.has_tiles and rounds_rows,
        activation_dtype=target.activation_dtype,
        activation_parts=activation_bits // 8,
        tile_columns=target.tile_columns,
        stored_signed=target.signed_codes,
    )
    return cpu_kernels(isa)
