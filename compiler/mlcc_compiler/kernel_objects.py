"""Machine code of a CPU library's kernels: one object file each, compiled in threads or cached.

TVM's passes over kernels take most of a compile's time and release the GIL. One module a kernel
keeps all cores busy, and its object depends on nothing but the kernel, the target and the versions
of the code generators: the key under which `mlcc.util.file_cache.KERNELS` keeps it. A library has
the same bytes with and without the cache. Kernels of GPUs are text in one module; they are not
split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from mlcc.util.file_cache import KERNELS
from mlcc.version import TVM, TVM_FFI
from mlcc_compiler.ir._tvm import ir, tirx, tvm
from mlcc_compiler.kernels.tir_pipeline import CPU_PIPELINE, cpu_passes
from mlcc_compiler.quantization.codec import cores

FORMAT = "1"
"""Part of every key; raised when objects of older versions can no longer be linked."""


def split_kernels(module: ir.IRModule) -> tuple[ir.IRModule, list[ir.IRModule]]:
    """A module without its kernels, and each kernel as a module of its own, by name.

    The first kernel stays: TVM makes host code at all only for a module that has some.
    """
    kernels = {v: f for v, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
    apart = sorted(kernels, key=lambda variable: str(variable.name_hint))[1:]
    names = {variable.name_hint for variable in apart}
    rest = {v: f for v, f in module.functions.items() if v.name_hint not in names}
    modules = [ir.IRModule({variable: kernels[variable]}) for variable in apart]
    return ir.IRModule(rest, attrs=module.attrs), modules


def compile_kernels(
    modules: list[ir.IRModule],
    target: Any,
    folder: Path,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Object files of kernels, one a module, written into `folder`. target: TVM's, of the CPU.
    report: called with the kernels done, and all."""

    def compile_one(module: ir.IRModule) -> tuple[Path, bool]:
        (variable,) = module.functions
        path = folder / f"{variable.name_hint}.o"
        key = key_of(module, target)
        code = KERNELS.load(key)
        if code is not None:
            path.write_bytes(code)
            return path, False
        with target:
            tvm.tirx.build(module, target, CPU_PIPELINE).write_to_file(str(path))
        KERNELS.store(key, path.read_bytes())
        return path, True

    with ThreadPoolExecutor(cores(), "mlcc-kernel") as pool:
        found = []
        for each in pool.map(compile_one, modules):
            found.append(each)
            report(len(found), len(modules))
    if any(new for _, new in found):
        KERNELS.trim()
    return [path for path, _ in found]


def key_of(module: ir.IRModule, target: Any) -> str:
    """A hash of a module, its target and the versions of what compiles it."""
    parts = (FORMAT, TVM, TVM_FFI, str(target), _passes(), tvm.ir.save_json(module))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _passes() -> str:
    return " ".join(each.info.name for each in cpu_passes())
