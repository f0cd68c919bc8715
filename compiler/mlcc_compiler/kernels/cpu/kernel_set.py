"""The CPU's kernels as a table: they choose by vector width and instructions, never by a name."""

from __future__ import annotations

from mlcc_compiler.kernels.cpu import (
    activation,
    adjust,
    embedding,
    kv,
    norm,
    rope,
    top_logprobs,
)
from mlcc_compiler.kernels.cpu import sample as sampling
from mlcc_compiler.kernels.cpu.attention import attention
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.kernels.kernel_set import Emitter, Factory, KernelSet
from mlcc_targets import Target

FACTORIES: dict[str, Factory] = {
    "rms_norm": norm.rms_norm,
    "add_rms_norm": norm.add_rms_norm,
    "rope_table": rope.rope_table,
    "rope": rope.rope,
    "gated": activation.gated,
    "gated_fused": activation.gated_fused,
    "softcap": activation.softcap,
    "add": activation.add,
    "scale": activation.scale,
    "take_rows": kv.take_rows,
    "read_step": kv.read_step,
    "append_kv": kv.append_kv,
    "copy_pages": kv.copy_pages,
    "sample": sampling.sample,
    "adjust": adjust.adjust,
    "top_logprobs": top_logprobs.top_logprobs,
}

EMITTERS: dict[str, Emitter] = {
    "linear": linear.emit_linear,
    "embedding": embedding.emit_embedding,
    "attention": attention.emit_attention,
}


def cpu_kernels(isa: Isa) -> KernelSet:
    """The set for one kind of CPU."""
    return KernelSet(isa, FACTORIES, EMITTERS, embedding.layout, frozenset({"gate_up"}))


def kernels_of(target: Target) -> KernelSet:
    """The set for a target's row."""
    return cpu_kernels(Isa.from_features(target.arch, target.features))
