"""What a set of kernels offers to the lowering passes; `cpu` and `gpu` beside it implement it.

A factory returns a TIR PrimFunc with symbolic row counts, private and opaque to fusion
(op_pattern 8); what may take several launches is given the graph and emits its calls. The set is
chosen by the target row's `kernels` field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from mlcc_compiler.passes.lower import LowerOperators, Weight
    from mlcc_compiler.passes.paged_kv import KvLayout
    from mlcc_compiler.passes.rewrite import Rewriter

Array = npt.NDArray[Any]
PrimFunc = Any


@dataclass(frozen=True)
class PhysicalTensor:
    """One tensor of a packed weight; `suffix` is added to the checkpoint's name."""

    suffix: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class WeightLayout:
    """How one weight is stored, and the function that makes it so from f32."""

    tensors: tuple[PhysicalTensor, ...]
    pack: Callable[[npt.NDArray[np.float32]], list[Array]]


class KernelSet(Protocol):
    """Every operator of `models/ops.py`, plus sampling and page copies."""

    merges: frozenset[str]
    """What `passes/merge_projections.py` may merge: 'qkv', 'gate_up'."""

    def layout(self, use: str, shape: Sequence[int], scheme: str) -> WeightLayout: ...

    def linear(self, graph: LowerOperators, x: Any, weight: Weight, bias: Any | None) -> Any:
        """Emit y = x @ weight.T + bias into the graph."""
        ...

    def embedding(self, graph: LowerOperators, token_ids: Any, table: Weight) -> Any:
        """Emit the rows of a table."""
        ...

    def rms_norm(self, shape: Sequence[int], eps: float, offset: float) -> PrimFunc: ...
    def add_rms_norm(self, hidden: int, eps: float, offset: float) -> PrimFunc: ...
    def rope_table(self, rotary_dim: int, scale: float) -> PrimFunc: ...
    def rope(self, heads: int, head_dim: int, rotary_dim: int) -> PrimFunc: ...
    def gated(self, inner: int, kind: str) -> PrimFunc: ...
    def gated_fused(self, inner: int, kind: str) -> PrimFunc: ...
    def softcap(self, width: int, cap: float) -> PrimFunc: ...
    def add(self, width: int) -> PrimFunc: ...
    def scale(self, width: int, factor: float) -> PrimFunc: ...
    def take_rows(self, width: int) -> PrimFunc: ...
    def resolve_tokens(self) -> PrimFunc: ...
    def append_kv(self, layout: KvLayout) -> PrimFunc: ...
    def rotate_and_append(
        self, layout: KvLayout, heads: int, rotary_dim: int, norm: tuple[float, float] | None
    ) -> PrimFunc:
        """(qkv f32[n, (heads + 2 kv_heads) * head_dim], table, [q and k norms' weights],
        token_slots, pages) -> pages in place, q f32[n, heads, head_dim]; `norm` is (eps, offset).
        Only for a set that merges 'qkv'."""
        ...

    def paged_attention(
        self,
        graph: Rewriter,
        inputs: Sequence[Any],
        layout: KvLayout,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Any:
        """Emit attention of `inputs`: q f32[n, heads, head_dim], pages, qo_indptr, page_indptr,
        page_indices, last_page_len."""
        ...

    def copy_pages(self, layout: KvLayout) -> PrimFunc: ...
    def sample(self, vocab_size: int) -> PrimFunc: ...
