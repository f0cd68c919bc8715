"""Weights that an earlier compile of the same checkpoint converted already, taken over as they are.

All GPU targets read the same bytes, so a second target needs code only. Files are linked where the
disk allows it. That they belong to this checkpoint is checked on a sample: every vector and the
smallest matrix are converted again and must be equal to the byte.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from mlcc.artifact import Artifact
from mlcc.errors import ArtifactError, UnsupportedError
from mlcc.manifest import WeightsInfo
from mlcc_compiler.checkpoint import Checkpoint
from mlcc_compiler.package import ArtifactWriter
from mlcc_compiler.passes.lower import WeightPlan
from mlcc_compiler.weights.convert import arrays_of, specs_of
from mlcc_compiler.weights.shards import plan_shards


def take_weights(
    writer: ArtifactWriter,
    folder: Path,
    plans: Sequence[WeightPlan],
    checkpoint: Checkpoint,
    sources: Mapping[str, str],
) -> WeightsInfo:
    """Put the shards of the artifact in `folder` into the one that is written.

    Raises ArtifactError (damaged), UnsupportedError (stored otherwise, or of other weights).
    """
    earlier = Artifact.open(folder, host=False)
    planned = plan_shards(specs_of(plans))
    if planned != earlier.manifest.weights.tensors:
        raise _refusal(
            folder,
            "its weights are stored otherwise (target "
            f"{earlier.manifest.target.name}, --quant {earlier.manifest.quantization.name})",
        )
    _check_sample(earlier, plans, checkpoint, sources)
    for shard in earlier.manifest.weights.shards:
        _link(folder / shard, writer.path(shard))
    return WeightsInfo(tensors=planned)


def _check_sample(
    earlier: Artifact,
    plans: Sequence[WeightPlan],
    checkpoint: Checkpoint,
    sources: Mapping[str, str],
) -> None:
    vectors = [plan for plan in plans if plan.use == "vector"]
    matrices = sorted((p for p in plans if p.use != "vector"), key=lambda p: prod(p.shape))
    sample = [*vectors, *matrices[:1]]
    stored = earlier.weights()
    names = [name for plan in sample for name in plan.names()]
    made = arrays_of(sample, checkpoint.tensors, sources, lambda done, total: None)
    for name, array in zip(names, made, strict=True):
        if stored[name].tobytes() != array.tobytes():
            raise _refusal(earlier.folder, f"it was compiled from other weights ('{name}' differs)")


def _link(source: Path, destination: Path) -> None:
    with contextlib.suppress(OSError):  # another disk, or a file system without links
        os.link(source, destination)
        return
    try:
        shutil.copyfile(source, destination)
    except FileNotFoundError as error:
        raise ArtifactError(f"{source}: is gone; compile without --reuse-weights") from error


def _refusal(folder: Path, reason: str) -> UnsupportedError:
    return UnsupportedError(f"{folder}: {reason}; leave out --reuse-weights {folder}")
