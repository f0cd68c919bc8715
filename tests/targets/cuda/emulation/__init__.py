"""An emulated CUDA device for this process: TVM's CUDA runtime over a CPU (see device.cc).

The host code, TVM's device API and the generated kernels are the real ones; only NVIDIA's libraries
and the GPU are replaced. It proves arithmetic, barriers and launches, not speed.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mlcc.util.machine import cpu_features
from mlcc_compiler.cuda import build as cuda_build
from mlcc_compiler.cuda.code import DeviceCode
from mlcc_compiler.ir._tvm import tvm
from mlcc_targets.cuda_files import include_folders
from tests.helpers import shared
from tests.helpers.emulators.code_cache import replace_cache
from tools import packages

HERE = Path(__file__).parent
HEADERS = Path(__file__).parents[3] / "helpers" / "emulators"
_HEADERS = ("cuda.h", "cuda_runtime_api.h", "driver_types.h")
"""Of NVIDIA's, those that name a version and what the device defines."""
_FLAGS = ["-shared", "-fPIC", "-std=c++17", "-U_FORTIFY_SOURCE", "-fno-strict-aliasing", "-w"]
if "f16c" in cpu_features():  # else each half is converted by a call, a third of a model's time
    _FLAGS.append("-mf16c")
_REAL, _OURS = "libcudart.so.13", "libcuemul.so.13"
"""NVIDIA's runtime, and the name of equal length under which TVM's copy asks for the emulated one:
torch brings the real one into the same process, before or after."""
_VERSIONS = "{} {{ global: cu*; emulated_*; *Idx; *Dim; local: *; }};"
_DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) uint (\w+)\[\];")
_MOST, _MOST_OF_90 = 99 << 10, 227 << 10
"""Bytes of workgroup memory that a launch may ask for: of RTX 30 and 40, and of sm_90."""
_MEMORY = """
extern "C" const unsigned emulated_most_dynamic;
const unsigned emulated_most_dynamic = %d;
__shared__ alignas(64) uint emulated_dynamic[emulated_most_dynamic / 4];
"""
_KERNEL = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?(\w+)\([^)]*\) \{'
)


@cache
def folder() -> Path:
    """The folder of this run's libraries, of all its processes."""
    return shared.folder("cuda-emulation")


def why_not() -> str:
    """Why there can be no emulation here; "" if there can."""
    compiler = packages.named("g++")
    if not compiler.is_here():
        return compiler.absent
    if not include_folders():
        return 'needs NVIDIA\'s headers (pip install "mlcc[cuda]")'
    return ""


@cache
def device() -> Any:
    """The emulated device's library; the first call puts it beneath TVM's CUDA runtime."""
    if tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True) is not None:
        raise RuntimeError("TVM's CUDA runtime is loaded already, over something else")
    runtime = _device_library(folder() / _OURS)
    driver = shared.make(folder() / "libcuda.so.1", _compile_empty)
    renamed = shared.make(folder() / "libtvm_runtime_cuda.so", _rename)
    library = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(driver))
    ctypes.CDLL(str(renamed))
    counts = ("launches", "graph_launches", "dependent_launches", "live_bytes")
    for name in counts:
        getattr(library, f"emulated_{name}").restype = ctypes.c_int64
    return library


def install(root: Path) -> dict[str, str]:
    """Write the device's libraries below NVIDIA's names into `root`, for processes that have none
    of NVIDIA's. Returns their environment."""
    folder = root / "lib64"
    folder.mkdir(parents=True)
    runtime, driver = folder / _REAL, folder / "libcuda.so.1"
    _device_library(runtime)
    shutil.copyfile(runtime, driver)
    return {"CUDA_HOME": str(root), "LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": str(runtime)}


def _device_library(library: Path) -> Path:
    """The emulated runtime and driver, compiled or kept from a former run."""
    headers = [path / name for path in include_folders() for name in _HEADERS]
    made_of = [path.read_bytes() for path in (HERE / "device.cc", *headers) if path.exists()]
    made_of += shared.texts(HEADERS, "*.h")
    made_of += [_VERSIONS.encode(), *(flag.encode() for flag in _FLAGS)]
    made_of.append(shared.version_of("g++").encode())
    return shared.keep(library, made_of, _compile_device)


