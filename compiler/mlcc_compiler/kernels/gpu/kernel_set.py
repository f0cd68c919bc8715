"""The GPU kernel table: kernels are chosen by the limits of the row, never by its name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mlcc_compiler.kernels.gpu.attention import attention, cross_attention, mla_cache
from mlcc_compiler.kernels.gpu.attention import latent as attend_latents
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import (
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
from mlcc_compiler.kernels.gpu.kv_cache import append, hidden_states
from mlcc_compiler.kernels.gpu.linear import linear
from mlcc_compiler.kernels.gpu.linear.fragments import fp8_outputs, rounded_rows
from mlcc_compiler.kernels.gpu.linear.split_weights import layout
from mlcc_compiler.kernels.gpu.moe import biased_router, expert_bias, experts, router
from mlcc_compiler.kernels.gpu.sampling import adjust, top_logprobs
from mlcc_compiler.kernels.gpu.sampling import sample as sampling
from mlcc_compiler.kernels.gpu.ssm import conv, delta_rule, selective_scan
from mlcc_compiler.kernels.kernel_set import Emitter, Factory, KernelSet, Layout
from mlcc_targets import Target

FACTORIES: dict[str, Factory] = {
    "rms_norm": norm.rms_norm,
    "layer_norm": norm.layer_norm,
    "add_rms_norm": norm.add_rms_norm,
    "rounded_rms_norm": rounded_rows.rounded_rms_norm,
    "rounded_add_rms_norm": rounded_rows.rounded_add_rms_norm,
    "rounded_gated": rounded_rows.rounded_gated,
    "rope_table": rope.rope_table,
    "mrope_table": rope.mrope_table,
    "growth": rope.growth,
    "rope": rope.rope,
    "activated": activation.activated,
    "gated": activation.gated,
    "gated_fused": activation.gated_fused,
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
    "take_rows": activation.take_rows,
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
    "read_step": activation.read_step,
    "append_kv": append.append_kv,
    "rotate_and_append": append.rotate_and_append,
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
    "rounded_gated_linear": linear.emit_gated_linear,
    "embedding": embedding.emit_embedding,
    "expert_linear": experts.emit_expert_linear,
    "attention": attention.emit_attention,
    "latent_attention": attend_latents.emit_latent_attention,
    "sample": sampling.emit_sample,
    "top_logprobs": top_logprobs.emit_top_logprobs,
}

LAYOUTS: dict[str, Layout] = {
    "matrix": layout,
    "table": layout,
    "experts": experts.layout,
}


def gpu_kernels(gpu: Gpu) -> KernelSet:
    """The set for a device."""
    merges = frozenset({"qkv", "gate_up"})
    rounds = partial(linear.rounding, gpu) if gpu.fragments else None
    shares = lambda schemes, k: True  # noqa: E731
    return KernelSet(
        gpu,
        FACTORIES,
        EMITTERS,
        LAYOUTS,
        merges,
        shares,
        rounding=rounds,
        rounded_words=fp8_outputs.words_of,
        rounds_parts=fp8_outputs.in_parts,
        rounds_heads=fp8_outputs.fits_heads,
    )


def kernels_of(target: Target, activation_bits: int | None = None) -> KernelSet:
    """The set for a target's row, in which products see activations in 8 or 16 bits, or in all of
    theirs (None)."""
    fp8 = activation_bits == 8 and bool(target.limits.get("e4m3"))
    packed_dot, half_products = activation_bits == 8 and not fp8, activation_bits == 16
    device = replace(Gpu.of(target), packed_dot=packed_dot, half_products=half_products)
    return gpu_kernels(replace(device, fp8=fp8))
