"""Multi-head latent attention (DeepSeek-AI, 2024): its parameters and its pages.

A token's cache entry is one latent of `rank` numbers, of which each head's key and value are linear
functions, and one rotated key of `rope` numbers shared by all heads. Kernels apply those functions
to the query and to the result instead (the absorbed form), so attention reads latents
directly: one key of rank + rope numbers for all heads, whose first `rank` are the value. Rotation
is of neighbouring pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.engine.batch.tables import CacheGroup, StepLayout
from mlcc.errors import UnsupportedError
from mlcc_compiler.ir.caches import CacheLayout, CacheSpec, CacheTensor, PagedRecord
from mlcc_compiler.ir.layout import FP8_WORDS, SCALED_FORMS


@dataclass(frozen=True)
class MlaShape(PagedRecord):
    """Parameters of one layer's latent attention, from the model to the kernel."""

    operator: ClassVar = "latent_attention"
    append: ClassVar = "append_latent"
    queries: ClassVar = 3
    tensors: ClassVar = ("latent",)
    heads: int
    nope: int
    """Size of the part of a head's query and key that is not rotated."""
    rope: int
    """Size of the rotated part."""
    rank: int
    """Size of the latent."""
    value: int
    """Size of a head's value."""
    scale: float
    """Factor of q . k."""
    eps: float
    """Epsilon of the latent's norm."""

    @property
    def width(self) -> int:
        """Numbers per token in the cache."""
        return self.rank + self.rope

    @property
    def weight(self) -> tuple[int, int]:
        """The shape of kv_b_proj: for each head the rows that map a latent to the key, then those
        for the value."""
        return self.heads * (self.nope + self.value), self.rank

    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """Pages of latents, one tensor a layer. Raises UnsupportedError for 8-bit pages."""
        if dtype in SCALED_FORMS:
            name = "fp8" if dtype == FP8_WORDS else "int8"
            raise UnsupportedError(
                f"--kv {name}: pages of latents (multi-head latent attention) have no 8-bit form, "
                "as a latent is all heads' keys and values at once; leave --kv out"
            )
        shape = (page_size, self.width)
        tensors = tuple(CacheTensor(name, shape, dtype) for name in self.tensors)
        return CacheSpec(CacheGroup("paged", page_size), tensors)

    def layout(self, layout: CacheLayout) -> MlaLayout:
        (pages,) = layout.tensors
        return MlaLayout(self, pages, layout.step, layout.group)


@dataclass(frozen=True)
class MlaLayout:
    """The page tensor of a layer, [num_pages, page_size, rank + rope], and the step's page list
    that names its pages."""

    shape: MlaShape
    pages: CacheTensor
    step: StepLayout
    group: int

    @property
    def page_size(self) -> int:
        return self.pages.shape[0]

    @property
    def dtype(self) -> str:
        return self.pages.dtype
