"""The machine code of linear layers does not get longer: compiled for sm_90 and counted.

The counts and what they were before: docs/notes/cuda_counts.md.
"""

from __future__ import annotations

import pytest

from benchmarks.gpu import count, count_linear
from benchmarks.gpu.count import Count
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.split_weights import packing
from mlcc_targets import get_target
from tests.compiler.kernels.linear.test_gpu_linear import few_rows, many_rows
from tests.helpers import needs

pytestmark = pytest.mark.usefixtures("nvcc")
CUDA = Gpu.of(get_target("cuda"))
N, K = count_linear.N, count_linear.K


def few(scheme: str) -> Count:
    """The kernel of up to 8 rows."""
    made = few_rows(CUDA, packing(CUDA, (N, K), scheme), 0, False)
    (found,) = count_linear.counts_of(made.with_attr("global_symbol", "linear"))
    return found


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    for name in ("cuobjdump", "nvdisasm"):
        try:
            count.tool(name)
        except SystemExit as error:
            needs.absent(str(error))


@pytest.mark.parametrize(
    ("scheme", "most"),
    [
        ("t5_g32", 3.8),
        *(
            pytest.param(scheme, most, marks=pytest.mark.long)
            for scheme, most in (
                ("int4_g32", 2.0),
                ("int8_g32", 2.0),
                ("t4_g32", 3.0),
                ("mxfp4", 2.7),
                ("int4a_g128", 2.3),
            )
        ),
    ],
)
def test_instructions_a_weight(scheme: str, most: float) -> None:
    found = few(scheme)
    assert found.spills == 0 and found.tensor and found.rows == 8
    assert found.of_weight is not None and most / 2 < found.of_weight <= most, found


def test_many_rows() -> None:
    """Of 64 rows a weight costs 5 instructions beside the 1.3 of its products, of 128 as many. x
    and words come by asynchronous copies."""
    form = packing(CUDA, (N, K), "t4_g32")
    made = many_rows(CUDA, form, 64, 128).with_attr("global_symbol", "linear")
    for found, rows in zip(count_linear.counts_of(made), (64, 128), strict=True):
        assert found.spills == 0 and found.tensor == rows
        weights = found.products / rows
        assert 4 < found.loop / weights < (6.6 if rows == 64 else 7.6), found
        assert found.shared_bytes < 2048 and found.registers <= 255
