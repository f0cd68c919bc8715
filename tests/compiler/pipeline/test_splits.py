"""Splits into unequal parts, which TVM schedules wrongly on GPUs, are refused before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import relax
from mlcc_compiler.ir.graph import tensor
from mlcc_compiler.passes.check_splits import check_splits


def split_at(ends: Sequence[int]) -> Any:
    """A module that splits 8 columns."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor([4, 8]))
    with builder.function("forward", [x]):
        with builder.dataflow():
            parts = builder.emit(relax.op.split(x, list(ends), axis=1))
            out = builder.emit_output(relax.TupleGetItem(parts, 0))
        builder.emit_func_output(out)
    return builder.get()


def test_unequal_parts_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"4x8 into 4x3, 4x5: .* ops\.take_parts"):
        check_splits(split_at([3]))


def test_equal_parts_pass() -> None:
    check_splits(split_at([4]))
