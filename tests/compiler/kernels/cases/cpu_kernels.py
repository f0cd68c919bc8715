"""CPU kernels for several instruction sets, called with numpy arrays.

They are compiled and linked as a model's library is, and cached as its kernels are: a second run of
the tests compiles those that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mlcc.util.machine import cpu_features, machine
from mlcc_compiler.ir._tvm import tirx, tvm
from mlcc_compiler.kernels.cpu.isa import isa
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.origins import record_origin
from mlcc_compiler.kernels.tir_pipeline import CPU_PIPELINE
from mlcc_compiler.object_files import compile_kernels, key_of
from mlcc_targets.linking.native_library import link_for
from tests.helpers import shared

Array = Any
Options = tuple[tuple[str, str | tuple[str, ...]], ...]
"""Of TVM's target for LLVM."""


@dataclass(frozen=True)
class Cpu:
    """An instruction set, and LLVM's options for it."""

    name: str
    isa: Isa
    target: Options
    needs: frozenset[str] = frozenset()


AVX512 = Cpu(
    "avx512",
    isa.AVX512_VNNI,
    (("mcpu", "x86-64-v4"), ("mattr", ("+avx512vnni",))),
    frozenset({"avx512f", "avx512bw", "avx512vl", "avx512vnni"}),
)
_BF16 = ("+avx512vnni", "+avx512vbmi", "+avx512bf16")
AVX512_BF16 = Cpu(
    "avx512-bf16",
    isa.AVX512_BF16,
    (("mcpu", "x86-64-v4"), ("mattr", _BF16)),
    AVX512.needs | {"avx512vbmi", "avx512bf16"},
)
"""Not in CPUS: it rounds inputs, which needs other bounds."""
AVX512_AMX = Cpu(
    "avx512-amx",
    isa.AVX512_AMX,
    (("mcpu", "x86-64-v4"), ("mattr", (*_BF16, "+amx-tile", "+amx-bf16", "+amx-int8"))),
    AVX512_BF16.needs,
)
"""Likewise; on a CPU without AMX its instructions are emulated (`amx_emulator`)."""
AVX2_VNNI = Cpu(
    "avx2-vnni",
    isa.AVX2_VNNI,
    (("mcpu", "x86-64-v3"), ("mattr", ("+avxvnni",))),
    frozenset({"avx2", "fma", "f16c", "avxvnni"}),
)
AVX2 = Cpu("avx2", isa.AVX2, (("mcpu", "haswell"),), frozenset({"avx2", "fma", "f16c"}))
SSE2 = Cpu("sse2", isa.SSE2, (("mcpu", "x86-64"),))
NEON = Cpu("neon", isa.NEON, (("mtriple", "aarch64-linux-gnu"),))
NEON_DOTPROD = Cpu(
    "neon-dotprod",
    isa.NEON_DOTPROD,
    (("mtriple", "aarch64-linux-gnu"), ("mattr", ("+dotprod",))),
)

if machine() == "aarch64":
    CPUS = [NEON]
else:
    CPUS = [cpu for cpu in (AVX512, AVX2, SSE2, AVX2_VNNI) if cpu.needs <= cpu_features()]
BEST = CPUS[0]


def module_of(kernel: tirx.PrimFunc, options: Options) -> tuple[tvm.IRModule, tvm.target.Target]:
    """A module with a kernel, named "kernel", and TVM's target."""
    words = {k: list(v) if isinstance(v, tuple) else v for k, v in options}
    module = tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})
    return module, tvm.target.Target({"kind": "llvm", **words})


def loaded(kernel: tirx.PrimFunc, options: Options) -> Any:
    """A kernel for this machine, from a library of its own."""
    module, target = module_of(kernel, options)
    key = key_of(module, target)

    def write(library: Path) -> None:
        link_for(machine())(compile_kernels([module], target, library.parent), library)

    library = shared.keep(shared.folder("cpu-kernels") / f"{key}.so", [], write)
    return tvm.runtime.load_module(str(library))["kernel"]


@cache
def compiled(factory: Callable[..., Any], arguments: tuple[Any, ...], cpu: Cpu) -> Any:
    """`factory(isa, *arguments)`, ready to be called."""
    kernel = factory(cpu.isa, *arguments)
    record_origin(kernel, factory, cpu.isa, *arguments)
    return loaded(kernel, cpu.target)


def executable(kernel: tirx.PrimFunc, options: Options) -> Any:
    """A kernel, also for another machine's CPU: its code is read, or linked by a test."""
    module, target = module_of(kernel, options)
    return tvm.compile(module, target, tir_pipeline=CPU_PIPELINE).mod


def assembly(factory: Callable[..., Any], arguments: tuple[Any, ...], cpu: Cpu) -> str:
    """The instructions of `factory(isa, *arguments)`."""
    return str(executable(factory(cpu.isa, *arguments), cpu.target).inspect_source("asm"))


def run(
    factory: Callable[..., Any],
    arguments: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[tuple[tuple[int, ...], str]],
    cpu: Cpu = BEST,
) -> list[Array]:
    """Call the kernel; outputs start as garbage, and only they may change. An int is a SIZE."""
    garbage = [np.full(shape, 77, dtype) for shape, dtype in outputs]
    after = call(factory, arguments, [*inputs, *garbage], cpu)
    for before, array in zip(inputs, after, strict=False):
        np.testing.assert_array_equal(array, before)
    return after[len(inputs) :]


def call(
    factory: Callable[..., Any], arguments: Sequence[Any], inputs: Sequence[Any], cpu: Cpu = BEST
) -> list[Any]:
    """Call a kernel; all its arguments as they are afterwards."""
    given = [a if isinstance(a, int) else tvm.runtime.tensor(a) for a in inputs]
    compiled(factory, tuple(arguments), cpu)(*given)
    return [a if isinstance(a, int) else a.numpy() for a in given]


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed float32."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)
