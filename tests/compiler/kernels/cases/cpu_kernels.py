"""CPU kernels compiled once per test run, for several instruction sets, called with numpy
arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mlcc.util.machine import cpu_features, machine
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.cpu.isa import isa
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.tir_pipeline import CPU_PIPELINE

Array = Any


@dataclass(frozen=True)
class Cpu:
    """An instruction set, and LLVM's options for it."""

    name: str
    isa: Isa
    target: tuple[tuple[str, str | tuple[str, ...]], ...]
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
    (("mcpu", "x86-64-v4"), ("mattr", (*_BF16, "+amx-tile", "+amx-bf16"))),
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


@cache
def compiled(factory: Callable[..., Any], arguments: tuple[Any, ...], cpu: Cpu) -> Any:
    """`factory(isa, *arguments)` as an executable; its function is "kernel"."""
    kernel = factory(cpu.isa, *arguments).with_attr("global_symbol", "kernel")
    options = {k: list(v) if isinstance(v, tuple) else v for k, v in cpu.target}
    target = tvm.target.Target({"kind": "llvm", **options})
    return tvm.compile(tvm.IRModule({"kernel": kernel}), target, tir_pipeline=CPU_PIPELINE)


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
    compiled(factory, tuple(arguments), cpu)["kernel"](*given)
    return [a if isinstance(a, int) else a.numpy() for a in given]


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed float32."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)
