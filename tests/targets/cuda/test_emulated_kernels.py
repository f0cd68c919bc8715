"""The GPU kernels as CUDA C++, run on an emulated device, against the twins.

The checks are those of tests/compiler/kernels, with the device of the row `cuda`: subgroups and
tensor cores. Threads run in ascending and in descending order, so that a missing barrier is
detected.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mlcc_compiler.cuda import build as cuda_build
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.frame import kernel_passes
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.tir_pipeline import TIR_PIPELINE
from mlcc_compiler.pipeline import tvm_target_of
from mlcc_targets import get_target
from tests.compiler.kernels import test_adjust as adjusting
from tests.compiler.kernels import test_gpu_elementwise as elementwise
from tests.compiler.kernels import test_moe as experts
from tests.compiler.kernels import test_sample as sampling
from tests.compiler.kernels import test_sample_partials as slicing
from tests.compiler.kernels import test_ssm as states
from tests.compiler.kernels.attention import test_gpu_attention as attention
from tests.compiler.kernels.attention import test_kv_int8 as kv_int8
from tests.compiler.kernels.attention import test_mla as latent
from tests.compiler.kernels.cases import attention as attention_cases
from tests.compiler.kernels.cases import gpu_kernels
from tests.compiler.kernels.cases import mla as latent_cases
from tests.compiler.kernels.cases import ssm as state_cases
from tests.compiler.kernels.cases.step import LAYOUTS
from tests.compiler.kernels.linear import test_gpu_linear as linear
from tests.targets.cuda import emulation

pytestmark = pytest.mark.usefixtures("emulated")
ROW = get_target("cuda")
CUDA = Gpu.of(ROW)


@cache
def compiled(factory: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Like gpu_kernels.compiled, always for the row's device."""
    function = factory(CUDA, *arguments).with_attr("global_symbol", "kernel")
    target = tvm_target_of(ROW)
    path = Path(tempfile.mkdtemp(dir=emulation.folder())) / "kernel.so"
    with cuda_build.cuda_code_in(ROW), target, kernel_passes():
        executable = tvm.compile(
            tvm.IRModule({"kernel": function}), target, tir_pipeline=TIR_PIPELINE
        )
        executable.export_library(str(path))
    return tvm.runtime.load_module(str(path))["kernel"]


@pytest.fixture(autouse=True, params=["ascending", "descending"])
def on_cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cuda_build, "compile_cuda", emulation.compile_cuda)
    monkeypatch.setattr(gpu_kernels, "compiled", lambda f, gpu, arguments: compiled(f, arguments))
    for module in (gpu_kernels, linear):
        monkeypatch.setattr(module, "device", lambda: tvm.device("cuda", 0))
    emulation.device().emulated_order(request.param == "descending")
    yield
    emulation.device().emulated_order(0)


def test_the_row_uses_what_cuda_has() -> None:
    assert CUDA.subgroup == 32 and CUDA.tensor_cores and CUDA.f16


