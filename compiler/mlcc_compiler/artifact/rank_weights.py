"""The weights of a model of several ranks: shards that all read, and shards of each.

Nothing is packed otherwise than for one process; a rank's tensors are read as its part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.artifact.schema import RanksInfo, WeightsInfo
from mlcc_compiler.artifact.package import ArtifactWriter
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.plan import Plan
from mlcc_compiler.tensor_parallel.parts import RankTensors, rank_tensors
from mlcc_compiler.tensor_parallel.split import Split
from mlcc_compiler.weights.convert import arrays_of, specs_of
from mlcc_compiler.weights.shards import plan_shards

Floats = npt.NDArray[np.float32]
Arrays = Iterable[npt.NDArray[Any]]


@dataclass(frozen=True)
class RankWeights:
    """What is to be written of a plan, and where."""

    plan: Plan
    split: Split
    plans: Sequence[WeightPlan]

    @property
    def sources(self) -> dict[str, str]:
        return self.plan.sources

    @cached_property
    def whole(self) -> list[WeightPlan]:
        """What all ranks read."""
        return [p for p in self.plans if not self._is_own(p)]

    @cached_property
    def own(self) -> list[WeightPlan]:
        """What each rank has its part of."""
        return [p for p in self.plans if self._is_own(p)]

    @cached_property
    def weights(self) -> WeightsInfo:
        """Rank 0's, in the order of `forward`."""
        planned = (*plan_shards(specs_of(self.whole)), *self._planned(0))
        of = {spec.name: spec for spec in planned}
        return WeightsInfo(tensors=tuple(of[spec.name] for spec in specs_of(self.plans)))

    @cached_property
    def ranks(self) -> RanksInfo:
        shards = (
            tuple(dict.fromkeys(spec.shard for spec in self._planned(rank)))
            for rank in range(self.split.ranks)
        )
        return RanksInfo(shards=tuple(shards))

    def tensors(self, rank: int) -> RankTensors:
        """The checkpoint's as a rank sees them."""
        parts = {self.sources[name]: part for name, part in self.split.parts.items()}
        aliases = {name: self.sources[table] for name, table in self.split.beside.items()}
        return rank_tensors(self.plan.checkpoint.tensors, parts, aliases, rank, self.split.ranks)

    def write(
        self,
        writer: ArtifactWriter,
        beside: Callable[[Arrays], Iterator[npt.NDArray[Any]]],
        progress: Callable[[int, int], None],
        sizes: Mapping[str, Floats],
    ) -> None:
        """`beside`: what arrays go through on their way; `sizes`: as `arrays_of` takes them, of
        whole tensors."""
        whole, own = (sum(prod(p.shape) for p in plans) for plans in (self.whole, self.own))
        total = whole + self.split.ranks * own

        def add(plans: list[WeightPlan], rank: int, before: int, prefix: str) -> None:
            told = partial(_tell, progress, before, total)
            tensors = self.tensors(rank)
            own_sizes = tensors.of_columns(sizes)
            arrays = arrays_of(plans, tensors, self.sources, told, own_sizes)
            writer.add_weights(specs_of(plans), beside(arrays), prefix=prefix)

        add(self.whole, 0, 0, "weights")
        for rank in range(self.split.ranks):
            add(self.own, rank, whole + rank * own, _prefix(rank))

    def _planned(self, rank: int) -> Any:
        return plan_shards(specs_of(self.own), prefix=_prefix(rank))

    def _is_own(self, plan: WeightPlan) -> bool:
        return any(name in self.split.parts for name in plan.sources)


def _prefix(rank: int) -> str:
    return f"rank{rank}-weights"


def _tell(
    progress: Callable[[int, int], None], before: int, total: int, done: int, part: int
) -> None:
    progress(before + done, total)
