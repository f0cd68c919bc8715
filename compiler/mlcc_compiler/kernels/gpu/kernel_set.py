"""The kernels of a GPU as one set: chooses by the limits of the row, never its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlcc_compiler.kernels.gpu import attention, elementwise, embedding, kv, linear, norm, rope
from mlcc_compiler.kernels.gpu import sample as sampling
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.weight_layout import Packing
from mlcc_compiler.kernels.kernel_set import PhysicalTensor, PrimFunc, WeightLayout
from mlcc_compiler.quantization import scheme
from mlcc_targets import Target

if TYPE_CHECKING:
    from mlcc_compiler.passes.lower import LowerOperators, Weight
    from mlcc_compiler.passes.paged_kv import KvLayout
    from mlcc_compiler.passes.rewrite import Rewriter


class GpuKernels:
    """Implements `kernels.kernel_set.KernelSet`."""

    merges = frozenset({"qkv", "gate_up"})

    def __init__(self, target: Target) -> None:
        self.gpu = Gpu.of(target)
        self._made: dict[tuple[Any, ...], PrimFunc] = {}

    def _make(self, factory: Callable[..., PrimFunc], *arguments: Any) -> PrimFunc:
        """A kernel, built once however many layers ask for it."""
        key = (factory, *arguments)
        if key not in self._made:
            self._made[key] = factory(self.gpu, *arguments)
        return self._made[key]

    # -- weights and what reads them -------------------------------------------------------------

    def layout(self, use: str, shape: Sequence[int], scheme_name: str) -> WeightLayout:
        """Vectors stay f32; matrices and tables are packed into words."""
        if use == "vector":
            part = PhysicalTensor("", tuple(shape), "float32")
            return WeightLayout((part,), lambda weight: [weight.astype(np.float32)])
        rows, columns = shape
        packing = Packing(rows, columns, scheme(scheme_name), self.gpu.binding_bytes)
        return WeightLayout(tuple(packing.tensors), packing.pack)

    def linear(self, graph: LowerOperators, x: Any, weight: Weight, bias: Any | None) -> Any:
        return linear.linear(self.gpu, graph, x, weight, bias)

    def embedding(self, graph: LowerOperators, token_ids: Any, table: Weight) -> Any:
        return embedding.embedding(self.gpu, graph, token_ids, table)

    # -- operators -------------------------------------------------------------------------------

    def rms_norm(self, shape: Sequence[int], eps: float, offset: float) -> PrimFunc:
        factory = norm.rms_norm_heads if len(shape) == 2 else norm.rms_norm
        return self._make(factory, *shape, eps, offset)

    def add_rms_norm(self, hidden: int, eps: float, offset: float) -> PrimFunc:
        return self._make(norm.add_rms_norm, hidden, eps, offset)

    def rope_table(self, rotary_dim: int, scale: float) -> PrimFunc:
        return self._make(rope.rope_table, rotary_dim, scale)

    def rope(self, heads: int, head_dim: int, rotary_dim: int) -> PrimFunc:
        return self._make(rope.rope, heads, head_dim, rotary_dim)

    def gated(self, inner: int, kind: str) -> PrimFunc:
        return self._make(elementwise.gated, inner, kind)

    def gated_fused(self, inner: int, kind: str) -> PrimFunc:
        return self._make(elementwise.gated_fused, inner, kind)

    def softcap(self, width: int, cap: float) -> PrimFunc:
        return self._make(elementwise.softcap, width, cap)

    def add(self, width: int) -> PrimFunc:
        return self._make(elementwise.add, width)

    def scale(self, width: int, factor: float) -> PrimFunc:
        return self._make(elementwise.scale, width, factor)

    def take_rows(self, width: int) -> PrimFunc:
        return self._make(elementwise.take_rows, width)

    def resolve_tokens(self) -> PrimFunc:
        return self._make(elementwise.resolve_tokens)

    def append_kv(self, layout: KvLayout) -> PrimFunc:
        return self._make(kv.append_kv, *_pages(layout))

    def rotate_and_append(
        self, layout: KvLayout, heads: int, rotary_dim: int, norm: tuple[float, float] | None
    ) -> PrimFunc:
        return self._make(kv.rotate_and_append, heads, rotary_dim, norm, *_pages(layout))

    def copy_pages(self, layout: KvLayout) -> PrimFunc:
        return self._make(kv.copy_pages, *_pages(layout))

    def paged_attention(
        self,
        graph: Rewriter,
        inputs: Sequence[Any],
        layout: KvLayout,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Any:
        return attention.paged_attention(self.gpu, graph, inputs, layout, scale, window, softcap)

    def sample(self, vocab_size: int) -> PrimFunc:
        return self._make(sampling.sample, vocab_size)


def _pages(layout: KvLayout) -> tuple[int, int, int, str]:
    return layout.kv_heads, layout.head_dim, layout.page_size, layout.dtype
