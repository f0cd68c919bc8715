"""An emulated Metal device for this process: zig's clang in place of Apple's compiler.

The kernels' text, the host's calls and TVM's runtime are real; only the device is replaced.
It proves arithmetic, barriers and launches, not speed, nor that Apple's compiler accepts the text.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi

from mlcc.util.machine import cpu_features
from mlcc.version import TVM, TVM_FFI
from mlcc_compiler.ir._tvm import tvm
from mlcc_targets import Target, get_target
from mlcc_targets.linking.linker import PACKAGE, run_zig
from mlcc_targets.native.build import compiler, package
from tests.helpers import shared
from tests.helpers.emulators.code_cache import replace_cache

HERE = Path(__file__).parent
HEADERS = Path(__file__).parents[3] / "helpers" / "emulators"
_CREATE = "ffi.Module.create.metal"
"""TVM's code generator calls it with the text of a module's kernels, where it is defined."""
VECTOR = r"(?:char|uchar|short|ushort|int|uint|long|ulong|half|float)[234]"
_FLAGS = ["-std=c++20", "-shared", "-fPIC", "-w"]
_ALONE = ["-nostdlib"] if "f16c" in cpu_features() else []
"""What a kernel calls, this process has; else zig first compiles C libraries: 16 s of CPU. Without
F16C half precision needs one of them."""
_KERNEL = re.compile(r"^kernel void (\w+)\((.*?)\n\) \{", re.MULTILINE | re.DOTALL)
_POINTER = re.compile(r"device ([\w ]+\*) \w+ \[\[ buffer\(\d+\) \]\]")
_INDEX = re.compile(r"(uint\d?) (blockIdx|threadIdx) \[\[\w+\]\]")
_SHARED = re.compile(r"^(\s*)threadgroup (\w+ \w+\[\d+\];)", re.MULTILINE)
_UNION = re.compile(r"^union __TVMArgUnion \{.*?^\};", re.MULTILINE | re.DOTALL)
_HOST = """\
#include <stdint.h>
#include <string.h>
#include <tvm/ffi/c_api.h>
struct Index { unsigned x, y, z; };
extern "C" {
extern Index metal_thread, metal_group;
void metal_launch(const char*, const uint32_t*, const uint32_t*, void (*)(), void (*)(void*),
                     void*);
extern char __start_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_emulated_shared[] __attribute__((weak, visibility("hidden")));
}
// Workgroup memory begins as NaN in every group, so that a read of unwritten memory is seen.
static void emulated_poison() {
  if (__start_emulated_shared)
    memset(__start_emulated_shared, 0xFF, __stop_emulated_shared - __start_emulated_shared);
}
template <class Body>
void emulated_start(const char* name, const uint32_t* grid, const uint32_t* threads, Body body) {
  auto run = [](void* body) { (*static_cast<Body*>(body))(); };
  metal_launch(name, grid, threads, emulated_poison, run, &body);
}
"""


def as_cpp(text: str) -> str:
    """MSL as clang's C++: constructors and casts of vectors as templates, shared memory static."""
    text = _UNION.sub("", _SHARED.sub(r"\1workgroup_memory \2", text))
    text = re.sub(rf"\b({VECTOR})\(", r"make<\1>(", text)
    return re.sub(rf"\(({VECTOR})\)", r"cast<\1>()->*", text)


def row() -> Target:
    """The row `metal`, with host code for this machine in place of a Mac's."""
    mac, here = get_target("metal"), get_target("vulkan")
    return replace(mac, triple=here.triple, arch=here.arch, library=here.library, link=here.link)


@cache
def folder() -> Path:
    """The folder of this run's libraries, of all its processes."""
    return shared.folder("metal-emulation")


@cache
def device() -> Any:
    """The emulated device's library; the first call makes it TVM's device "metal"."""
    sources = [(HERE / "device.cc").read_bytes(), *shared.texts(HEADERS, "*.h")]
    made_of = [*sources, *_FLAGS, TVM, TVM_FFI, shared.version_of(*compiler())]
    path = shared.keep(folder() / "libmlcc_emulated_metal.so", made_of, _compile_device)
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.emulated_launches.restype = ctypes.c_int64
    return library


