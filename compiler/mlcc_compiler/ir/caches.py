"""Cache groups: which tensors each layer keeps between steps; layers with equal tensors form a
group.

A stateful operator carries a record as its attribute, from the model to its kernels. The record
names the tensors; its class decides the lowering: `PagedRecord` or `StateRecord`. Plain data: no
TVM, no other module of the compiler.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

from mlcc.artifact.schema import CacheInfo, TensorSpec
from mlcc.engine.batch.tables import CacheGroup, StepLayout

RecordType = TypeVar("RecordType", bound="LayerRecord")


@dataclass(frozen=True)
class CacheTensor:
    """One cache tensor of a layer, [num_pages, *shape]; `shape` is one page, or one state's
    slot."""

    name: str
    """Prefix of the name in the manifest, which adds the layer's number: kv.3."""
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class CacheSpec:
    """The cache tensors of a layer. Layers with equal specs form a cache group."""

    group: CacheGroup
    tensors: tuple[CacheTensor, ...]

    def merge(self, other: CacheSpec) -> CacheSpec:
        """The spec of a layer with two stateful operators. Raises ValueError if their groups
        differ."""
        if other.group != self.group:
            raise ValueError(f"one layer keeps {self.group} and {other.group}")
        return CacheSpec(self.group, self.tensors + other.tensors)


@dataclass(frozen=True)
class CacheLayout:
    """A layer's cache tensors and their group in a step, for kernels.

    `LayerRecord.layout` converts it to the form its kernels take (`layout.KvLayout`).
    """

    tensors: tuple[CacheTensor, ...]
    step: StepLayout
    group: int


@dataclass(frozen=True)
class LayerRecord(ABC):
    """Parameters of a stateful operator, carried as an attribute of its call in the graph.

    The call's last two arguments are the layer's number and the record as JSON.
    """

    operator: ClassVar[str]
    """Name of the function in `models/ops.py`; key of the class in `RECORDS`."""
    tensors: ClassVar[tuple[str, ...]]
    """Names of the cache tensors, in order: the first always exists, others as the page dtype
    requires."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "operator" in vars(cls):
            RECORDS[cls.operator] = cls

    def to_json(self) -> str:
        """The attribute of a call in the graph."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls: type[RecordType], text: str) -> RecordType:
        """The record of such an attribute."""
        return cls(**json.loads(text))

    @abstractmethod
    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """The cache tensors, in pages of `page_size` tokens, of `dtype` where the operator leaves
        the choice."""

    def layout(self, layout: CacheLayout) -> Any:
        """The layer's tensors in the form its kernels take."""
        return layout


RECORDS: dict[str, type[LayerRecord]] = {}
"""Stateful operators: each record class registers itself when it is defined."""


@dataclass(frozen=True)
class PagedRecord(LayerRecord):
    """An operator with paged tokens: the kernel `append` writes the step's tokens, then the emitter
    of the operator's name reads all pages."""

    append: ClassVar[str]
    queries: ClassVar[int] = 1
    """Number of leading operands that are queries; the others are appended."""

    @property
    def num_queries(self) -> int:
        """`queries`, unless the record's parameters change it."""
        return self.queries

    @property
    def reads_shared_kv(self) -> bool:
        """Whether it reads pages that another layer's operator appended earlier in the step."""
        return False


@dataclass(frozen=True)
class StateRecord(LayerRecord):
    """An operator with one state per sequence: the kernel of its name reads slot `slot_in`, writes
    slot `slot_out` and computes the operator's value."""


@dataclass(frozen=True)
class CachePlan:
    """A cache group of a model: its layers and their common tensors."""

    cache_spec: CacheSpec
    layers: tuple[int, ...]

    @property
    def group(self) -> CacheGroup:
        return self.cache_spec.group

    def info(self, pool: int, form: str = "rows") -> CacheInfo:
        """The group's record in the manifest, for a pool of `pool` pages; `form` is the arrangement
        of keys and values."""
        return CacheInfo(
            kind=self.group.kind,
            page_size=self.group.page_size,
            window=self.group.window,
            pool=pool,
            layers=self.layers,
            tensors=tuple(
                TensorSpec(name=f"{t.name}.{i}", dtype=t.dtype, shape=("num_pages", *t.shape))
                for i in self.layers
                for t in self.cache_spec.tensors
            ),
            form=form if any(t.name == "kv" for t in self.cache_spec.tensors) else "rows",
        )


@dataclass(frozen=True)
class Caches:
    """All cache groups of a model. A library takes their tensors in this order: group after group,
    and layer after layer within a group."""

    plans: tuple[CachePlan, ...]
    embeddings: int = 0
    """Width of the rows that the host writes in place of tokens, and of hidden states, behind all
    tensors; 0 = none."""
    mtp_layers: tuple[int, ...] = ()
    """Layers that only `forward_mtp` computes."""

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        return tuple(plan.group for plan in self.plans)

    @property
    def tensors(self) -> tuple[tuple[int, CacheTensor], ...]:
        """(group, tensor) of each tensor of the library."""
        return tuple(
            (g, tensor)
            for g, plan in enumerate(self.plans)
            for _ in plan.layers
            for tensor in plan.cache_spec.tensors
        )

    @property
    def mtp_tensors(self) -> int:
        """Number of tensors of the layers that only `forward_mtp` computes."""
        return sum(
            len(plan.cache_spec.tensors)
            for plan in self.plans
            for layer in plan.layers
            if layer in self.mtp_layers
        )

    def locate(self, layer: int, name: str | None = None) -> tuple[int, int]:
        """(group, index among all tensors) of a layer's tensor of that name, or of its first."""
        before = 0
        for g, plan in enumerate(self.plans):
            names = [tensor.name for tensor in plan.cache_spec.tensors]
            if layer in plan.layers:
                index = 0 if name is None else names.index(name)
                return g, before + plan.layers.index(layer) * len(names) + index
            before += len(plan.layers) * len(names)
        raise KeyError(f"layer {layer} keeps nothing")

    def layer_tensors(self, layer: int, record: LayerRecord) -> tuple[int, tuple[CacheTensor, ...]]:
        """(index of the first among all tensors, tensors) that a layer keeps for an operator."""
        g, first = self.locate(layer, record.tensors[0])
        tensors = self.plans[g].cache_spec.tensors
        return first, tuple(tensor for tensor in tensors if tensor.name in record.tensors)

    def infos(self, pools: Sequence[int], form: str = "rows") -> tuple[CacheInfo, ...]:
        """The groups' records in the manifest."""
        return tuple(plan.info(pool, form) for plan, pool in zip(self.plans, pools, strict=True))
