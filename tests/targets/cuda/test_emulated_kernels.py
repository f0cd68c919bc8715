"""The GPU kernels as CUDA C++, run on an emulated device, against the twins.

Threads run in ascending and in descending order, so that a missing barrier is
detected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from mlcc_compiler.cuda import build as cuda_build
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.gpu.attention import mma_latent
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear import split_weights
from mlcc_compiler.kernels.gpu.linear.fragments import mma, mma_fp8
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.pipeline import tvm_target_of
from mlcc_compiler.quantization import Quantized, dequantize, scheme
from mlcc_targets import Choices, get_target
from tests.compiler.kernels import test_gpu_elementwise as elementwise
from tests.compiler.kernels import test_moe as moe
from tests.compiler.kernels.attention import test_mla as latent
from tests.compiler.kernels.cases import gpu_kernels
from tests.compiler.kernels.cases import mla as latent_cases
from tests.compiler.kernels.cases.attention import OTHERS
from tests.compiler.kernels.linear import test_gpu_linear as linear
from tests.targets.cuda import emulation
from tests.targets.kernel_checks import checks, names

pytestmark = pytest.mark.usefixtures("emulated")
ROW = get_target("cuda")
CUDA = Gpu.of(ROW)


@cache
def compiled(
    factory: Callable[..., Any], arguments: tuple[Any, ...], *archs: str, gpu: Gpu | None = None
) -> Any:
    """Like gpu_kernels.compiled, for the row's device if no other; archs: not the row's own."""
    row = get_target("cuda", Choices(archs=archs))
    kernel = gpu_kernels.made(factory, gpu or Gpu.of(row), arguments)
    with cuda_build.cuda_code_in(row):
        return gpu_kernels.loaded(kernel, tvm_target_of(row), emulation.code_made_of())


@pytest.fixture(autouse=True, params=["ascending", "descending"])
def on_cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    emulation.replace_nvcc(monkeypatch)
    monkeypatch.setattr(gpu_kernels, "compiled", lambda f, gpu, arguments: compiled(f, arguments))
    for module in (gpu_kernels, linear):
        monkeypatch.setattr(module, "device", lambda: tvm.device("cuda", 0))
    emulation.device().emulated_order(request.param == "descending")
    yield
    emulation.device().emulated_order(0)


def test_the_row_uses_what_cuda_has() -> None:
    assert CUDA.subgroup == 32 and CUDA.matrix_unit == "wmma" and CUDA.f16


CHECKS = checks(CUDA)


@pytest.mark.parametrize("check, arguments", CHECKS, ids=names(CHECKS))
def test_kernel(check: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    check(*arguments)


FRAGMENTS = (
    ((48, 256), "int4_g32", (0, 1, 5, 8, 19), True),
    ((32, 2048), "t4_g32", (4,), False),  # two blocks of scales; two chunks at a time
    ((48, 352), "t5_g32", (5, 17, 33), True),
    ((32, 96), "bf16", (3,), False),
    ((32, 256), "e4m3_g128", (3,), False),
    ((32, 256), "nvfp4", (3,), False),
    ((4112, 64), "k5_g32", (2,), False),  # two tiles a warp, the last one alone
)
LONG_FRAGMENTS = (
    ((48, 512), "q6_k", (2, 9, 65), False),
    ((32, 96), "int4a_g16", (3, 20), False),
    ((48, 320), "iq4_nl", (2, 9), False),
    ((48, 256), "iq4_xs", (2, 65), False),
    ((48, 128), "mxfp4", (3, 9), False),
    ((48, 128), "int8_g32", (2, 9), False),
    ((48, 384), "e4m3_g128", (0, 8, 20, 70, 129), True),
    ((48, 96), "e4m3_row", (2, 9), False),
    ((48, 384), "nvfp4", (0, 8, 20, 70, 129), True),
    ((16, 192), "int4_g32", (3,), False),  # lanes read eight bytes at a time, some warps nothing
    ((144, 256), "t4_g32", (0, 8, 30, 50, 130), True),
    ((16, 256), "int8a_g64", (2, 16), False),
    ((16, 256), "int4a_g128", (2, 40), False),
    ((32, 2176), "t4_g32", (4, 40, 70, 129), False),
    ((80, 288), "k6_g32", (2, 100), False),
    ((16, 512), "q4_k", (2, 9, 65), False),
    ((16, 64), "int5m_g32", (3, 9), False),
    ((48, 640), "k5_g32", (20, 66, 200), False),
    ((48, 352), "bf16", (1, 9, 40, 65, 130), True),
    ((32, 64), "f16", (2, 20, 129), False),
)


@pytest.mark.parametrize(
    ("sizes", "name", "rows", "bias"),
    [*FRAGMENTS, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG_FRAGMENTS)],
    ids=str,
)
def test_fragments(sizes: tuple[int, int], name: str, rows: tuple[int, ...], bias: bool) -> None:
    linear.check_fragments(CUDA, sizes, name, rows, bias)


def sixteen_rows(gpu: Gpu, packing: GpuPacking, part: int, bias: bool) -> Any:
    """The variant of tiles of 16 rows alone."""
    return linear.many_rows(gpu, packing, 16)


@pytest.mark.parametrize(
    ("name", "factory", "rows"),
    [("e4m3_g128", linear.few_rows, 8), ("e4m3_row", sixteen_rows, 16)],
)
def test_8_bit_floats_to_the_bit(name: str, factory: Any, rows: int) -> None:
    """Products of few rows, or with a scale a row, have the scales of the file, unrounded: each
    code times 1 is its weight."""
    form = split_weights.packing(CUDA, (32, 256), name)
    codes = np.resize(np.arange(256, dtype=np.uint8), (32, 256))
    codes[(codes & 127) == 127] = 0
    codes[1::2] = codes[1::2, ::-1]
    scales = np.random.default_rng(5).uniform(1e-7, 1, (32, form.groups)).astype(np.float32)
    matrix = Quantized(form.scheme, codes, scales)
    stored, weight = form.pack_quantized(matrix), dequantize(matrix)
    for first in range(0, 256, rows):
        x = np.eye(rows, 256, first, np.float32)
        y = linear.fragments_product(CUDA, form, factory, x, stored)
        np.testing.assert_array_equal(y, weight[:, first : first + rows].T)


def test_nvfp4_to_the_bit() -> None:
    """Each code and scale from 2**-4 on, where the factor of a row is a power of two."""
    form = split_weights.packing(CUDA, (32, 256), "nvfp4")
    codes = np.resize(np.arange(16, dtype=np.uint8), (32, 256))
    small = np.arange(32 * 16).reshape(32, 16) % 102 + 0x18  # 2**-4 to 416
    small[1::2] |= 0x80
    factors = 2.0 ** np.arange(-20, 12, dtype=np.float32)[:, None]
    matrix = Quantized(form.scheme, codes, factors, sub_scales=small.astype(np.uint8).view(np.int8))
    matrix.check("w")
    stored, weight = form.pack_quantized(matrix), dequantize(matrix)
    for first in range(0, 256, 8):
        x = np.eye(8, 256, first, np.float32)
        y = linear.fragments_product(CUDA, form, linear.few_rows, x, stored)
        np.testing.assert_array_equal(y, weight[:, first : first + 8].T)


def test_8_bit_floats_before_sm_89() -> None:
    """Their bits are moved, and the float16 multiplied: what nvcc reads, but for that product."""
    code, count = re.subn(
        r'asm\("mul[^;]*;"[^;]*;',
        "found = mlcc_multiply_add(pair, 0x5c005c00u, 0x80008000u);",
        "".join(map(mma.e4m3_code, ("low", "high"))).replace("mlcc_e4m3", "before_e4m3"),
    )
    assert count == 2
    multiply = mma_fp8.multiply_code().partition("void mlcc_eights_multiply")[2]
    text = f"""extern "C" __global__ void nothing(int* y) {{ }}
    #define __byte_perm mlcc_permuted
    #define __CUDA_ARCH__ 800
    {code}
    #define mlcc_halves_multiply mlcc_mma
    #define mlcc_halves_low before_e4m3_low
    #define mlcc_halves_high before_e4m3_high
    inline void before_multiply{multiply}
    inline unsigned __float_as_uint(float x) {{ unsigned y; memcpy(&y, &x, 4); return y; }}
    #define __float2int_rn(x) static_cast<int>(rintf(x))
    {mma_fp8.rounded_code().replace("mlcc_eights", "before_eights")}
    extern "C" __global__ void products(int* y) {{
      unsigned word = 0x35B7A9C1u, given[6];
      int lane = threadIdx.x;
      for (int round = 0; round < 20; ++round) {{
        for (auto& each : given)
          each = (word = word * 747796405u + lane * 2891336453u) & ~0x01010101u;
        float a[4], b[4];
        mlcc_eights_multiply(a[0], a[1], a[2], a[3], 1.f, 2.f, 3.f, 4.f, given[0], given[1],
                             given[2], given[3], given[4], given[5]);
        before_multiply(b[0], b[1], b[2], b[3], 1.f, 2.f, 3.f, 4.f, given[0], given[1],
                        given[2], given[3], given[4], given[5]);
        for (int i = 0; i < 4; ++i) {{
          float most = 1e-4f * 448 * 448;
          y[lane] += !(fabsf(a[i] - b[i]) <= most);
          y[32] += a[i] != 0;
        }}
      }}
    }}
    extern "C" __global__ void rounded(int* y) {{
      for (unsigned bits = 0; bits < 1u << 16; ++bits) {{  // the upper half of a float, or two
        unsigned word = bits << 16 | (bits % 3 == 0 ? 0x8000u : bits % 3 - 1);
        float x, z;
        memcpy(&x, &word, 4);
        memcpy(&z, &(word ^= 0x80080000u), 4);
        if (isnan(x) || isnan(z)) continue;
        y[0] += before_eights(x, 1.f, -3.f, z) != mlcc_eights(x, 1.f, -3.f, z);
        ++y[1];
      }}
    }}
    extern "C" __global__ void differ(int* y) {{
      for (unsigned code = 0; code < 1u << 16; ++code) {{
        unsigned word = code << 16 | code ^ 0x8133u;
        bool nan = false;
        for (int i = 0; i < 32; i += 8) nan |= (word >> i & 127) == 127;
        y[0] += !nan && before_e4m3_low(word) != mlcc_e4m3_low(word);
        y[0] += !nan && before_e4m3_high(word) != mlcc_e4m3_high(word);
        y[1] += !nan;
      }}
    }}"""
    y = np.zeros(2, np.int32)
    assert emulation.launch(text, "differ", 1, 1, y) == ""
    assert y[0] == 0 and y[1] > 60000
    y = np.zeros(2, np.int32)
    assert emulation.launch(text, "rounded", 1, 1, y) == ""
    assert y[0] == 0 and y[1] > 60000
    y = np.zeros(33, np.int32)
    assert emulation.launch(text, "products", 1, 32, y) == ""
    assert not y[:32].any() and y[32] > 2000


@pytest.mark.parametrize(("sizes", "name"), [((48, 2176), "t4_g32"), ((48, 1088), "bf16")])
def test_k_is_shared_out(sizes: tuple[int, int], name: str) -> None:
    """By workgroups, each of which takes more steps than its memory has."""
    linear.check_shared_k(CUDA, sizes, name, 12)


@pytest.mark.parametrize(
    ("shape", "name", "each", "tokens"),
    [
        ((10, 32, 128), "t4_g32", True, (0, 3, 12, 25)),
        pytest.param((3, 48, 64), "t4_g32", False, (1, 9, 70), marks=pytest.mark.long),
        pytest.param((6, 32, 128), "e4m3_g128", False, (3, 25), marks=pytest.mark.long),
        pytest.param((6, 32, 128), "nvfp4", False, (3, 25), marks=pytest.mark.long),
    ],
)
def test_experts_in_fragments(
    shape: tuple[int, int, int], name: str, each: bool, tokens: tuple[int, ...]
) -> None:
    """By token, and tiles of 16 and 64 tokens that chose one expert."""
    experts = shape[0] // 2 if each else shape[0]
    moe.gpu_check(CUDA, shape, name, experts, 2, each, tokens)


@pytest.mark.long
@pytest.mark.parametrize("name", ["e4m3_row", "nvfp4"])
def test_8_bit_floats_in_rows(name: str) -> None:
    """Sizes of no whole tiles."""
    linear.check(CUDA, (40, 96), scheme(name), rows=(1, 3, 20))


@pytest.mark.parametrize(
    ("tokens", "experts", "chosen"),
    [
        (1, 128, 8),
        (64, 128, 8),  # half of the warps have no entries
        pytest.param(150, 300, 10, marks=pytest.mark.long),  # more experts than threads
        pytest.param(4096, 128, 8, marks=pytest.mark.long),
    ],
)
def test_order_over_the_grid(tokens: int, experts: int, chosen: int) -> None:
    moe.check_order(CUDA, tokens, experts, chosen, few=0)


def test_few_tokens_are_not_sorted() -> None:
    """Their experts are read without an order."""
    before = emulation.device().emulated_launches()
    order, begin = moe.ordered(CUDA, moe.choices(1, 8, 16, 2), 16)
    assert emulation.device().emulated_launches() == before
    assert (order == 77).all() and (begin == 77).all()


def test_latents_of_many_ranges() -> None:
    """The last workgroup merges them, 32 ranges at a time; rows behind the last token are 0."""
    case = latent_cases.Case(dtype="float16")
    for sequences, padding, more in (([(1, 40), (1, 4300), (1, 16)], 2, 2), ([(1, 300)], 0, 0)):
        given = latent_cases.inputs(case, sequences, padding=padding)
        given.sequences += more
        y = latent.gpu_attend(given, CUDA)
        np.testing.assert_allclose(y, given.expected, rtol=0, atol=1e-5)


DEEPSEEK = latent_cases.Case(rank=512, rope=64, dtype="float16")
PROMPTS = ((5, 5), (1, 40), (66, 130), (2, 33), (1, 300), (3, 64))


@pytest.mark.parametrize(
    ("case", "sequences"),
    [
        (DEEPSEEK, PROMPTS),
        (replace(DEEPSEEK, heads=20), ((7, 40),)),  # three tokens of 20 heads are 60 rows
        (replace(DEEPSEEK, heads=128), ((3, 70), (1, 9))),
        (latent_cases.Case(5, 96, 40, 4, dtype="float16"), PROMPTS),  # 136 columns of 192
        (latent_cases.Case(4, 32, 8, 1, dtype="float16", before=OTHERS), PROMPTS),
    ],
    ids=str,
)
def test_latents_by_mma(case: latent_cases.Case, sequences: Any) -> None:
    """Prompts, chunks behind others and decode rows in one step; tiles that end in their middle."""
    assert mma_latent.plan_of(CUDA, case.layout) is not None
    latent.gpu_check(case, sequences, CUDA)


@pytest.mark.parametrize(
    "case",
    [
        latent_cases.Case(3, 48, 8, dtype="float16"),  # halves of no whole 16 columns
        latent_cases.Case(3, 64, 4, dtype="float16"),  # rows of no whole 16 bytes
        latent_cases.Case(3),  # exact pages
        latent_cases.Case(3, 1024, 64, dtype="float16"),  # more than registers hold
    ],
    ids=str,
)
def test_other_latents_are_not_multiplied_by_mma(case: latent_cases.Case) -> None:
    assert mma_latent.plan_of(CUDA, case.layout) is None
    latent.gpu_check(case, ((5, 5), (1, 40), (2, 33)), CUDA)


def test_a_kernel_of_no_rows_starts_nothing() -> None:
    before = emulation.device().emulated_launches()
    empty = gpu_kernels.normal(0, 0, 33)
    gpu_kernels.run(
        elementwise.activation.add, ((33,), (33,)), [empty, empty], [((0, 33), "float32")]
    )
    assert emulation.device().emulated_launches() == before
