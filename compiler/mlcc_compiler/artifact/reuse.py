"""`--reuse-weights`: weights that an earlier compile of the same checkpoint converted.

All GPU targets read the same layout, so a second target needs code only: files are hard-linked
where they are equal, else tensors are copied, joined or cut by rows as the target's bindings
require. A sample verifies that they belong to this checkpoint: every vector and the smallest matrix
are converted again and must be equal to the byte.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mlcc.artifact.arrays import mapped
from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import TensorSpec, WeightsInfo, WeightSpec
from mlcc.errors import ArtifactError, UnsupportedError
from mlcc_compiler.artifact.package import ArtifactWriter
from mlcc_compiler.artifact.rank_weights import RankWeights
from mlcc_compiler.calibration.activation_stats import activation_statistics
from mlcc_compiler.calibration.dataset import token_rows
from mlcc_compiler.calibration.pipelined import pipelined_packing
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.options import RANDOM
from mlcc_compiler.plan import Plan
from mlcc_compiler.weights.convert import arrays_of, pack_stream, specs_of
from mlcc_compiler.weights.shards import plan_shards

_Spec = TypeVar("_Spec", TensorSpec, WeightSpec)


def link_weights(
    writer: ArtifactWriter,
    folder: Path,
    plans: Sequence[WeightPlan],
    plan: Plan,
) -> WeightsInfo:
    """Put the shards of the artifact in `folder` into the one being written.

    Raises ArtifactError (damaged), UnsupportedError (another layout, or other weights).
    """
    earlier = Artifact.open(folder, host=False)
    specs = specs_of(plans)
    stored = _Stored(earlier)
    if plan.options.calibrate not in (None, RANDOM):
        reason = f"its weights were rounded on a text ({plan.options.calibrate})"
        raise _refusal(folder, f"{reason}, which cannot be checked against the checkpoint")
    if not all(stored.has(rows) for rows in _by_tensor(specs).values()):
        raise _layout_error(folder, earlier.manifest)
    sample = _sample(plans)
    with contextlib.ExitStack() as stack:
        made = arrays_of(sample, plan.checkpoint.tensors, plan.sources, _silent)
        if plan.options.calibrate == RANDOM:  # as a compile goes about it, to give the same bits
            ahead = pipelined_packing(plan, plans, token_rows(plan, RANDOM))
            made = pack_stream(sample, stack.enter_context(ahead), _silent)
        _check(stored, folder, sample, made)
    planned = plan_shards(specs)
    if planned != earlier.manifest.weights.tensors:
        return writer.add_weights(specs, stored.cut(specs))
    for shard in earlier.manifest.weights.shards:
        _link(folder / shard, writer.path(shard))
    return WeightsInfo(tensors=planned)


def link_rank_weights(writer: ArtifactWriter, folder: Path, weights: RankWeights) -> None:
    """`link_weights` for a tensor-parallel model, whose shards must be laid out exactly as they
    would be written."""
    earlier = Artifact.open(folder, host=False)
    manifest = earlier.manifest
    if (manifest.weights, manifest.ranks) != (weights.weights, weights.ranks):
        raise _layout_error(folder, manifest)
    sample, plan, tensors, statistics = _sample(weights.plans), weights.plan, weights.tensors(0), {}
    if plan.options.calibrate == RANDOM:
        rows, names = token_rows(plan, RANDOM), sample[-1].sources
        statistics = tensors.of_columns(activation_statistics(plan, rows, _silent, names))
    made = arrays_of(sample, tensors, plan.sources, _silent, statistics)
    _check(_Stored(earlier), folder, sample, made)
    for shard in dict.fromkeys((*manifest.weights.shards, *chain(*weights.ranks.shards))):
        _link(folder / shard, writer.path(shard))


class _Stored:
    """The tensors of an artifact, joined from the parts they are stored in."""

    def __init__(self, artifact: Artifact) -> None:
        self._specs = _by_tensor(artifact.manifest.weights.tensors)
        self._arrays = mapped(artifact.weights())

    def has(self, rows: Sequence[TensorSpec]) -> bool:
        """Whether the parts `rows` of one tensor can be cut from the stored ones."""
        stored = self._specs.get(_tensor_of(rows[0].name), ())
        return bool(stored) and _layout_of(stored) == _layout_of(rows)

    def cut(self, specs: Sequence[TensorSpec]) -> Iterator[npt.NDArray[Any]]:
        """The arrays of `specs`, in their order. Memory: one tensor that is stored in parts."""
        taken: dict[str, int] = {}
        for spec in specs:
            name = _tensor_of(spec.name)
            first = taken.get(name, 0)
            taken[name] = first + int(spec.shape[0])
            yield self._rows(name)[first : taken[name]]

    def _rows(self, name: str) -> npt.NDArray[Any]:
        parts = [self._arrays[spec.name] for spec in self._specs[name]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _by_tensor(specs: Sequence[_Spec]) -> dict[str, list[_Spec]]:
    """Specs of parts under the name of their tensor."""
    found: dict[str, list[_Spec]] = {}
    for spec in specs:
        found.setdefault(_tensor_of(spec.name), []).append(spec)
    return found


def _tensor_of(name: str) -> str:
    """The tensor's name without the number of a part: "x.codes.0", "x.codes.1" are parts of
    "x.codes"."""
    return re.sub(r"\.\d+$", "", name)


def _layout_of(parts: Sequence[TensorSpec] | Sequence[WeightSpec]) -> tuple[int, object, str]:
    """Rows, shape of a row, and dtype of the tensor that the parts form."""
    return sum(int(p.shape[0]) for p in parts), tuple(parts[0].shape[1:]), parts[0].dtype


def _sample(plans: Sequence[WeightPlan]) -> list[WeightPlan]:
    """Every vector and, last, the smallest matrix."""
    vectors = [plan for plan in plans if plan.use == "vector"]
    matrices = sorted((p for p in plans if p.use != "vector"), key=lambda p: prod(p.shape))
    return [*vectors, *matrices[:1]]


def _check(
    stored: _Stored, folder: Path, sample: list[WeightPlan], made: Iterator[npt.NDArray[Any]]
) -> None:
    specs = specs_of(sample)
    for spec, array, expected in zip(specs, made, stored.cut(specs), strict=True):
        if expected.tobytes() != array.tobytes():
            reason = f"it was compiled from other weights ('{spec.name}' differs)"
            raise _refusal(folder, reason)


def _silent(done: int, total: int) -> None:
    """Progress callback that does nothing."""


def _link(source: Path, destination: Path) -> None:
    with contextlib.suppress(OSError):  # another disk, or a file system without links
        os.link(source, destination)
        return
    try:
        shutil.copyfile(source, destination)
    except FileNotFoundError as error:
        raise ArtifactError(f"{source}: is gone; compile without --reuse-weights") from error


def _layout_error(folder: Path, manifest: Manifest) -> UnsupportedError:
    ranks = f"--tp {manifest.ranks.count}, " if manifest.ranks else ""
    how = f"{ranks}target {manifest.target.name}, --quant {manifest.quantization.name}"
    return _refusal(folder, f"its weights are stored otherwise ({how})")


def _refusal(folder: Path, reason: str) -> UnsupportedError:
    return UnsupportedError(f"{folder}: {reason}; leave out --reuse-weights {folder}")
