"""Linear layers on the CPU: the entry the kernel set calls, for every scheme.

    packing(n, k, scheme, isa)  -> shapes, `pack` and `unpack` of the weight
    linear(n, k, scheme, isa, bias) -> the PrimFunc that reads it
    needs_quantized_rows(scheme)    -> whether x goes through `quantize_rows` first

Schemes are given by name or as rows. See `linear_layout`, `linear_tile`, `linear_float`,
`linear_quantized` and `linear_rows`.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.linear_float import linear_float
from mlcc_compiler.kernels.cpu.linear_layout import Packing
from mlcc_compiler.kernels.cpu.linear_quantized import linear_quantized
from mlcc_compiler.kernels.cpu.linear_rows import quantize_rows
from mlcc_compiler.quantization import Scheme, scheme

__all__ = [
    "Packing",
    "linear",
    "linear_float",
    "linear_quantized",
    "needs_quantized_rows",
    "packing",
    "quantize_rows",
]


def packing(n_out: int, k: int, how: str | Scheme, isa: Isa) -> Packing:
    """The physical form of a weight [N, K]. Raises UnsupportedError if the group does not fit."""
    result = Packing(n_out, k, _row(how), isa)
    if not result.scheme.is_float:
        result.scheme.group_of(k)
    return result


def linear(n_out: int, k: int, how: str | Scheme, isa: Isa, bias: bool) -> Any:
    """The PrimFunc of `linear_float` or `linear_quantized`; their docstrings list parameters."""
    build = linear_float if _row(how).is_float else linear_quantized
    return build(n_out, k, _row(how), isa, bias)


def needs_quantized_rows(how: str | Scheme) -> bool:
    """Integer schemes read activations that `quantize_rows(k, scheme.group_of(k), isa)` made."""
    return not _row(how).is_float


def _row(how: str | Scheme) -> Scheme:
    return scheme(how) if isinstance(how, str) else how
