"""The machine code of linear layers does not get longer: compiled for sm_90 and counted.

The counts and what they were before: docs/notes/cuda_counts.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu import count, count_linear
from benchmarks.gpu.count import Count
from mlcc_compiler.kernels.frame import activations, f32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragment_gemv import fragment_gemv
from mlcc_compiler.kernels.gpu.linear.split_weights import packing
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.linear.work_item import LinearWork
from mlcc_targets import get_target
from tests.helpers import needs

pytestmark = pytest.mark.usefixtures("nvcc")
CUDA = Gpu.of(get_target("cuda"))
N, K = count_linear.N, count_linear.K


def few_rows(scheme: str) -> Count:
    """The kernel of up to 8 rows alone, which is quicker to compile than all of a layer."""
    form = packing(CUDA, (N, K), scheme)

    def body(x: Any, *buffers: Any) -> None:
        *tensors, y = buffers
        work = LinearWork(x, N, lambda m, n, value: store(y, value, m, n))
        fragment_gemv(CUDA, WeightReader(CUDA, form, tensors), work)

    arguments = {"x": activations(CUDA, "n", K), **weight_arguments(form, 0)}
    made = kernel(body, **arguments, y=f32("n", N)).with_attr("global_symbol", "linear")
    (found,) = count_linear.counts_of(made)
    return found


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    for name in ("cuobjdump", "nvdisasm"):
        try:
            count.tool(name)
        except SystemExit as error:
            needs.absent(str(error))


@pytest.mark.parametrize(("scheme", "most"), [("int4_g32", 1.8)])
def test_instructions_a_weight(scheme: str, most: float) -> None:
    found = few_rows(scheme)
    assert found.spills == 0 and found.tensor and found.rows == 8
    assert found.of_weight is not None and 1.0 < found.of_weight <= most, found
