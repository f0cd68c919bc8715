"""Converts weights: reads each tensor of the checkpoint, checks it, and packs it for its kernel.

Streaming: where reader and layout support it, a matrix is read and packed by rows, the next rows
being read in a thread meanwhile; the next weight is packed while the previous one is written.
Elsewhere one tensor of the checkpoint is in memory at a time, or all that are stored as one. A
tensor whose checkpoint scheme equals the wanted one is packed unchanged, with its codes and scales;
any other is dequantized to float32 and quantized anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import lcm
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.artifact.schema import TensorSpec
from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.safetensors import RowReadable, Tensors, supports_rows
from mlcc_compiler.ir.layout import PhysicalTensor, WeightLayout, WeightPlan
from mlcc_compiler.quantization import Quantized, dequantize, quantize, scheme, stack
from mlcc_compiler.quantization.floats import from_storage, to_storage

Floats = npt.NDArray[np.float32]

Pack = Callable[[WeightPlan, Callable[[int], None]], list[npt.NDArray[Any]]]
"""(weight, progress callback) -> its arrays, in the order of its layout."""

F16_MAX = 65504.0
ROWS_AT_A_TIME = 1 << 22
"""Weights read and packed at a time. More would be new memory from the system, which clears it each
time.
"""
TILES = 128
"""Rows per piece are a multiple of this, whole tiles of most layouts: so pieces, and the last bits
of products, are the same for all of them.
"""


def specs_of(plans: Sequence[WeightPlan]) -> list[TensorSpec]:
    """Name, dtype and shape of every physical tensor, in the order of `forward`."""
    return [
        TensorSpec(name=name, dtype=part.dtype, shape=part.shape)
        for plan in plans
        for name, part in zip(plan.names(), plan.layout.tensors, strict=True)
    ]


def arrays_of(
    plans: Sequence[WeightPlan],
    tensors: Tensors,
    sources: Mapping[str, str],
    progress: Callable[[int, int], None],
    statistics: Mapping[str, Floats] = MappingProxyType({}),
) -> Iterator[npt.NDArray[Any]]:
    """The arrays of `specs_of`.

    statistics: `mean_squares` of the inputs, for checkpoint tensors where they are known. Raises
    CheckpointError or UnsupportedError for a bad number.
    """

    def pack(plan: WeightPlan, report: Callable[[int], None]) -> list[npt.NDArray[Any]]:
        power = statistics.get(sources[plan.sources[0]])  # one product's sources read one input
        return pack_weight(plan, tensors, sources, report, power)

    return pack_stream(plans, pack, progress)


def pack_stream(
    plans: Sequence[WeightPlan], pack: Pack, progress: Callable[[int, int], None]
) -> Iterator[npt.NDArray[Any]]:
    """The arrays of each weight as `pack` makes them; the next weight is packed in a thread
    meanwhile."""
    weights = [int(np.prod(plan.shape)) for plan in plans]
    total = sum(weights)
    progress(0, total)
    with ThreadPoolExecutor(1, "mlcc-weights") as thread:
        pending = None
        for i, plan in enumerate(plans):
            report = partial(_report, progress, sum(weights[:i]), total)
            current = pending
            pending = thread.submit(pack, plan, report)
            if current is not None:
                yield from current.result()
                del current
        if pending is not None:
            yield from pending.result()
    progress(total, total)


def _report(progress: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    progress(before + done, total)


def pack_weight(
    plan: WeightPlan,
    tensors: Tensors,
    sources: Mapping[str, str],
    progress: Callable[[int], None],
    power: Floats | None = None,
    on_rows: Callable[[Floats], None] = lambda rows: None,
) -> list[npt.NDArray[Any]]:
    """The arrays of one weight, for inputs of mean squares `power`, if they are known.

    on_rows: called with the float rows as they are read, in order; not for tensors kept in codes.
    """
    names = [sources[name] for name in plan.sources]
    codes = plan.layout.pack_quantized
    if codes is not None and all(tensors.schemes.get(name) == plan.scheme for name in names):
        found = [tensors.quantized(name) for name in names]
        for name, matrix in zip(names, found, strict=True):
            matrix.check(name)
        return codes(stack(found))

    def pack(weight: Floats) -> list[npt.NDArray[Any]]:
        on_rows(weight)
        if codes is None or power is None:
            return plan.layout.pack(weight)
        return codes(quantize(weight, scheme(plan.scheme), power))

    if plan.layout.tile and len(plan.shape) == 2 and supports_rows(tensors):
        return _by_rows(plan, pack, _pieces(plan, tensors, names, progress))
    return pack(_whole(plan, tensors, sources))


def _by_rows(
    plan: WeightPlan,
    pack: Callable[[Floats], list[npt.NDArray[Any]]],
    pieces: Iterable[Floats],
) -> list[npt.NDArray[Any]]:
    """Pack a matrix some whole tiles at a time; only the packed arrays exist in full."""
    arrays = [np.empty(part.shape, part.dtype) for part in plan.layout.tensors]
    first = 0
    for weight in pieces:
        for whole, part in zip(arrays, pack(weight), strict=True):
            whole[first // plan.layout.tile :][: len(part)] = part
        first += len(weight)
    return arrays


def _pieces(
    plan: WeightPlan, tensors: RowReadable, names: Sequence[str], progress: Callable[[int], None]
) -> Iterator[Floats]:
    """The rows of a matrix, some whole tiles at a time."""
    k, tile, done = plan.shape[1], lcm(plan.layout.tile, TILES), 0
    step = max(ROWS_AT_A_TIME // k // tile, 1) * tile
    for weight in prefetched_rows(tensors, names, step, plan.scheme):
        yield weight
        done += weight.size
        progress(done)


def prefetched_rows(
    tensors: RowReadable, names: Sequence[str], step: int, scheme_name: str
) -> Iterator[Floats]:
    """The rows of tensors, one below the other, `step` at a time, checked; the next ones are read
    in a thread meanwhile."""
    lengths = [tensors.shapes[name][0] for name in names]

    def read(first: int) -> Floats:
        parts, start = [], 0
        for name, length in zip(names, lengths, strict=True):
            rows = slice(max(first - start, 0), min(first + step - start, length))
            if rows.start < rows.stop:
                parts.append(tensors.read_rows(name, rows))
                check_finite(name, parts[-1], scheme_name)
            start += length
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    with ThreadPoolExecutor(1) as thread:
        pending = thread.submit(read, 0)
        for after in range(step, sum(lengths) + step, step):
            weight = pending.result()
            if after < sum(lengths):
                pending = thread.submit(read, after)
            yield weight


def _whole(plan: WeightPlan, tensors: Tensors, sources: Mapping[str, str]) -> Floats:
    """A weight's source tensors, one below the other."""
    whole, first = None, 0
    for name in plan.sources:
        part = tensors.read(sources[name])
        check_finite(sources[name], part, plan.scheme)
        if len(plan.sources) == 1:
            return part
        if whole is None:  # experts are many and large: never twice in memory
            rows = int(np.prod(plan.shape)) // int(np.prod(part.shape[1:]))
            whole = np.empty((rows, *part.shape[1:]), np.float32)
        whole[first : first + len(part)] = part
        first += len(part)
    assert whole is not None and first == len(whole)
    return whole


