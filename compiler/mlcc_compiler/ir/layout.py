"""Layouts shared by models, passes, kernels and the weight writer: how a weight is stored, how
pages hold keys and values, and the parameters of a layer's attention.

Plain data at the bottom of the compiler: no TVM, and no imports except `caches` and
`quantization.quantized`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mlcc.engine.batch.tables import CacheGroup, StepLayout
from mlcc_compiler.ir.caches import CacheLayout, CacheSpec, CacheTensor, PagedRecord
from mlcc_compiler.quantization.quantized import Quantized

Array = npt.NDArray[Any]

INT8, INT8_WORDS, FP8_WORDS = "int8", "int8x4", "float8_e4m3x4"
"""8-bit pages, as a kernel set reads them: bytes, or four in a u32 word, the first lowest (WGSL has
32-bit types only). In memory integers are the same on every device that runs here. FP8_WORDS are
8-bit floats (E4M3; Micikevicius et al., 2022).
"""
INT8_FORMS = frozenset({INT8, INT8_WORDS})
"""Page dtypes of 8-bit integers."""
SCALED_FORMS = INT8_FORMS | {FP8_WORDS}
"""8-bit page dtypes. Numbers are multiplied by the scale of their token and head: the largest
magnitude divided by 127 (absmax; LLM.int8(), Dettmers et al., 2022), of 8-bit floats by 448, their
largest number.
"""


@dataclass(frozen=True)
class AttentionShape(PagedRecord):
    """Parameters of one layer's attention, from the model to the kernel."""

    operator: ClassVar = "attention"
    append: ClassVar = "append_kv"
    tensors: ClassVar = ("kv", "kv_scale", "kv_scale_fp8")
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    """Factor of q . k."""
    window: int | None = None
    """Keys that a query attends to, itself included; None = all before it."""
    softcap: float | None = None
    """Scores become cap * tanh(score / cap); None = no soft cap."""
    sinks: bool = False
    """Whether each head has an attention sink (Xiao et al., 2024): a learned additional score in
    the softmax, without a value."""
    causal: bool = True
    """Whether queries attend to earlier keys only. If not, to the whole sequence, which is in one
    step; with a window, to keys less than `window` away on both sides."""
    visible_until: bool = False
    """Whether a causal query sees further than its own position where the step's column
    `visible_until` says so: an image both ways."""
    visible_from: bool = False
    """Whether a causal query sees no key before the one that the step's column `visible_from`
    names: windows of an image."""
    shared: bool = False
    """Whether the layer has no keys and values of its own, but attends to another layer's
    (cross-layer attention; Brandon et al., 2024)."""
    rounded: str = ""
    """The order of columns in which a kernel writes the result as pairs of float16, of the
    products that read it (`passes/round_activations.py`); "" = as floats."""

    @property
    def reads_shared_kv(self) -> bool:
        return self.shared

    @property
    def num_queries(self) -> int:
        """The queries, and the sinks."""
        return 2 if self.sinks else 1

    @property
    def slides(self) -> bool:
        """Whether pages are freed as the window moves: a window group."""
        return self.causal and self.window is not None

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads

    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """Pages of keys and values, sliding if there is a window; 8-bit pages have scales."""
        kind = "window" if self.slides else "paged"
        rows, dim = (2, self.kv_heads, page_size), self.head_dim
        name, scale, fp8_scale = self.tensors
        if dtype == INT8:
            tensors = [CacheTensor(name, (*rows, dim), "int8")]
        elif dtype in (INT8_WORDS, FP8_WORDS):
            tensors = [CacheTensor(name, (*rows, dim // 4), "uint32")]
        else:
            tensors = [CacheTensor(name, (*rows, dim), dtype)]
        if dtype in SCALED_FORMS:
            name = fp8_scale if dtype == FP8_WORDS else scale
            tensors.append(CacheTensor(name, rows, "float32"))
        window = self.window if self.slides else None
        return CacheSpec(CacheGroup(kind, page_size, window), tuple(tensors))

    def layout(self, layout: CacheLayout) -> KvLayout:
        return KvLayout.of(layout)


@dataclass(frozen=True)
class KvLayout:
    """The page tensor of a layer, [num_pages, 2, kv_heads, page_size, head_dim], and which of the
    step's page lists names its pages.

    8-bit pages have a second tensor, the scales f32[num_pages, 2, kv_heads, page_size].
    """

    page_size: int
    dtype: str
    """A float dtype, `INT8`, `INT8_WORDS` or `FP8_WORDS`."""
    kv_heads: int
    head_dim: int
    step: StepLayout
    group: int

    @property
    def is_int8(self) -> bool:
        """Whether pages are 8-bit integers, with scales."""
        return self.dtype in INT8_FORMS

    @property
    def is_fp8(self) -> bool:
        """Whether pages are 8-bit floats, with scales."""
        return self.dtype == FP8_WORDS

    @property
    def has_scales(self) -> bool:
        """Whether pages are 8-bit."""
        return self.dtype in SCALED_FORMS

    @property
    def tensors(self) -> tuple[CacheTensor, ...]:
        """The pages, and their scales."""
        shape = AttentionShape(self.kv_heads, self.kv_heads, self.head_dim, 1.0)
        return shape.cache_spec(self.page_size, self.dtype).tensors

    @classmethod
    def of(cls, layout: CacheLayout) -> KvLayout:
        """The layout of a layer with keys and values."""
        pages, *scales = layout.tensors
        _, kv_heads, page_size, width = pages.shape
        dtype = pages.dtype
        if scales and dtype == "uint32":
            dtype = FP8_WORDS if scales[0].name.endswith("_fp8") else INT8_WORDS
            width = 4 * width
        return cls(page_size, dtype, kv_heads, width, layout.step, layout.group)


@dataclass(frozen=True)
class PhysicalTensor:
    """One tensor of a packed weight; `suffix` is added to the checkpoint's name."""

    suffix: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class WeightLayout:
    """How one weight is stored, and the functions that pack it."""

    tensors: tuple[PhysicalTensor, ...]
    pack: Callable[[npt.NDArray[np.float32]], list[Array]]
    """Packs f32."""
    pack_quantized: Callable[[Quantized], list[Array]] | None = None
    """Packs codes that are already in the scheme, unchanged. None = the layout has no codes; the
    dequantized values are packed."""
    tile: int = 0
    """Rows per tile: both functions accept any number of whole tiles, and the last rows, and their
    results concatenate along the first axis. 0 = they accept all rows only."""

    @classmethod
    def vector(cls, shape: tuple[int, ...]) -> WeightLayout:
        """An unquantized float32 vector."""
        part = PhysicalTensor("", shape, "float32")
        return cls((part,), lambda weight: [weight.astype(np.float32)])


@dataclass(frozen=True)
class WeightPlan:
    """One weight: logical `shape`, quantized by `scheme`, stored as `layout`."""

    sources: tuple[str, ...]
    """Names of the model's tensors whose rows, one below the other, are this weight."""
    shape: tuple[int, ...]
    use: str
    """'matrix' (a linear reads it), 'table' (only looked up), 'experts' (several matrices, of
    which each row picks some) or 'vector'."""
    scheme: str
    layout: WeightLayout

    @property
    def name(self) -> str:
        """Name in the artifact: the source's own, or the sources' common parts with the differing
        ones joined."""
        if len(self.sources) == 1:
            return self.sources[0]
        parts = [name.split(".") for name in self.sources]
        columns = [list(dict.fromkeys(column)) for column in zip(*parts, strict=True)]
        return ".".join(_joined(column) for column in columns)

    def names(self) -> list[str]:
        """Names of the physical tensors in the artifact."""
        return [f"{self.name}{part.suffix}" for part in self.layout.tensors]


def _joined(differences: list[str]) -> str:
    """ "q_proj+k_proj"; consecutive numbers become "0-127"."""
    first = differences[0]
    if len(differences) > 2 and first.isdecimal():
        numbers = [str(int(first) + i) for i in range(len(differences))]
        if numbers == differences:
            return f"{first}-{differences[-1]}"
    return "+".join(differences)
