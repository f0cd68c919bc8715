"""The CPU's kernels as one set: chooses by the row's vector width and features, never its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlcc_compiler.kernels.cpu import activation, attention, embedding, kv, linear, norm, rope
from mlcc_compiler.kernels.cpu import sample as sampling
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.linear_layout import Packing
from mlcc_compiler.kernels.kernel_set import PhysicalTensor, PrimFunc, WeightLayout
from mlcc_compiler.passes.rewrite import dims, tensor
from mlcc_compiler.quantization import scheme
from mlcc_compiler.quantization.floats import to_storage
from mlcc_targets import Target

if TYPE_CHECKING:
    from mlcc_compiler.passes.lower import LowerOperators, Weight
    from mlcc_compiler.passes.paged_kv import KvLayout
    from mlcc_compiler.passes.rewrite import Rewriter


class CpuKernels:
    """Implements `kernels.kernel_set.KernelSet`."""

    merges = frozenset({"gate_up"})

    def __init__(self, target: Target) -> None:
        self.isa = Isa.from_features(target.arch, target.features)
        self.lanes = self.isa.lanes
        self._made: dict[tuple[Any, ...], PrimFunc] = {}

    def _make(self, factory: Callable[..., PrimFunc], *arguments: Any) -> PrimFunc:
        """A kernel, built once however many layers ask for it."""
        key = (factory, *arguments)
        if key not in self._made:
            self._made[key] = factory(*arguments)
        return self._made[key]

    # -- weights ---------------------------------------------------------------------------------

    def layout(self, use: str, shape: Sequence[int], scheme_name: str) -> WeightLayout:
        """Vectors stay f32; a float table that is only looked up keeps its rows; the rest packs."""
        row = scheme(scheme_name)
        if use == "vector":
            part = PhysicalTensor("", tuple(shape), "float32")
            return WeightLayout((part,), lambda weight: [weight.astype(np.float32)])
        if use == "table" and row.is_float:
            vocab, hidden = shape
            part = embedding.table_tensor(vocab, hidden, row)
            return WeightLayout((part,), lambda weight: [to_storage(weight, row.dtype)])
        return self._packing(shape, scheme_name).layout()

    def _packing(self, shape: Sequence[int], scheme_name: str) -> Packing:
        rows, columns = shape
        return linear.packing(rows, columns, scheme_name, self.isa)

    def linear(self, graph: LowerOperators, x: Any, weight: Weight, bias: Any | None) -> Any:
        """Float weights multiply f32 rows; codes multiply rows quantized once per input."""
        plan = weight.plan
        packing = self._packing(plan.shape, plan.scheme)
        quantized = linear.needs_quantized_rows(plan.scheme)
        inputs = self._quantized_rows(graph, x, packing) if quantized else [x]
        kernel = self._make(linear.linear, *plan.shape, plan.scheme, self.isa, bias is not None)
        arguments = [*inputs, *weight.parts, *([] if bias is None else [bias])]
        return graph.call_tir(kernel, "linear", arguments, tensor([dims(x)[0], plan.shape[0]]))

    def _quantized_rows(self, graph: LowerOperators, x: Any, packing: Packing) -> list[Any]:
        """int8 codes, scales and sums of x's groups; the same ones for every reader of x."""
        key = (x, packing.group)
        if key not in graph.quantized_rows:
            rows = dims(x)[0]
            groups = [rows, packing.groups]
            out = [tensor([rows, packing.k], "int8"), tensor(groups), tensor(groups, "int32")]
            kernel = self._make(linear.quantize_rows, packing.k, packing.group, self.isa)
            parts = graph.call_tir(kernel, "quantize_rows", [x], out)
            graph.quantized_rows[key] = graph.items(parts, 3)
        return list(graph.quantized_rows[key])

    def embedding(self, graph: LowerOperators, token_ids: Any, table: Weight) -> Any:
        plan = table.plan
        row = scheme(plan.scheme)
        plain = plan.use == "table" and row.is_float
        factory = embedding.embedding_table if plain else embedding.embedding_packed
        kernel = self._make(factory, *plan.shape, row, self.isa)
        out = tensor([dims(token_ids)[0], plan.shape[1]])
        return graph.call_tir(kernel, "embedding", [token_ids, *table.parts], out)

    # -- operators -------------------------------------------------------------------------------

    def rms_norm(self, shape: Sequence[int], eps: float, offset: float) -> PrimFunc:
        if len(shape) == 2:
            return self._make(norm.rms_norm_heads, *shape, eps, self.lanes, offset)
        return self._make(norm.rms_norm, shape[0], eps, self.lanes, offset)

    def add_rms_norm(self, hidden: int, eps: float, offset: float) -> PrimFunc:
        return self._make(norm.add_rms_norm, hidden, eps, self.lanes, offset)

    def rope_table(self, rotary_dim: int, scale: float) -> PrimFunc:
        return self._make(rope.rope_table, rotary_dim, scale, self.lanes)

    def rope(self, heads: int, head_dim: int, rotary_dim: int) -> PrimFunc:
        return self._make(rope.rope, heads, head_dim, rotary_dim, self.lanes)

    def gated(self, inner: int, kind: str) -> PrimFunc:
        return self._make(activation.gated, inner, kind, self.lanes)

    def gated_fused(self, inner: int, kind: str) -> PrimFunc:
        return self._make(activation.gated_fused, inner, kind, self.lanes)

    def softcap(self, width: int, cap: float) -> PrimFunc:
        return self._make(activation.softcap, width, cap, self.lanes)

    def add(self, width: int) -> PrimFunc:
        return self._make(activation.add, width, self.lanes)

    def scale(self, width: int, factor: float) -> PrimFunc:
        return self._make(activation.scale, width, factor, self.lanes)

    def take_rows(self, width: int) -> PrimFunc:
        return self._make(kv.take_rows, width, self.lanes)

    def resolve_tokens(self) -> PrimFunc:
        return self._make(kv.resolve_tokens)

    def append_kv(self, layout: KvLayout) -> PrimFunc:
        return self._make(
            kv.append_kv,
            layout.kv_heads,
            layout.head_dim,
            layout.page_size,
            layout.dtype,
            self.lanes,
        )

    def rotate_and_append(
        self, layout: KvLayout, heads: int, rotary_dim: int, norm: tuple[float, float] | None
    ) -> PrimFunc:
        raise NotImplementedError("the CPU's kernels do not merge q, k and v")

    def paged_attention(
        self,
        graph: Rewriter,
        inputs: Sequence[Any],
        layout: KvLayout,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Any:
        rows = dims(inputs[0])
        kernel = self._make(
            attention.paged_attention,
            rows[1],
            layout.kv_heads,
            layout.head_dim,
            layout.page_size,
            scale,
            window,
            softcap,
            layout.dtype,
            self.lanes,
        )
        return graph.call_tir(kernel, "paged_attention", inputs, tensor(rows))

    def copy_pages(self, layout: KvLayout) -> PrimFunc:
        return self._make(
            kv.copy_pages,
            layout.kv_heads,
            layout.head_dim,
            layout.page_size,
            layout.dtype,
            self.lanes,
        )

    def sample(self, vocab_size: int) -> PrimFunc:
        return self._make(sampling.sample, vocab_size, self.lanes)