def check_finite(name: str, weight: Floats, scheme_name: str) -> None:
    """Refuse NaN and infinity, and values beyond float16 for scheme f16."""
    peak = float(np.maximum(weight.max(), -weight.min()))  # NaN if any is
    if not np.isfinite(peak):
        raise CheckpointError(
            f"tensor '{name}' holds NaN or infinity; the checkpoint is damaged, fetch it again"
        )
    if scheme_name == "f16" and peak > F16_MAX:
        raise UnsupportedError(
            f"tensor '{name}' holds {peak:.4g}, more than float16's {F16_MAX:.0f}; use --quant bf16"
        )


def plain_layout(shape: tuple[int, ...], scheme_name: str) -> WeightLayout:
    """Float32 storage after rounding through the scheme: the weights of the reference target."""

    row = scheme(scheme_name)

    def pack(weight: Floats) -> list[npt.NDArray[Any]]:
        if row.is_float:
            return [from_storage(to_storage(weight, row.dtype), row.dtype)]
        return [dequantize(quantize(weight, row))]

    def pack_quantized(q: Quantized) -> list[npt.NDArray[Any]]:
        return [dequantize(q)]

    tensors = (PhysicalTensor("", shape, "float32"),)
    return WeightLayout(tensors, pack, None if row.is_float else pack_quantized)
