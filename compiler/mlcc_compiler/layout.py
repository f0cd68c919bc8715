"""What models, passes, kernels and the writer of weights agree on: how a weight is stored, how
pages hold keys and values, and the numbers of a layer's attention.

The lowest module of the compiler: data, no TVM, and nothing else of the compiler imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.artifact.schema import CacheInfo, TensorSpec
from mlcc.engine.tables import CacheGroup, StepLayout

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
    """The page tensor of a layer, [num_pages, 2, kv_heads, page_size, head_dim], and which of the
    step's page lists names its pages."""

    page_size: int
    dtype: str
    kv_heads: int
    head_dim: int
    step: StepLayout
    group: int

    @property
    def page_shape(self) -> tuple[int, int, int, int]:
        return (2, self.kv_heads, self.page_size, self.head_dim)


@dataclass(frozen=True)
class CachePlan:
    """A cache group of a model: layers of one kind, each with the same tensors."""

    group: CacheGroup
    layers: tuple[int, ...]
    dtype: str
    kv_heads: int
    head_dim: int

    def info(self, pool: int) -> CacheInfo:
        """As the manifest has it, with a pool of so many pages."""
        shape = ("num_pages", 2, self.kv_heads, self.group.page_size, self.head_dim)
        return CacheInfo(
            kind=self.group.kind,
            page_size=self.group.page_size,
            window=self.group.window,
            pool=pool,
            layers=self.layers,
            tensors=tuple(
                TensorSpec(name=f"kv.{i}", dtype=self.dtype, shape=shape) for i in self.layers
            ),
        )


@dataclass(frozen=True)
class Caches:
    """All cache groups of a model; a library takes their tensors in this order."""

    plans: tuple[CachePlan, ...]

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        return tuple(plan.group for plan in self.plans)

    @property
    def count(self) -> int:
        """Tensors in all."""
        return sum(len(plan.layers) for plan in self.plans)

    def place(self, layer: int) -> tuple[int, int]:
        """(group, place among all tensors) of a layer."""
        before = 0
        for g, plan in enumerate(self.plans):
            if layer in plan.layers:
                return g, before + plan.layers.index(layer)
            before += len(plan.layers)
        raise KeyError(f"layer {layer} keeps nothing")

    def layout(self, group: int, step: StepLayout) -> KvLayout:
        """What kernels know of a group's pages."""
        plan = self.plans[group]
        size = plan.group.page_size
        return KvLayout(size, plan.dtype, plan.kv_heads, plan.head_dim, step, group)

    def infos(self, pools: Sequence[int]) -> tuple[CacheInfo, ...]:
        """As the manifest has them."""
        return tuple(plan.info(pool) for plan, pool in zip(self.plans, pools, strict=True))


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
    """'matrix' (a linear reads it), 'table' (only looked up), 'experts' (several matrices, of
    which each row picks some) or 'vector'."""
    scheme: str
    layout: WeightLayout

    @property
    def name(self) -> str:
        """In the artifact: the sources' own, or what they share with their differences joined."""
        if len(self.sources) == 1:
            return self.sources[0]
        parts = [name.split(".") for name in self.sources]
        columns = [list(dict.fromkeys(column)) for column in zip(*parts, strict=True)]
        return ".".join(_joined(column) for column in columns)

    def names(self) -> list[str]:
        """Names of the physical tensors in the artifact."""
        return [f"{self.name}{part.suffix}" for part in self.layout.tensors]


def _joined(differences: list[str]) -> str:
    """ "q_proj+k_proj", and of numbers that follow one another "0-127"."""
    first = differences[0]
    if len(differences) > 2 and first.isdecimal():
        numbers = [str(int(first) + i) for i in range(len(differences))]
        if numbers == differences:
            return f"{first}-{differences[-1]}"
    return "+".join(differences)