ONE_OF_EACH = {record.operator: record for record in state_cases.STATES}
CHECKS: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
    (elementwise.test_gated, ("silu",)),
    (elementwise.test_gated, ("gelu_tanh",)),
    (elementwise.test_add_scale_softcap, ()),
    (elementwise.test_rows_are_taken, ()),
    (elementwise.test_read_step, (LAYOUTS[2],)),
    (elementwise.test_rms_norm, (CUDA, 300)),
    (elementwise.test_rms_norm_per_head, (9, 64)),
    (elementwise.test_rms_norm_per_head, (3, 80)),
    (elementwise.test_rope, (80, 32)),
    (elementwise.test_pages, ("float16",)),
    (elementwise.test_copy_pages, ("float16", 2, (3, 20))),
    (elementwise.test_rotate_and_append, ("float16", CUDA, (1e-6, 1.0), 64, 16)),
    (kv_int8.test_gpu_append, (CUDA, 3, 64, 4)),
    (kv_int8.test_gpu_rotate_and_append, (CUDA, (1e-6, 1.0), 64, 16)),
    (attention.check, (attention_cases.Case(dtype="int8x4"), attention_cases.MIXED, CUDA)),
    (attention.check, (attention_cases.Case(dtype="float16"), attention_cases.MIXED, CUDA)),
    (
        attention.check,
        (
            attention_cases.Case(heads=14, kv_heads=2, dim=80, window=20, dtype="float16"),
            attention_cases.MIXED,
            CUDA,
        ),
    ),
    (
        attention.check,
        (
            attention_cases.Case(heads=8, kv_heads=2, dim=128, softcap=5.0, dtype="float16"),
            attention_cases.MIXED,
            CUDA,
        ),
    ),
    (
        attention.check,
        (
            attention_cases.Case(heads=4, kv_heads=2),
            [(1, n) for n in (1, 16, 17, 128, 129, 1024)],
            CUDA,
        ),
    ),
    (attention.test_sinks, (CUDA,)),
    (attention.test_lists_behind_those_of_other_groups, (100,)),
    (attention.test_a_decode_step_may_be_smaller_than_its_sizes, ()),
    (sampling.test_gpu_parameters_lie_where_the_layout_says, ()),
    (sampling.test_gpu_filters_keep_equals_together, ()),
    (slicing.test_what_lies_at_the_edges_of_slices, ()),
    (adjusting.test_gpu_agrees_with_the_twin, (1001, CUDA)),
    (adjusting.test_gpu_top_logprobs_agree_with_the_twin, (1001, CUDA)),
    (linear.check, (CUDA, (72, 256), linear.scheme("int4_g32"), True, (0, 1, 3, 17, 33))),
    (linear.check, (CUDA, (72, 256), linear.scheme("int8a_g16"), False, (1, 33))),
    (linear.check, (CUDA, (40, 192), linear.scheme("bf16"), False, (1, 33))),
    (linear.check, (CUDA, (40, 192), linear.scheme("f16"), False, (1, 33))),
    (linear.check, (CUDA, (70, 36), linear.scheme("int4a_row"), True, (0, 2, 5, 8, 9, 16, 70))),
    (linear.check_wide_tiles, (CUDA,)),
    (linear.test_f16_tiles_hold_values_beyond_their_range, ()),
    (experts.test_gpu_route, (CUDA, (7, 3, "softmax", 1, 1.0))),
    (experts.test_gpu_route, (CUDA, (300, 10, "softmax", 1, 1.0))),
    (experts.test_gpu_route, (CUDA, (9, 2, "sigmoid", 1, 2.5))),
    (experts.test_gpu_biases, ()),
    (experts.test_gpu_clamped_swiglu, ()),
    (experts.test_gpu_route_corrected, (CUDA, (256, 8, "sigmoid", 1, 2.5, 8, 4))),
    (experts.test_gpu_route_corrected, (CUDA, (64, 6, "softmax", 1, 1.0, 1, 1))),
    (experts.gpu_check, (CUDA, (10, 24, 128), "int4a_g16", 5, 3, True, (3, 12, 25))),
    (latent.gpu_check, (latent_cases.Case(dtype="float16"), attention_cases.MIXED, CUDA)),
    *((states.test_gpu_sequences_of_a_step, (CUDA, record)) for record in ONE_OF_EACH.values()),
]


@pytest.mark.parametrize(
    "check, arguments", CHECKS, ids=[f"{f.__module__[9:]}-{i}" for i, (f, a) in enumerate(CHECKS)]
)
def test_kernel(check: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    check(*arguments)


def test_a_kernel_of_no_rows_starts_nothing() -> None:
    before = emulation.device().emulated_launches()
    empty = gpu_kernels.normal(0, 0, 33)
    gpu_kernels.run(
        elementwise.elementwise.add, ((33,), (33,)), [empty, empty], [((0, 33), "float32")]
    )
    assert emulation.device().emulated_launches() == before
