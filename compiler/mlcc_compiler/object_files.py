"""Object files of a library, compiled or from the cache `mlcc.util.file_cache.KERNELS`.

TVM's passes over kernels take most of a compile's time and release the GIL. One module a kernel of
a CPU keeps all cores busy. All else of a library is one module: its host code, and a GPU's kernels,
which are text in one source. An object depends on nothing but its module, the target and the code
generators' versions, whose hash is its key. A library has the same bytes with and without the
cache. Keys are cached as well, by the origins of kernels (`kernels/origins.py`).

A kernel's target has the features that the kernel needs, not all of its level, so libraries of
several levels have objects in common (`kernels/cpu/isa/needed_features.py`). Functions that several
kernels call are objects as well (`kernels/called_functions.py`).
"""

from __future__ import annotations

import hashlib
import inspect
import io
import threading
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from mlcc.util.file_cache import KERNELS
from mlcc.version import TVM, TVM_FFI
from mlcc_compiler.cuda.build import cuda_code_in
from mlcc_compiler.cuda.code import cuda_compiler
from mlcc_compiler.ir._tvm import ir, relax, tirx, tvm, tvm_ffi
from mlcc_compiler.kernels import called_functions, dependent_launch, tir_pipeline
from mlcc_compiler.kernels.called_functions import functions_of, without_calls
from mlcc_compiler.kernels.cpu.isa.needed_features import needed_features
from mlcc_compiler.kernels.origins import origin_of, sources
from mlcc_compiler.kernels.tir_pipeline import CPU_PIPELINE, GPU_PIPELINE
from mlcc_compiler.quantization.codec import cores
from mlcc_targets import Target

FORMAT = "2"
"""Part of every key; raised when objects of older versions can no longer be linked."""
PASSES = (tir_pipeline, called_functions, dependent_launch)
"""Modules with passes over kernels; their text is part of every key."""

_locks: dict[str, threading.Lock] = {}
"""By key: libraries of several levels are built at once, and the second finds the first's objects.
"""


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

    modules = [*functions_of(modules), *map(without_calls, modules)]

    def compile_one(module: ir.IRModule) -> tuple[Path, bool]:
        ((variable, kernel),) = module.functions.items()
        path = folder / f"{variable.name_hint}.o"
        key = key_of(module, target)
        with _locks.setdefault(key, threading.Lock()):
            code = KERNELS.load(key)
            if code is not None:
                path.write_bytes(code)
                return path, False
            needed = target_for(kernel, target)
            with needed:
                tvm.tirx.build(module, needed, CPU_PIPELINE).write_to_file(str(path))
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


def compile_rest(
    module: ir.IRModule, described: Any, target: Target, folder: Path, dump: Path | None
) -> list[Path]:
    """Object files of a module with the virtual machine's functions, written into `folder`.

    described: `target` for TVM. With `dump`, CUDA's kernels are compiled in any case, and their
    text and the compiler's report are written there. Raises mlcc_targets.TargetError.
    """
    cuda = target.generator == "cuda"
    key = key_of(module, described, cuda_compiler(target.archs) if cuda else "")
    packed = None if cuda and dump is not None else KERNELS.load(key)
    if packed is None:
        tir = GPU_PIPELINE if target.generator else CPU_PIPELINE
        with cuda_code_in(target, dump), described:
            executable = relax.build(module, described, relax_pipeline=None, tir_pipeline=tir)
        packed = _packed_objects(executable)
        KERNELS.store(key, packed)
        KERNELS.trim()
    return _unpacked(packed, folder)


def _packed_objects(executable: Any) -> bytes:
    """The object files that TVM would link, in its order, as a zip file without compression."""
    packed = io.BytesIO()

    def pack(output: str, objects: list[str], **_: Any) -> None:
        with zipfile.ZipFile(packed, "w") as archive:
            for name in objects:
                archive.write(name, Path(name).name)

    pack.object_format = "o"  # type: ignore[attr-defined]
    executable.export_library("unused", fcompile=pack)
    return packed.getvalue()


def _unpacked(packed: bytes, folder: Path) -> list[Path]:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return [Path(archive.extract(name, folder)) for name in archive.namelist()]


def key_of(module: ir.IRModule, target: Any, compiler: str = "") -> str:
    """A hash of a module, its target (TVM's), the device's compiler and what TVM does to both. A
    module of one kernel has the target that `target_for` has for it.

    The text of kernels takes up to a third of a compile that finds all objects in the cache, so the
    key of kernels of known origins is in the cache, too.
    """
    kernels = {v: f for v, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
    rest = {v: f for v, f in module.functions.items() if v not in kernels}
    for called in functions_of([module]):
        kernels.update(called.functions)
    graph = tvm.ir.save_json(ir.IRModule(rest, attrs=module.attrs))
    named = sorted(((str(v.name_hint), f) for v, f in kernels.items()), key=lambda each: each[0])
    origins = [origin_of(kernel) for _, kernel in named]
    alias = ""
    if any(origins):
        texts = [text or _content(k) for (_, k), text in zip(named, origins, strict=True)]
        alias = _digest(target, compiler, graph + sources(), named, texts) + ".key"
        known = KERNELS.load(alias)
        if known is not None:
            return known.decode()
    needed = target_for(named[0][1], target) if len(named) == 1 and not rest else target
    key = _digest(needed, compiler, graph, named, (_content(k) for _, k in named))
    if alias:
        KERNELS.store(alias, key.encode())
    return key


def target_for(kernel: tirx.PrimFunc, target: Any) -> tvm.target.Target:
    """TVM's target with the features of the CPU that a kernel needs."""
    described = tvm.target.Target(target)
    features = [str(each) for each in described.attrs.get("mattr", ())]
    needed = needed_features(features, _script(kernel))
    if needed == features:
        return described
    return tvm.target.Target({**described.export(), "mattr": needed})


def _digest(
    target: Any, compiler: str, graph: str, kernels: list[tuple[str, Any]], texts: Iterable[str]
) -> str:
    """A hash of versions, these, and the names and texts of kernels."""
    digest = hashlib.sha256()
    for part in (FORMAT, TVM, TVM_FFI, str(target), _passes(), compiler, graph):
        digest.update(part.encode() + b"\0")
    for (name, _), text in zip(kernels, texts, strict=True):
        digest.update(f"{name} {text}\0".encode())
    return digest.hexdigest()


def _content(kernel: tirx.PrimFunc) -> str:
    """All of a kernel: TVMScript, and TVM's hash of what the script may leave out, which is too
    weak alone. JSON takes up to twice the time of both."""
    return f"{tvm_ffi.structural_hash(kernel)} {_script(kernel)}"


@lru_cache(maxsize=8)
def _script(kernel: tirx.PrimFunc) -> str:
    return str(kernel.script(show_meta=True))


@cache
def _passes() -> str:
    return "".join(map(inspect.getsource, PASSES))
