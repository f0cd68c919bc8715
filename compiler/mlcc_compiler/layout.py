"""What models, passes, kernels and the writer of weights agree on: how a weight is stored, how
pages hold keys and values, and the numbers of a layer's attention.

The lowest module of the compiler: data, no TVM, and nothing else of the compiler imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.manifest import DTYPE_BYTES

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class AttentionShape:
    """The numbers of one layer's attention, from the model to the kernel."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    """What q . k is multiplied with."""
    window: int | None = None
    """Keys that a query sees, itself included; None = all before it."""
    softcap: float | None = None
    """Scores become cap * tanh(score / cap); None = they stay."""

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads

    def text(self) -> str:
        """As the attribute of a call in the graph."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> AttentionShape:
        """The shape that `text` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class KvLayout:
    """The page tensors: one per layer, [num_pages, 2, kv_heads, page_size, head_dim]."""

    page_size: int
    dtype: str
    layers: int
    kv_heads: int
    head_dim: int

    @property
    def page_shape(self) -> tuple[int, int, int, int]:
        return (2, self.kv_heads, self.page_size, self.head_dim)

    @property
    def bytes_per_token(self) -> int:
        return self.layers * 2 * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]


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

    @classmethod
    def vector(cls, shape: tuple[int, ...]) -> WeightLayout:
        """As it is, in float32."""
        part = PhysicalTensor("", shape, "float32")
        return cls((part,), lambda weight: [weight.astype(np.float32)])


@dataclass(frozen=True)
class WeightPlan:
    """One weight: logical `shape`, quantized by `scheme`, stored as `layout`."""

    sources: tuple[str, ...]
    """Names of the model's tensors whose rows, one below the other, are this weight."""
    shape: tuple[int, ...]
    use: str
    """'matrix' (a linear reads it), 'table' (only looked up) or 'vector'."""
    scheme: str
    layout: WeightLayout

    @property
    def name(self) -> str:
        """In the artifact: the sources' own, or what they share with their differences joined."""
        if len(self.sources) == 1:
            return self.sources[0]
        parts = [name.split(".") for name in self.sources]
        columns = [list(dict.fromkeys(column)) for column in zip(*parts, strict=True)]
        return ".".join("+".join(column) for column in columns)

    def names(self) -> list[str]:
        """Names of the physical tensors in the artifact."""
        return [f"{self.name}{part.suffix}" for part in self.layout.tensors]
