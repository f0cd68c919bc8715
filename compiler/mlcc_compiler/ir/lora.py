"""LoRA capacity (Hu et al., 2021): which linear layers adapters add to, and the parameters of the
adapter kernels. Plain data for passes and kernels.
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
    """Requested capacity: adapter slots and their largest rank."""

    rank: int
    slots: int = DEFAULT_SLOTS


@dataclass(frozen=True)
class LoraShape:
    """One site (linear layer), as its kernels are built for it."""

    inputs: int
    outputs: tuple[int, ...]
    """Output size of each module; the product has the modules side by side."""
    slots: int
    rank: int
    """Largest rank: the rows per module of `a`, all rows of `b`."""
    layout: StepLayout

    @classmethod
    def of(cls, site: AdapterSite, slots: int, rank: int, layout: StepLayout) -> LoraShape:
        return cls(site.inputs, site.outputs, slots, rank, layout)

    @property
    def rows(self) -> int:
        """Rows of `a`, columns of the product x a'."""
        return len(self.outputs) * self.rank

    @property
    def module_columns(self) -> list[int]:
        """First output column of each module."""
        return [sum(self.outputs[:part]) for part in range(len(self.outputs))]


def check_lora_limits(info: AdaptersInfo, target: Target) -> None:
    """Raises UnsupportedError if the arrays exceed a device's largest binding."""
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
