"""The kernels of a GPU as a table: they choose by the limits of the row, never by its name."""

from __future__ import annotations

from mlcc_compiler.kernels.gpu import (
    adapt,
    elementwise,
    embedding,
    kv,
    latent,
    norm,
    parts,
    pooling,
    rope,
    streams,
)
from mlcc_compiler.kernels.gpu.attention import attention
from mlcc_compiler.kernels.gpu.attention import latent as attend_latents
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.experts import biased, corrected, experts, route
from mlcc_compiler.kernels.gpu.linear import linear
from mlcc_compiler.kernels.gpu.linear.parts import layout
from mlcc_compiler.kernels.gpu.sample import adjust, top_logprobs
from mlcc_compiler.kernels.gpu.sample import sample as sampling
from mlcc_compiler.kernels.gpu.state import conv, delta, scan
from mlcc_compiler.kernels.kernel_set import Emitter, Factory, KernelSet, Layout
from mlcc_targets import Target

FACTORIES: dict[str, Factory] = {
    "rms_norm": norm.rms_norm,
    "layer_norm": norm.layer_norm,
    "add_rms_norm": norm.add_rms_norm,
    "rope_table": rope.rope_table,
    "growth": rope.growth,
    "rope": rope.rope,
    "activated": elementwise.activated,
    "gated": elementwise.gated,
    "gated_fused": elementwise.gated_fused,
    "softcap": elementwise.softcap,
    "route": route.route,
    "route_corrected": corrected.route_corrected,
    "combine": route.combine,
    "add_expert_bias": biased.add_expert_bias,
    "scale_chosen": biased.scale_chosen,
    "clamped_swiglu": biased.clamped_swiglu,
    "add": elementwise.add,
    "scale": elementwise.scale,
    "mix": streams.mix,
    "match_magnitude": streams.match_magnitude,
    "above": streams.above,
    "scale_columns": elementwise.scale_columns,
    "take_parts": parts.take_parts,
    "side_by_side": parts.side_by_side,
    "take_rows": elementwise.take_rows,
    "mean_rows": pooling.mean_rows,
    "remap": pooling.remap,
    "read_step": elementwise.read_step,
    "append_kv": kv.append_kv,
    "rotate_and_append": kv.rotate_and_append,
    "append_latent": latent.append_latent,
    "copy_pages": kv.copy_pages,
    "adapt_shrink": adapt.adapt_shrink,
    "adapt_expand": adapt.adapt_expand,
    "causal_conv": conv.causal_conv,
    "delta_rule": delta.delta_rule,
    "selective_scan": scan.selective_scan,
    "adjust": adjust.adjust,
}

EMITTERS: dict[str, Emitter] = {
    "linear": linear.emit_linear,
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
    return KernelSet(gpu, FACTORIES, EMITTERS, LAYOUTS, merges, lambda schemes, k: True)


def kernels_of(target: Target) -> KernelSet:
    """The set for a target's row."""
    return gpu_kernels(Gpu.of(target))
