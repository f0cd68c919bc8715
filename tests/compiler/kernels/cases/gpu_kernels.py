"""GPU kernels compiled once per test run, and run on the machine's WebGPU devices.

In CI that is Mesa's lavapipe, a Vulkan driver on the CPU: slow, but strict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import rounded
from mlcc_compiler.kernels.gpu.linear.fragments.codes import columns_of
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.origins import record_origin
from mlcc_compiler.kernels.tir_pipeline import GPU_PIPELINE
from mlcc_compiler.object_files import key_of
from mlcc_targets import get_target
from tests.helpers import shared

Array = Any
F16 = Gpu()
F32 = Gpu(f16=False)
SMALL = Gpu(threads=64, f16=False)
VULKAN = Gpu.of(get_target("vulkan"))
"""Desktop GPUs; the others keep to what WebGPU guarantees."""
GPUS = [F16, F32, SMALL]
on_vulkan = pytest.mark.usefixtures("vulkan")


@cache
def compiled(factory: Callable[..., Any], gpu: Gpu, arguments: tuple[Any, ...]) -> Any:
    """`factory(gpu, *arguments)` as a loaded library's function."""
    described = {"kind": "webgpu", "max_num_threads": 256, "supports_subgroups": bool(gpu.subgroup)}
    return loaded(
        made(factory, gpu, arguments), tvm.target.Target(described, host={"kind": "llvm"})
    )


def made(factory: Callable[..., Any], gpu: Gpu, arguments: tuple[Any, ...]) -> Any:
    """`factory(gpu, *arguments)`, of known origin."""
    kernel = factory(gpu, *arguments)
    record_origin(kernel, factory, gpu, *arguments)
    return kernel


def loaded(kernel: Any, target: Any, device_code: Sequence[str | bytes] = ()) -> Any:
    """A kernel as a function of a library, which is kept for later runs. device_code: what the
    device's machine code depends on beside its text."""
    module = tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})

    def write(library: Path) -> None:
        with target:
            executable = tvm.compile(module, target, tir_pipeline=GPU_PIPELINE)
        executable.export_library(str(library))

    path = shared.folder("gpu-kernels") / f"{key_of(module, target)}.so"
    return tvm.runtime.load_module(str(shared.keep(path, device_code, write)))["kernel"]


def device() -> Any:
    return tvm.device("webgpu", 0)


def run(
    factory: Callable[..., Any],
    arguments: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[tuple[tuple[int, ...], str]],
    gpu: Gpu = F16,
) -> list[Array]:
    """Call the kernel; outputs start as garbage, and only they may change. An int is a SIZE."""
    garbage = [np.full(shape, 77, dtype) for shape, dtype in outputs]
    after = call(factory, arguments, [*inputs, *garbage], gpu)
    for before, array in zip(inputs, after, strict=False):
        np.testing.assert_array_equal(array, before)
    return after[len(inputs) :]


def call(
    factory: Callable[..., Any], arguments: Sequence[Any], inputs: Sequence[Any], gpu: Gpu = F16
) -> list[Any]:
    """Call a kernel; all its arguments as they are afterwards."""
    place = device()
    given = [a if isinstance(a, int) else tvm.runtime.tensor(np.asarray(a), place) for a in inputs]
    compiled(factory, gpu, tuple(arguments))(*given)
    return [a if isinstance(a, int) else a.numpy() for a in given]


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed float32."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def source(kind: str, kernel: Any, *, subgroup: bool = False) -> str:
    """The text of a kernel in the language of a kind of device."""
    options = {"thread_warp_size": 32} if subgroup else {"max_num_threads": 256}
    target = tvm.target.Target({"kind": kind, **options}, host={"kind": "llvm"})
    module = tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})

    def write(text: Path) -> None:
        with target:
            built = tvm.compile(module, target, tir_pipeline=GPU_PIPELINE)
        text.write_text(built.mod.imports[0].inspect_source(), encoding="utf-8")

    path = shared.folder("gpu-kernels") / f"{key_of(module, target)}.txt"
    return shared.keep(path, (), write).read_text(encoding="utf-8")


def barriers(text: str, counts: Sequence[int]) -> int:
    """The number of barriers in WGSL. Check that they are under uniform conditions only: a row
    number compared with one of the read-only words `counts`."""
    opened: list[str] = []  # the word before each brace; none before a function's
    found = 0
    words = "|".join(map(str, counts))
    counted = rf"\W*if \(v__1 < _ptr\[({words})i\]\) {{"
    assert "let v__1 : i32 = i32(blockIdx.z * gridDim.x + blockIdx.x);" in text
    assert "var<storage, read> _ptr : array<i32>" in text
    for line in text.splitlines():
        if "workgroupBarrier" in line:
            found += 1
            assert all(kind in ("", "for", "row") for kind in opened), opened
        for brace in re.findall(r"[{}]", line):
            if brace == "}":
                opened.pop()
            elif re.fullmatch(counted, line):
                opened.append("row")
            else:
                opened.append(re.match(r"\W*(\w*)", line).group(1))  # type: ignore[union-attr]
    assert not opened
    return found


def round_rows(gpu: Gpu, packing: GpuPacking, x: Any) -> list[Any]:
    """The values of `rounded.Rounded`, the sums filled with NaN."""
    given = [x, np.zeros((len(x), x.shape[1] // 2), np.uint32)]
    _, pairs = call(rounded.round_rows, (x.shape[1], columns_of(packing)), given, gpu)
    return [pairs, *scratch()]


def scratch() -> list[Any]:
    """What `rounded.clear` leaves."""
    return [np.zeros(rounded.COUNTERS, np.int32), np.full(rounded.SUMS, np.nan, np.float32)]
