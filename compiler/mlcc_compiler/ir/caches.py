"""What layers keep of the tokens they have seen: tensors, alike layers as a group, groups in order.

An operator that remembers carries a record as its attribute, from the model to its kernels; the
record says what is kept, and its class how the operator is lowered: `PagedRecord` or `StateRecord`.
Data, no TVM, and nothing else of the compiler imported.
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
    """One tensor that a layer keeps, [num_pages, *shape]; a page, or a state's slot, is `shape`."""

    name: str
    """In the manifest with the layer's number: kv.3."""
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class CacheSpec:
    """What a layer keeps. Layers that keep the same are a cache group."""

    group: CacheGroup
    tensors: tuple[CacheTensor, ...]

    def merge(self, other: CacheSpec) -> CacheSpec:
        """What a layer keeps that has two operators. Raises ValueError if the kinds differ."""
        if other.group != self.group:
            raise ValueError(f"one layer keeps {self.group} and {other.group}")
        return CacheSpec(self.group, self.tensors + other.tensors)


@dataclass(frozen=True)
class CacheLayout:
    """What kernels know of a layer's tensors: all of them, and in which group of a step they are.

    `LayerRecord.layout` makes of it what its kernels want (`layout.KvLayout`).
    """

    tensors: tuple[CacheTensor, ...]
    step: StepLayout
    group: int


@dataclass(frozen=True)
class LayerRecord(ABC):
    """The numbers of an operator that remembers, as they ride on its call in the graph.

    The call's last two arguments are the layer's number and the record's text.
    """

    operator: ClassVar[str]
    """As the function in `models/ops.py` is named; the class is found by it in `RECORDS`."""
    tensors: ClassVar[tuple[str, ...]]
    """Names of what it may keep, in order: the first always, others as its pages need them."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "operator" in vars(cls):
            RECORDS[cls.operator] = cls

    def to_json(self) -> str:
        """As the attribute of a call in the graph."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls: type[RecordType], text: str) -> RecordType:
        """The record that `text` wrote."""
        return cls(**json.loads(text))

    @abstractmethod
    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """What it keeps, in pages of `page_size` tokens, of `dtype` where it leaves the choice."""

    def layout(self, layout: CacheLayout) -> Any:
        """Its tensors as its kernels want to see them."""
        return layout


RECORDS: dict[str, type[LayerRecord]] = {}
"""The operators that remember: each class of records enters itself when it is defined."""


@dataclass(frozen=True)
class PagedRecord(LayerRecord):
    """Of an operator that keeps tokens in pages: the kernel `append` writes those of the step, then
    the emitter with the operator's name reads all."""

    append: ClassVar[str]
    queries: ClassVar[int] = 1
    """How many of the operator's tensors ask; the others are appended."""

    @property
    def num_queries(self) -> int:
        """`queries`, unless that depends on the numbers."""
        return self.queries

    @property
    def reads_shared_kv(self) -> bool:
        """Whether it reads what another operator of the layer appended earlier in the step."""
        return False


@dataclass(frozen=True)
class StateRecord(LayerRecord):
    """Of an operator that keeps one state a sequence: the kernel with its name reads `slot_in`,
    writes `slot_out` and makes the operator's value."""


@dataclass(frozen=True)
class CachePlan:
    """A cache group of a model: layers of one kind, each with the same tensors."""

    cache_spec: CacheSpec
    layers: tuple[int, ...]

    @property
    def group(self) -> CacheGroup:
        return self.cache_spec.group

    def info(self, pool: int, form: str = "rows") -> CacheInfo:
        """As the manifest has it, with a pool of so many pages; keys and values lie in that
        form."""
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
    """All cache groups of a model; a library takes their tensors in this order: group after group,
    in it layer after layer."""

    plans: tuple[CachePlan, ...]

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

    def locate(self, layer: int, name: str | None = None) -> tuple[int, int]:
        """(group, place among all tensors) of a layer's tensor of that name, or of its first."""
        before = 0
        for g, plan in enumerate(self.plans):
            names = [tensor.name for tensor in plan.cache_spec.tensors]
            if layer in plan.layers:
                index = 0 if name is None else names.index(name)
                return g, before + plan.layers.index(layer) * len(names) + index
            before += len(plan.layers) * len(names)
        raise KeyError(f"layer {layer} keeps nothing")

    def layer_tensors(self, layer: int, record: LayerRecord) -> tuple[int, tuple[CacheTensor, ...]]:
        """(place of the first among all tensors, tensors) of what a layer keeps for an operator."""
        g, first = self.locate(layer, record.tensors[0])
        tensors = self.plans[g].cache_spec.tensors
        return first, tuple(tensor for tensor in tensors if tensor.name in record.tensors)

    def infos(self, pools: Sequence[int], form: str = "rows") -> tuple[CacheInfo, ...]:
        """As the manifest has them."""
        return tuple(plan.info(pool, form) for plan, pool in zip(self.plans, pools, strict=True))
