"""Checks that a LoRA adapter fits a compiled model and places its matrices in the slot tensors.

Projections that the compiler merged (q, k, v) are one site: their rows of A are stacked, their
columns of B are side by side, in the order of the merged product.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlcc.artifact.schema import AdaptersInfo
from mlcc.engine.lora import AdapterMatrix
from mlcc.errors import ArtifactError
from mlcc.lora.peft import LoraData, LoraFolder, LoraPair
from mlcc.util.fast_dataclass import fast_dataclass

_MOST_NAMED = 3
"""Number of modules that an error message names."""


@fast_dataclass(frozen=True)
class FittedAdapter:
    """The matrices of an adapter, read and placed for an executor."""

    rank: int
    """The largest rank of its modules."""
    matrices: tuple[AdapterMatrix, ...]


def fitted(folder: LoraFolder, room: AdaptersInfo) -> FittedAdapter:
    """Read and place an adapter. Raises ArtifactError that names what does not fit."""
    check(folder, room)
    with folder.opened() as data:
        matrices = tuple(_matrices(folder, room, data))
    return FittedAdapter(max(pair.rank for pair in folder.pairs.values()), matrices)


def check(folder: LoraFolder, room: AdaptersInfo) -> None:
    """Raises ArtifactError for the first mismatch; reads no matrices."""
    sizes = {
        module: (site.inputs, outputs)
        for site in room.sites
        for module, outputs in zip(site.modules, site.outputs, strict=True)
    }
    config, pairs = folder.config, folder.pairs
    trained = f" (it was trained on '{config.base}')" if config.base else ""
    if unknown := [module for module in pairs if module not in sizes]:
        raise ArtifactError(
            f"{folder.path}: adapts {_named(unknown)}, which this model does not have or which is "
            f"no linear layer of its blocks{trained}"
        )
    for module, pair in pairs.items():
        given = pair.a.shape[1], pair.b.shape[0]
        if given != sizes[module]:
            raise ArtifactError(
                f"{folder.path}: is for another base{trained}: its {module} takes {given[0]} and "
                f"gives {given[1]}, this model's takes {sizes[module][0]} and gives "
                f"{sizes[module][1]}"
            )
        if pair.rank > room.rank:
            raise ArtifactError(
                f"{folder.path}: has rank {pair.rank}, and the model was compiled for ranks up to "
                f"{room.rank}; compile it again with `mlcc compile --adapter-rank {pair.rank}`"
            )
    if beside := [module for module in pairs if not config.targets.match(module)]:
        raise ArtifactError(
            f"{folder.path}: has matrices of {_named(beside)}, which its target_modules do not name"
        )
    named = config.targets.are_named
    wanted = [module for module in sizes if named and config.targets.match(module)]
    if missing := [module for module in wanted if module not in pairs]:
        raise ArtifactError(
            f"{folder.path}: has no matrices of {_named(missing)}, which its target_modules name"
        )


def _matrices(folder: LoraFolder, room: AdaptersInfo, data: LoraData) -> Iterator[AdapterMatrix]:
    for number, site in enumerate(room.sites):
        column = 0
        for part, (module, outputs) in enumerate(zip(site.modules, site.outputs, strict=True)):
            if (pair := folder.pairs.get(module)) is not None:
                yield _a(2 * number, part * room.rank, pair, data)
                yield _b(2 * number + 1, column, pair, data)
            column += outputs


def _a(tensor: int, row: int, pair: LoraPair, data: LoraData) -> AdapterMatrix:
    rank, inputs = pair.a.shape
    return AdapterMatrix(tensor, row, 0, rank, inputs, False, pair.a.dtype, data.read(pair.a))


def _b(tensor: int, column: int, pair: LoraPair, data: LoraData) -> AdapterMatrix:
    outputs, rank = pair.b.shape
    kept = data.read(pair.b)
    return AdapterMatrix(
        tensor, 0, column, rank, outputs, True, pair.b.dtype, kept, scale=pair.scale
    )


def _named(modules: list[str]) -> str:
    more = f" and {len(modules) - _MOST_NAMED} more" if len(modules) > _MOST_NAMED else ""
    return ", ".join(modules[:_MOST_NAMED]) + more