@contextmanager
def modules() -> Iterator[None]:
    """What is compiled for Metal meanwhile is for the emulated device."""
    device()
    made = tvm.get_global_func("mlcc.emulated_metal_module")

    def create(_: Any, __: str, functions: Mapping[str, Any], sources: Mapping[str, str]) -> Any:
        return made(_library(str(sources["metal"]), functions).read_bytes())

    tvm.register_global_func(_CREATE, create)
    try:
        with pytest.MonkeyPatch.context() as patch:
            replace_cache(patch, code_made_of())
            yield
    finally:
        tvm_ffi.registry.remove_global_func(_CREATE)


@cache
def code_made_of() -> list[str | bytes]:
    """What emulated machine code depends on beside a kernel's text."""
    texts = [*shared.texts(HERE, "metal_stdlib"), Path(__file__).read_bytes()]
    return [*texts, *_ALONE, *sorted(cpu_features()), PACKAGE, TVM]


def _library(text: str, functions: Mapping[str, Any]) -> Path:
    """The kernels of a module's MSL text as a shared object."""
    parts = [_HOST, "#include <metal_stdlib>\nusing namespace metal;\n", as_cpp(text)]
    for name, parameters in _KERNEL.findall(text):
        parts.append(_call(name, parameters, functions[name]))
    source = "\n".join(parts)

    def write(made: Path) -> None:
        text = made.with_suffix(".cc")
        text.write_text(source)
        command = ["cc", "-x", "c++", *_FLAGS, *_ALONE, "-O0", "-mcpu=native", "-I", str(HERE)]
        command += ["-fno-sanitize=all", *_includes(), "-o", str(made), str(text)]
        run_zig(command, made, cache=folder() / "zig")

    name = f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.so"
    return shared.keep(folder() / name, code_made_of(), write)


def _call(name: str, parameters: str, info: Any) -> str:
    """A function that starts a kernel with TVM's packed arguments: pointers, scalars, sizes."""
    pointers = _POINTER.findall(parameters)
    types = [str(dtype) for dtype in info.arg_types]
    assert types[: len(pointers)] == ["handle"] * len(pointers), types
    lines, at = [f"  {name}_args_t scalars;" if len(types) > len(pointers) else ""], len(pointers)
    for i, dtype in enumerate(types[at:]):
        value = f"a[{at + i}]"
        number = f"{value}.type_index == kTVMFFIFloat ? {value}.v_float64 : {value}.v_int64"
        kind = {"float32": "float", "int64": "long", "uint32": "uint"}.get(dtype, "int")
        place = f"reinterpret_cast<char*>(&scalars) + {8 * i}"
        lines.append(f"  {{ {kind} value = {number}; memcpy({place}, &value, sizeof value); }}")
    lines += _sizes(info.launch_param_tags, len(types))
    given = [f"(device {kind})a[{i}].v_ptr" for i, kind in enumerate(pointers)]
    given += [f"(constant {name}_args_t&)scalars"] * (len(types) > len(pointers))
    given += [_index(kind, variable) for kind, variable in _INDEX.findall(parameters)]
    start = f'  emulated_start("{name}", grid, threads, [&] {{ {name}({", ".join(given)}); }});'
    lines.append(start)
    head = f'extern "C" void emulated_call_{name}(const TVMFFIAny* a) {{'
    return "\n".join([head, "  uint32_t grid[3] = {1, 1, 1}, threads[3] = {1, 1, 1};", *lines, "}"])


def _sizes(tags: Sequence[str], first: int) -> list[str]:
    """Statements that take the grid's and the group's sizes from behind the arguments."""
    lines = []
    for i, tag in enumerate(map(str, tags)):
        of, axis = tag.split(".")
        array = {"blockIdx": "grid", "threadIdx": "threads"}[of]
        lines.append(f"  {array}[{'xyz'.index(axis)}] = a[{first + i}].v_int64;")
    return lines


def _index(kind: str, variable: str) -> str:
    place = {"threadIdx": "metal_thread", "blockIdx": "metal_group"}[variable]
    if kind == "uint":
        return f"{place}.x"
    axes = ", ".join(f"{place}.{axis}" for axis in "xyz"[: int(kind[4:])])
    return f"{kind}{{{axes}}}"


def _includes() -> list[str]:
    return [f"-isystem{package(name) / 'include'}" for name in ("tvm", "tvm_ffi")]


def _compile_device(library: Path) -> None:
    """device.cc, by the system's compiler, whose C++ library is the one that TVM uses."""
    command = [*compiler(), *_FLAGS, "-O2", *_includes(), "-o", str(library)]
    command += [str(HERE / "device.cc")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
