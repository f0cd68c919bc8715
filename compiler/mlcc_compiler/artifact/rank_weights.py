"""Weights of a tensor-parallel model: shards that all ranks read, and shards of each rank.

Packing is the same as for one process, applied to a rank's part of the tensors.
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
    """The weights to write for a plan, and their shards."""

    plan: Plan
    split: Split
    plans: Sequence[WeightPlan]

    @property
    def sources(self) -> dict[str, str]:
        return self.plan.sources

    @cached_property
    def shared(self) -> list[WeightPlan]:
        """Weights that all ranks read."""
        return [p for p in self.plans if not self._is_split(p)]

    @cached_property
    def split_plans(self) -> list[WeightPlan]:
        """Weights of which each rank has a part."""
        return [p for p in self.plans if self._is_split(p)]

    @cached_property
    def weights(self) -> WeightsInfo:
        """Rank 0's weights, in the order of `forward`."""
        planned = (*plan_shards(specs_of(self.shared)), *self._planned(0))
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
        """The checkpoint's tensors as a rank sees them."""
        parts = {self.sources[name]: part for name, part in self.split.parts.items()}
        aliases = {name: self.sources[table] for name, table in self.split.head_aliases.items()}
        return rank_tensors(self.plan.checkpoint.tensors, parts, aliases, rank, self.split.ranks)

    def write(
        self,
        writer: ArtifactWriter,
        beside: Callable[[Arrays], Iterator[npt.NDArray[Any]]],
        progress: Callable[[int, int], None],
        statistics: Mapping[str, Floats],
    ) -> None:
        """Write all shards. `beside` wraps each iterator of arrays; `statistics` are those of
        `arrays_of`, for whole tensors."""
        shared, split_plans = (
            sum(prod(p.shape) for p in plans) for plans in (self.shared, self.split_plans)
        )
        total = shared + self.split.ranks * split_plans

        def add(plans: list[WeightPlan], rank: int, before: int, prefix: str) -> None:
            report = partial(_report, progress, before, total)
            tensors = self.tensors(rank)
            rank_statistics = tensors.of_columns(statistics)
            arrays = arrays_of(plans, tensors, self.sources, report, rank_statistics)
            writer.add_weights(specs_of(plans), beside(arrays), prefix=prefix)

        add(self.shared, 0, 0, "weights")
        for rank in range(self.split.ranks):
            add(self.split_plans, rank, shared + rank * split_plans, _prefix(rank))

    def _planned(self, rank: int) -> Any:
        return plan_shards(specs_of(self.split_plans), prefix=_prefix(rank))

    def _is_split(self, plan: WeightPlan) -> bool:
        return any(name in self.split.parts for name in plan.sources)


def _prefix(rank: int) -> str:
    return f"rank{rank}-weights"


def _report(
    progress: Callable[[int, int], None], before: int, total: int, done: int, part: int
) -> None:
    progress(before + done, total)
