"""Room for low-rank adapters (LoRA; Hu et al., 2021): which products of a graph they add to, and
the numbers that its kernels are built with. Data alone: what passes and kernels hand on.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.artifact.schema import AdaptersInfo, AdapterSite
from mlcc.engine.batch.tables import StepLayout
from mlcc.errors import UnsupportedError
from mlcc_targets import Target

DEFAULT_SLOTS = 8


@dataclass(frozen=True)
class LoraConfig:
    """What a compile is asked for."""

    rank: int
    slots: int = DEFAULT_SLOTS


@dataclass(frozen=True)
class LoraShape:
    """One site, as its kernels are built for it."""

    inputs: int
    outputs: tuple[int, ...]
    """Of each module; the product has them side by side."""
    slots: int
    rank: int
    """For which there is room: the rows of a module in `a`, all rows of `b`."""
    layout: StepLayout

    @classmethod
    def of(cls, site: AdapterSite, slots: int, rank: int, layout: StepLayout) -> LoraShape:
        return cls(site.inputs, site.outputs, slots, rank, layout)

    @property
    def rows(self) -> int:
        """Of `a`, and columns of what it makes of x."""
        return len(self.outputs) * self.rank

    @property
    def module_columns(self) -> list[int]:
        """The first column of each module."""
        return [sum(self.outputs[:part]) for part in range(len(self.outputs))]


def check_lora_limits(info: AdaptersInfo, target: Target) -> None:
    """Raises UnsupportedError for more than a device's kernels may bind, or the target runs."""
    if not info.sites:
        raise UnsupportedError("the model has no linear layer that adapters could add to")
    most = target.limits.get("storage_binding_bytes", 4 << 31)
    largest = max(4 * a * b * c for a, b, c in info.shapes)
    if largest > most or largest // 4 >= 1 << 31:
        raise UnsupportedError(
            f"{info.slots} slots of rank {info.rank} need an array of {largest >> 20} MiB, and "
            f"target '{target.name}' binds up to {most >> 20}; use a smaller --adapter-rank or "
            "fewer --lora-slots"
        )
