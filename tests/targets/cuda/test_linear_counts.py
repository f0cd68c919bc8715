"""The machine code of linear layers does not get longer: compiled for sm_90 and counted.

The counts and what they were before: docs/notes/cuda_kernels.md.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu import count, count_linear
from benchmarks.gpu.count import Count
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments.joined import Gate, gated_linear
from mlcc_compiler.kernels.gpu.linear.split_weights import packing
from mlcc_targets import Choices, get_target
from tests.compiler.kernels.linear.test_gpu_linear import few_rows, many_rows

pytestmark = pytest.mark.usefixtures("disassembler")
CUDA = Gpu.of(get_target("cuda"))
N, K = count_linear.N, count_linear.K
_MEMORY = {"LD", "LDG", "LDGSTS", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG"}
"""Instructions that touch memory."""


def few(scheme: str) -> Count:
    """The kernel of up to 8 rows."""
    made = few_rows(CUDA, packing(CUDA, (N, K), scheme), 0, False)
    (found,) = count_linear.counts_of(made.with_attr("global_symbol", "linear"))
    return found


def waits_first(kernel: count.Kernel) -> bool:
    """Whether nothing is read or written before the wait for the kernels before."""
    bases = [i.base for i in kernel.instructions]
    touched = [at for at, op in enumerate(bases) if op in _MEMORY]
    return "ACQBULK" in bases and bases.index("ACQBULK") < min(touched, default=len(bases))


@pytest.mark.parametrize(
    ("scheme", "most"),
    [
        ("t5_g32", 3.55),
        ("e4m3_row", 1.0),
        *(
            pytest.param(scheme, most, marks=pytest.mark.long)
            for scheme, most in (
                ("int4_g32", 1.75),
                ("int8_g32", 1.85),
                ("t4_g32", 2.8),
                ("k6_g32", 3.2),
                ("k5_g32", 4.1),
                ("mxfp4", 2.5),
                ("e4m3_g128", 1.3),
                ("nvfp4", 2.8),
                ("iq4_nl", 3.0),
                ("iq4_xs", 3.3),
                ("int4a_g128", 2.2),
                ("bf16", 2.2),
                ("f16", 1.25),
            )
        ),
    ],
)
def test_instructions_a_weight(scheme: str, most: float) -> None:
    found = few(scheme)
    assert found.spills == 0 and found.tensor and found.rows == 8
    assert found.of_weight is not None and most / 2 < found.of_weight <= most, found


@pytest.mark.parametrize(
    ("scheme", "most_64", "most_128"),
    [
        ("t4_g32", 5.9, 7.0),
        pytest.param("t5_g32", 6.9, 8.1, marks=pytest.mark.long),
        pytest.param("e4m3_row", 2.7, 3.9, marks=pytest.mark.long),
        pytest.param("nvfp4", 4.9, 6.2, marks=pytest.mark.long),
        pytest.param("bf16", 4.2, 5.2, marks=pytest.mark.long),
        pytest.param("f16", 3.3, 4.2, marks=pytest.mark.long),
    ],
)
def test_many_rows(scheme: str, most_64: float, most_128: float) -> None:
    """Of 64 rows a weight's products are one instruction, of 128 two. Workgroup memory is asked for
    at launch; what is declared is the system's."""
    form = packing(CUDA, (N, K), scheme)
    made = many_rows(CUDA, form, 64, 128).with_attr("global_symbol", "linear")
    found = count_linear.counts_of(made)
    for of, rows, most in zip(found, (64, 128), (most_64, most_128), strict=True):
        a_weight = of.loop * rows / of.products
        assert of.spills == 0 and most / 2 < a_weight <= most, of
        assert of.of_tensor > 0.95 * of.products and of.shared_bytes < 2048


