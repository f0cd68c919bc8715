"""Kernels read a step's columns at the layout's offsets, floats by their bits, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.engine.batch.batch import Batch, BatchWriter
from mlcc.engine.batch.tables import FLOATS, ROWS, StepLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Argument, Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.gpu.workgroup import launch
from mlcc_compiler.kernels.step import Step, step_argument
from tests.compiler.kernels.cases import cpu_kernels, gpu_kernels
from tests.compiler.kernels.cases.step import LAYOUTS, sample_step, token_step, words_of

RUNS = {"cpu": cpu_kernels.run, "gpu": gpu_kernels.run}
SEQUENCES = [[5, 6, 7], [8], [9, 10]]


def read_table(device: Any, layout: StepLayout, name: str) -> PrimFunc:
    """(step) -> each column of a table, [entries]."""
    table = getattr(layout, name)

    def body(words: Expr, *outputs: Expr) -> None:
        step = Step(layout, words)
        read = {"tokens": step.token, "rows": step.row, "sequences": step.sequence}.get(name)

        def entry(i: Expr) -> None:
            for column, out in zip(table.columns, outputs, strict=True):
                store(out, (read or step.copy)(i, column), i)

        if isinstance(device, gpu_kernels.Gpu):
            with launch((outputs[0].shape[0],), (1,)) as (i, _):
                entry(i)
        else:
            with T.serial(outputs[0].shape[0]) as i:
                entry(i)

    columns = {f"c{i}": Argument(("n",), _kind(c)) for i, c in enumerate(table.columns)}
    return kernel(body, step=step_argument(layout), **columns)


def _kind(column: str) -> str:
    return "float32" if column in FLOATS else "int32"


def read(device: str, batch: Batch, name: str, count: int) -> list[Any]:
    table = getattr(batch.layout, name)
    outputs = [((count,), _kind(column)) for column in table.columns]
    return RUNS[device](read_table, (batch.layout, name), [words_of(batch)], outputs)


ON_GPU = pytest.mark.needs("g++", "lavapipe")


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=ON_GPU)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns(device: str, layout: StepLayout) -> None:
    batch = token_step(layout, SEQUENCES)
    counts = {"tokens": batch.num_tokens, "rows": batch.num_rows, "sequences": len(SEQUENCES) + 1}
    for name, count in counts.items():
        table = getattr(layout, name)
        found = read(device, batch, name, count)
        for column, values in zip(table.columns, found, strict=True):
            assert values.tolist() == batch.column(table, column), column
    writer = BatchWriter(layout)
    writer.copy(0, 5, 9)
    assert [int(c[0]) for c in read(device, writer.finish(), "copies", 1)] == [0, 5, 9]


EXTREMES = [
    (3.4028235e38, 2**31 - 1, -3.4028235e38, -0.0, 1 - 2**-24),
    (1.1754944e-38, -(2**31), float("inf"), -float("inf"), 0.0),
]
SUBNORMAL = [(1e-45, 1, -1e-45, 1.1754942e-38, 5e-39)]


@pytest.mark.parametrize(
    "device, rows",
    [("cpu", EXTREMES + SUBNORMAL), pytest.param("gpu", EXTREMES, marks=ON_GPU)],
    ids=["cpu", "gpu"],
)
def test_floats_keep_their_bits(device: str, rows: list[tuple[float, ...]]) -> None:
    """A GPU may take a subnormal number for 0; nothing that is sampled by depends on it."""
    batch = sample_step(LAYOUTS[0], rows)
    for column, values in zip(ROWS, read(device, batch, "rows", len(rows)), strict=True):
        start = LAYOUTS[0].rows.at(column)
        expected = words_of(batch)[start : start + len(ROWS) * len(rows) : len(ROWS)]
        assert values.view(np.int32).tolist() == expected.tolist(), column
