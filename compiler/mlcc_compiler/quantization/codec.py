"""Quantizes f32 matrices to codes and scales without data: entry point of the numpy codec.

Each family has its file (`one_level.py`, `k_quant.py`, `table.py`), whose `encode` takes whole rows
and returns a `Quantized`. Here rows are checked, cut into chunks whose temporaries stay in a core's
cache, and distributed over the cores. Deterministic: work is split by rows only.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.quantization import k_quant, native_search, one_level, table
from mlcc_compiler.quantization.quantized import PARTS, Quantized
from mlcc_compiler.quantization.schemes import Scheme

_CHUNK = 1 << 16  # weights per step: their temporaries stay in a core's L2 cache
_COMPILED_CHUNK = 1 << 18  # compiled searches have none to speak of


def quantize(
    weight: npt.NDArray[Any], scheme: Scheme, power: npt.NDArray[np.float32] | None = None
) -> Quantized:
    """Quantize f32 [N, K]. `power`, [K]: mean square of each input, the weight of errors where the
    family's search supports it.

    Raises UnsupportedError (group does not fit), CheckpointError (NaN).
    """
    if scheme.is_float:
        raise UnsupportedError(f"scheme '{scheme.name}' is a float format; store the matrix as it")
    n, k = weight.shape
    scheme.group_of(k)
    fast = native_search.pays(n * k)
    family = k_quant if scheme.block else one_level
    if scheme.table and not scheme.curve:
        family = table

    def run(rows: slice) -> Quantized:
        part = np.ascontiguousarray(weight[rows], np.float32)
        part = native_search.as_aligned(part) if fast else part
        if not np.isfinite([part.max(initial=0), part.min(initial=0)]).all():  # NaN if any is
            raise CheckpointError("a weight is NaN or infinite; the checkpoint is damaged")
        if family is k_quant:
            return k_quant.encode(part, scheme, power, fast=fast)
        if family is one_level:
            return one_level.encode(part, scheme, fast=fast)
        return table.encode(part, scheme)

    whole = run(slice(0, 0))
    parts = {
        name: np.empty((n, *part.shape[1:]), part.dtype)
        for name in PARTS
        if (part := getattr(whole, name)) is not None
    }

    def put(rows: slice) -> None:
        some = run(rows)
        for name, array in parts.items():
            array[rows] = getattr(some, name)

    step = max(1, (_COMPILED_CHUNK if fast else _CHUNK) // k)
    step -= step % 8 if step > 8 else 0  # whole vectors of the compiled searches
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(put, (slice(i, i + step) for i in range(0, n, step))))
    return Quantized(scheme, **parts)


def cores() -> int:
    """Cores available to this process, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