def _compile_device(library: Path) -> None:
    """The emulated runtime and driver in one; its soname is its file's name."""
    script = library.with_name("versions")
    script.write_text(_VERSIONS.format(library.name))
    includes = [f"-I{path}" for path in include_folders()]
    version = f"-Wl,-soname,{library.name},--version-script={script}"
    _compile("-O2", *includes, version, "-o", library, HERE / "device.cc")


def _compile_empty(driver: Path) -> None:
    """A library without functions, of its file's name."""
    source = driver.with_name("empty.cc")
    source.write_text("")
    _compile(f"-Wl,-soname,{driver.name}", "-o", driver, source)


def _rename(copy: Path) -> None:
    """TVM's CUDA runtime, which asks for the emulated one."""
    tvm_folder = Path(tvm.base._LOADED_LIBS["tvm_runtime"]._name).resolve().parent
    text = (tvm_folder / copy.name).read_bytes().replace(_REAL.encode(), _OURS.encode())
    assert text.count(_elf_hash(_REAL)) == 1, "the version's name is looked up by its hash"
    copy.write_bytes(text.replace(_elf_hash(_REAL), _elf_hash(_OURS)))


def _elf_hash(name: str) -> bytes:
    """The hash of symbol versions (System V ABI, "Hash Table")."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    return value.to_bytes(4, "little")


def replace_nvcc(patch: pytest.MonkeyPatch) -> None:
    """Compile libraries for this device, until the patch is undone."""
    patch.setattr(cuda_build, "compile_cuda", compile_cuda)
    replace_cache(patch, code_made_of())


@cache
def code_made_of() -> list[str | bytes]:
    """What emulated machine code depends on beside a kernel's text."""
    texts = [*shared.texts(HERE, "*.h"), Path(__file__).read_bytes()]
    return [*texts, shared.version_of("g++"), *sorted(cpu_features())]


def compile_cuda(text: str, archs: Any = ()) -> DeviceCode:
    """Takes the place of `cuda_code.compile_cuda`: the "machine code" is a library."""
    device()
    body = text[text.index('extern "C" __global__') :]
    body, dynamic = _DYNAMIC.subn(r"uint* \1 = emulated_dynamic;", body)
    memory = _MEMORY % (_MOST_OF_90 if "mlcc_warp_group" in text else _MOST) if dynamic else ""
    names = _KERNEL.findall(body)
    calls = "".join(f"EMULATED_KERNEL({name})\n" for name in names)
    source = f'#include "kernels.h"\n{memory}{body}\n{calls}'
    level = "-O1" if len(names) > 1 else "-O0"  # of a model, or a kernel that runs a few times

    def write(made: Path) -> None:
        made.with_suffix(".cc").write_text(source)
        _compile(level, f"-I{HERE}", "-o", made, made.with_suffix(".cc"))

    name = f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.so"
    path = shared.keep(folder() / name, code_made_of(), write)
    return DeviceCode(path.read_bytes(), (), 0.0)


class _Grid(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [*((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared"))]
    _fields_ += [("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p)]
    _fields_ += [("count", ctypes.c_uint)]


def launch(text: str, name: str, blocks: int, threads: int, *arrays: Any) -> str:
    """Run a kernel of CUDA C++ over numpy arrays. Returns "" or its fault."""
    library, module, kernel = device(), ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cuModuleLoadData(ctypes.byref(module), compile_cuda(text).binary) == 0
    assert library.cuModuleGetFunction(ctypes.byref(kernel), module, name.encode()) == 0
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    addresses = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(p) for p in pointers))
    grid = _Grid(gx=blocks, gy=1, gz=1, bx=threads, by=1, bz=1)
    fault = ctypes.c_char_p()
    if library.cuLaunchKernelEx(ctypes.byref(grid), kernel, addresses, None):
        library.cuGetErrorString(0, ctypes.byref(fault))
    return (fault.value or b"").decode()


def _compile(*arguments: Any) -> None:
    command = ["g++", *_FLAGS, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        faults = [line for line in done.stderr.splitlines() if "error" in line]
        raise RuntimeError("\n".join(faults[:5]))
