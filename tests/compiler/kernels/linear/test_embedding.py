"""Embedding rows from plain tables and from the packed form of a tied head."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc_compiler.kernels.cpu.elementwise.embedding import table_tensor
from mlcc_compiler.kernels.cpu.isa import isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.quantization import scheme
from mlcc_compiler.quantization.floats import from_storage, to_storage
from tests.compiler.kernels.cases import linear_twin as lt
from tests.compiler.kernels.linear.test_linear import HERE, best, host_runs, wide

IDS = np.array([0, 69, 5, 33, 5, -1, 70, 2**31 - 1, -(2**31)], np.int32)


def _rows(vocab: int, hidden: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((vocab, hidden)).astype(np.float32)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("hidden", [64, 36, 7])
def test_plain_table(name: str, hidden: int) -> None:
    how, table = scheme(name), _rows(70, hidden)
    stored = to_storage(table, how.dtype)
    assert stored.dtype == table_tensor(70, hidden, how).dtype
    kernel = lt.embedding_kernel(70, hidden, how, best(), False)
    (y,) = lt.call(kernel, [IDS, stored], [((len(IDS), hidden), "float32")])
    np.testing.assert_array_equal(y, from_storage(stored, how.dtype)[np.clip(IDS, 0, 69)])


@pytest.mark.parametrize(
    "name", ["f32", "f16", "bf16", "int8a_row", "int4_g16", "q4_k", "q5_k", "q6_k", "mxfp4"]
)
def test_packed(name: str) -> None:
    _check_packed(name, best())


@pytest.mark.parametrize("cpu", HERE, ids=lambda c: c.name)
def test_packed_on_every_instruction_set(cpu: isa.Isa) -> None:
    if not host_runs(cpu):
        pytest.skip(f"this machine has no {cpu.name}")
    _check_packed("int8a_g32", cpu)
    _check_packed("int8a_g32", wide(cpu))
    _check_packed("f16", cpu)


def _check_packed(name: str, cpu: isa.Isa) -> None:
    packing = linear.packing(70, 96, name, cpu)
    stored = packing.pack(_rows(70, 96))
    kernel = lt.embedding_kernel(70, 96, scheme(name), cpu, True)
    for ids in (IDS, IDS[:0]):
        (y,) = lt.call(kernel, [ids, *stored], [((len(ids), 96), "float32")])
        np.testing.assert_array_equal(y, packing.unpack(stored)[np.clip(ids, 0, 69)])
