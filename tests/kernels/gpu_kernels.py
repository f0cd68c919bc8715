"""GPU kernels compiled once per run of the tests and run on the machine's WebGPU devices.

Here that is Mesa's lavapipe, a Vulkan driver on the CPU: slow, exact about the rules.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mlcc_compiler._tvm import tvm
from mlcc_compiler.kernels.gpu.device import Gpu

Array = Any
F16 = Gpu()
F32 = Gpu(f16=False)
SMALL = Gpu(threads=64, f16=False)
GPUS = [F16, F32, SMALL]


@cache
def compiled(factory: Callable[..., Any], gpu: Gpu, arguments: tuple[Any, ...]) -> Any:
    """`factory(gpu, *arguments)` as a loaded library's function."""
    kernel = factory(gpu, *arguments).with_attr("global_symbol", "kernel")
    target = tvm.target.Target({"kind": "webgpu", "max_num_threads": 256}, host={"kind": "llvm"})
    with target:
        executable = tvm.compile(tvm.IRModule({"kernel": kernel}), target=target)
    folder = tempfile.mkdtemp()
    path = Path(folder) / "kernel.so"
    executable.export_library(str(path))
    return tvm.runtime.load_module(str(path))["kernel"]


def device() -> Any:
    return tvm.device("webgpu", 0)


def run(
    factory: Callable[..., Any],
    arguments: Sequence[Any],
    inputs: Sequence[Array],
    outputs: Sequence[tuple[tuple[int, ...], str]],
    gpu: Gpu = F16,
) -> list[Array]:
    """Call the kernel; outputs start as garbage, and only they may change."""
    garbage = [np.full(shape, 77, dtype) for shape, dtype in outputs]
    tensors = [tvm.runtime.tensor(np.asarray(a), device()) for a in [*inputs, *garbage]]
    compiled(factory, gpu, tuple(arguments))(*tensors)
    for before, after in zip(inputs, tensors, strict=False):
        np.testing.assert_array_equal(after.numpy(), before)
    return [t.numpy() for t in tensors[len(inputs) :]]


def run_in_place(
    factory: Callable[..., Any], arguments: Sequence[Any], inputs: Sequence[Array], gpu: Gpu = F16
) -> Array:
    """Call a kernel that writes its last argument; returns that."""
    return call(factory, arguments, inputs, gpu)[-1]


def call(
    factory: Callable[..., Any], arguments: Sequence[Any], inputs: Sequence[Array], gpu: Gpu = F16
) -> list[Array]:
    """Call a kernel; all its arguments as they are afterwards."""
    tensors = [tvm.runtime.tensor(np.asarray(a), device()) for a in inputs]
    compiled(factory, gpu, tuple(arguments))(*tensors)
    return [tensor.numpy() for tensor in tensors]


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed float32."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)
