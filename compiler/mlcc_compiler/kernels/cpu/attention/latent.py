"""Latent attention (DeepSeek-AI, 2024) over pages of latents, absorbed form, on the CPU.

It is `attention.py` with one KV head whose keys are rows of rank + rope numbers and whose values
are the first `rank` of the same rows. Sums are computed for all columns (576, where 512 are used).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from mlcc_compiler.ir.graph import Graph, dims, dtype_of, tensor
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.ir.mla import MlaLayout, MlaShape
from mlcc_compiler.kernels.cpu.attention.attention import attend
from mlcc_compiler.kernels.cpu.attention.blocking import Blocking, Cache
from mlcc_compiler.kernels.cpu.attention.mla_cache import latent_query, latent_value
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import fit_lanes
from mlcc_compiler.kernels.frame import SIZE, Expr, PrimFunc, activations, kernel, tensor_argument
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.step import step_argument


def emit_latent_attention(
    kernels: KernelSet,
    graph: Graph,
    inputs: Sequence[Any],
    sizes: tuple[Any, Any],
    shape: MlaShape,
    layout: MlaLayout,
) -> Any:
    """Emit attention of `inputs`: q f32[n, heads, nope + rope], kv_b_proj's weight, the table of
    rotations, pages and step; returns f32[n, heads, value].

    sizes: (sequences, entries of the group's page list).
    """
    q, weight, table, pages, step = inputs
    rows, heads, dtype = dims(q)[0], shape.heads, dtype_of(q)
    kernel, out = (
        kernels.cached_kernel(latent_query, shape),
        tensor([rows, heads, shape.width], dtype),
    )
    asked = graph.call_tir(kernel, "latent_query", [q, weight, table], out)
    kernel, out = (
        kernels.cached_kernel(attend_latents, layout),
        tensor([rows, heads, shape.rank], dtype),
    )
    sums = graph.call_tir(kernel, "attend_latents", [asked, pages, step, sizes[0]], out)
    kernel, out = (
        kernels.cached_kernel(latent_value, shape),
        tensor([rows, heads, shape.value], dtype),
    )
    return graph.call_tir(kernel, "latent_value", [sums, weight], out)


def attend_latents(isa: Isa, layout: MlaLayout) -> PrimFunc:
    """(q f32[n, heads, rank + rope], pages, step, b sequences at most) -> f32[n, heads, rank].

    pages: dtype[num_pages, page_size, rank + rope]. Otherwise as `paged_attention`.
    """
    shape = layout.shape
    keys = AttentionShape(shape.heads, 1, shape.width, shape.scale)
    pairs = KvLayout(layout.page_size, layout.dtype, 1, shape.width, layout.step, layout.group)
    cut = _Blocking(keys, pairs, isa, shape.rank)

    def body(q: Expr, pages: Expr, words: Expr, most: Expr, out: Expr) -> None:
        attend(cut, q, Cache(cut, _Pairs(pages), words), most, out)

    q = activations(isa, "n", shape.heads, shape.width)
    out = activations(isa, "n", shape.heads, shape.rank)
    step = step_argument(layout.step)
    return kernel(
        body, q=q, pages=tensor_argument(layout.pages), step=step, sequences=SIZE, out=out
    )


@dataclass(frozen=True)
class _Blocking(Blocking):
    """Vector widths that divide the values' size; blocks of one length, as scratch stores keys of
    them."""

    rank: int

    @property
    def key_columns(self) -> bool:
        """False: a latent is both key and value."""
        return False

    @property
    def quads(self) -> bool:
        return False

    @property
    def long_block(self) -> int:
        return self.block

    @property
    def dim_lanes(self) -> int:
        return fit_lanes(gcd(self.rank, self.shape.head_dim), self.lanes)


@dataclass(frozen=True)
class _Pairs:
    """Presents pages of latents as pages of keys and values of one head."""

    pages: Expr

    def __getitem__(self, at: tuple[Expr, ...]) -> Expr:
        page, _, _, offset, d = at
        return self.pages[page, offset, d]
