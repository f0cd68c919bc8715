"""TVM modules of hand-written WGSL, so that the plugin is tested without the compiler."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"
"""Before scripts of tests: TVM's FFI else imports torch, two seconds (`tvm_import.py`)."""
_TYPES = {"buffer": (3, 64, 1), "int32": (0, 32, 1), "int64": (0, 64, 1), "float32": (2, 32, 1)}


@dataclass(frozen=True)
class Kernel:
    """One kernel; `writes` has an entry for each buffer among the arguments."""

    name: str
    wgsl: str
    arguments: Sequence[str]
    writes: Sequence[int]
    axes: Sequence[str] = ("blockIdx.x", "threadIdx.x")


def module_bytes(*kernels: Kernel) -> bytes:
    """A module as serialized by TVM's WGSL generator."""
    signatures = b"".join(_string(k.name) + _signature(k) for k in kernels)
    sources = b"".join(_string(k.name) + _string(k.wgsl) for k in kernels)
    count = struct.pack("<Q", len(kernels))
    return count + signatures + count + sources


def load(*kernels: Kernel) -> Any:
    """The module, as the plugin loads it."""
    function = tvm.get_global_func("ffi.Module.load_from_bytes.webgpu")
    return function(module_bytes(*kernels))


def pointer(tensor: Any) -> ctypes.c_void_p:
    """A tensor as TVM's host code hands it to a kernel."""
    return ctypes.c_void_p(tensor.data_ptr())


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _signature(kernel: Kernel) -> bytes:
    types = b"".join(struct.pack("<BBH", *_TYPES[name]) for name in kernel.arguments)
    access = f"paramWriteAccess:[{','.join(map(str, kernel.writes))}]"
    tags = [*kernel.axes, access]
    return (
        _string(kernel.name)
        + struct.pack("<Q", len(kernel.arguments))
        + types
        + struct.pack("<Q", len(tags))
        + b"".join(map(_string, tags))
        + struct.pack("<Q", 0)
    )


def scale_add(name: str = "scale_add", threads: int = 64) -> Kernel:
    """y[i] = x[i] * factor + add, guarded by n, as TVM would write it."""
    wgsl = f"""
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read_write> y : array<f32>;
struct PODArgs {{ n: i32, factor: f32, add: f32, packGridDimX: u32 }}
@group(0) @binding(2) var<uniform> podArgs : PODArgs;
@compute @workgroup_size({threads}, 1, 1)
fn {name}(@builtin(workgroup_id) blockIdx : vec3<u32>,
          @builtin(num_workgroups) gridDim : vec3<u32>,
          @builtin(local_invocation_id) threadIdx : vec3<u32>) {{
  if (blockIdx.z * gridDim.x + blockIdx.x > podArgs.packGridDimX) {{ return; }}
  let i : i32 = i32(blockIdx.z * gridDim.x + blockIdx.x) * {threads}i + i32(threadIdx.x);
  if (i < podArgs.n) {{ y[i] = x[i] * podArgs.factor + podArgs.add; }}
}}
"""
    return Kernel(name, wgsl, ["buffer", "buffer", "int32", "float32", "float32"], [0, 1])


def count_groups() -> Kernel:
    """Adds 1 to seen[block]: shows which workgroups ran, and how often."""
    wgsl = """
@group(0) @binding(0) var<storage, read_write> seen : array<i32>;
struct PODArgs { packGridDimX: u32 }
@group(0) @binding(1) var<uniform> podArgs : PODArgs;
@compute @workgroup_size(1, 1, 1)
fn count_groups(@builtin(workgroup_id) blockIdx : vec3<u32>,
                @builtin(num_workgroups) gridDim : vec3<u32>) {
  if (blockIdx.z * gridDim.x + blockIdx.x > podArgs.packGridDimX) { return; }
  let at : u32 = blockIdx.z * gridDim.x + blockIdx.x;
  seen[at] = seen[at] + 1i + i32(blockIdx.y) * 1000i;
}
"""
    return Kernel(
        "count_groups", wgsl, ["buffer"], [1], ["blockIdx.x", "blockIdx.y", "threadIdx.x"]
    )