@pytest.mark.parametrize(
    ("scheme", "most"),
    [
        ("t4_g32", 352),
        *(
            pytest.param(scheme, most, marks=pytest.mark.long)
            for scheme, most in (
                ("t5_g32", 424),
                ("e4m3_g128", 212),
                ("e4m3_row", 162),
                ("nvfp4", 296),
                ("k5_g32", 436),
                ("bf16", 236),
                ("f16", 172),
            )
        ),
    ],
)
def test_warp_groups(scheme: str, most: int) -> None:
    """A step of 64 columns: 8 products of 64 by 128 by 16, 512 cycles of a tensor core, with two
    waits between them. Where ptxas cannot tell that they do not disturb each other, each has a wait
    of its own."""
    gpu = Gpu.of(get_target("cuda", Choices(archs=("sm_90a",))))
    made = many_rows(gpu, packing(gpu, (N, K), scheme), 128).with_attr("global_symbol", "linear")
    binary = count_linear.binary_of(made, "sm_90a")
    (found,) = count.disassembled(binary, "sm_90a", "the layer")
    assert found.spills == 0 and most / 2 < found.loop <= most, found
    assert found.tensor == 8 and found.by_warp_groups and found.of_peak == 1
    (((kernel,), _),) = count.machine_code(binary, "sm_90a", "the layer")
    ops = [i.op for i in kernel.inner_loop()]
    assert sum(op.startswith("WARPGROUP.DEPBAR") for op in ops) == 2
    assert sum(op.startswith("WARPGROUP.ARRIVE") for op in ops) == 2
    assert waits_first(kernel)


@pytest.mark.parametrize(
    ("scheme", "most"),
    [
        ("e4m3_g128", 508),
        pytest.param("e4m3_row", 316, marks=pytest.mark.long),
    ],
)
def test_fp8_by_warp_groups(scheme: str, most: int) -> None:
    """W and x as 8-bit floats: a step is 128 columns of 256 rows of W and 128 of x, 1,024 cycles of
    a tensor core. Sums of four products are added up while the next four are multiplied: a wait for
    each."""
    gpu = replace(Gpu.of(get_target("cuda", Choices(archs=("sm_90a",)))), fp8=True)
    made = many_rows(gpu, packing(gpu, (N, K), scheme), 128).with_attr("global_symbol", "linear")
    binary = count_linear.binary_of(made, "sm_90a")
    (found,) = count.disassembled(binary, "sm_90a", "the layer")
    assert found.spills == 0 and most / 2 < found.loop <= most, found
    assert found.tensor == 16 and found.fp8 and found.by_warp_groups
    assert found.of_peak is not None and found.of_peak > 0.98
    (((kernel,), _),) = count.machine_code(binary, "sm_90a", "the layer")
    ops = [i.op for i in kernel.inner_loop()]
    assert sum(op.startswith("WARPGROUP.DEPBAR") for op in ops) == 4


@pytest.mark.long
@pytest.mark.parametrize(
    ("scheme", "most_8", "most_64"), [("e4m3_row", 0.85, 3.9), ("e4m3_g128", 0.9, 4.8)]
)
def test_fp8_on_sm_89(scheme: str, most_8: float, most_64: float) -> None:
    """Where `mma` multiplies 8-bit floats by an instruction of their own."""
    gpu = replace(CUDA, fp8=True)
    made = many_rows(gpu, packing(gpu, (N, K), scheme), 8, 64)
    found = count_linear.counts_of(made.with_attr("global_symbol", "linear"), "sm_89")
    for of, rows, most in zip(found, (8, 64), (most_8, most_64), strict=True):
        a_weight = of.loop * rows / of.of_tensor
        assert of.spills == 0 and of.fp8 and most / 2 < a_weight <= most, of


@pytest.mark.long
def test_gate_and_up_by_one_launch() -> None:
    """In `q4`: of 8 rows W is 4 and 5 bits of a table each."""
    forms = tuple(packing(CUDA, (N, K), name) for name in ("t4_g32", "t5_g32"))
    made = gated_linear(CUDA, forms, False, True, Gate("silu", tuple(range(8))))
    found = count_linear.counts_of(made.with_attr("global_symbol", "linear"))
    *products, _ = found  # the last one is the activation of many rows
    assert [of.spills for of in found] == [0] * 6
    few, *_ = products
    assert few.registers <= 128 and few.of_weight is not None and 1.7 < few.of_weight <= 3.4
    for of, rows, most in zip(products[1:], (16, 32, 64, 128), (5.4, 6.0, 6.8, 8.1), strict=True):
        assert most / 2 < of.loop * rows / of.products <= most, of
