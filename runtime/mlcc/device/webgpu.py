"""GPUs behind WebGPU (target vulkan): which there are, what their errors mean, reading without
waiting for all, time by kernel.

The Python side of the plugin in `mlcc_targets/native`, whose functions TVM knows by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.device.tvm_runtime import global_function
from mlcc.errors import DeviceError, DeviceLostError, MlccError, OutOfMemoryError

KIND = "webgpu"
"""TVM's name of the device."""
_ERROR = re.compile(r"mlcc\.webgpu\.(\w+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class WebGpuDevice:
    """One GPU, or a driver that computes on the CPU (`software`). `index` is TVM's device id."""

    index: int
    name: str
    vendor: str
    driver: str
    backend: str
    """vulkan or metal."""
    type: str
    """discrete, integrated, cpu or other."""
    software: bool
    f16: bool
    subgroups: bool
    subgroup_min: int
    """Threads; 0 if the driver does not say."""
    subgroup_max: int
    timestamps: bool
    limits: Mapping[str, int]
    """max_storage_binding_bytes, max_buffer_bytes, workgroup_bytes, workgroup_invocations,
    workgroups_per_dimension, storage_buffers_per_stage."""

    def __str__(self) -> str:
        kind = "software, on the CPU" if self.software else self.type
        return f"{self.index}: {self.name} ({kind}; {self.driver or self.backend})"


@dataclass(frozen=True)
class KernelTime:
    """How often a kernel ran while it was watched, and for how long in all."""

    name: str
    count: int
    total_ns: int


@dataclass(frozen=True)
class KernelTimes:
    """What `profile_stop` returns, the slowest kernel first."""

    device: str
    clock: str
    """What the times are: of timestamp queries, or wall time around each submit."""
    kernels: tuple[KernelTime, ...]


def devices() -> tuple[list[WebGpuDevice], str]:
    """The machine's devices, best first, and why there are none ("" if there are some)."""
    from mlcc_targets import native

    function = global_function("mlcc.webgpu.devices")
    if function is None:
        return [], native.why_absent() or "TVM did not load the WebGPU plugin"
    told: dict[str, Any] = json.loads(function())
    found = [WebGpuDevice(index=i, **row) for i, row in enumerate(told["devices"])]
    return found, _ERROR.sub(r"\2", told["reason"])


def translate(error: RuntimeError, doing: str) -> MlccError:
    """The typed error of what the plugin reported while `doing`."""
    match = _ERROR.search(str(error))
    if match is None:
        return DeviceError(f"the device failed while {doing}: {str(error).splitlines()[-1]}")
    fault, message = match[1], match[2].strip()
    if fault == "DeviceLost":
        return DeviceLostError(f"the GPU was lost while {doing}: {message}")
    if fault == "OutOfMemory":
        return OutOfMemoryError(
            f"the GPU's memory is full while {doing}: {message}; use a smaller --context or "
            "--max-batch, or compile with a smaller --quant"
        )
    return DeviceError(f"the GPU failed while {doing}: {message}")


def prepare(library: Any, index: int) -> int:
    """Compile all kernels of a loaded TVM library, which else happens at their first use.

    Returns how many. Raises RuntimeError for `translate`.
    """
    return int(_function("prepare")(library, index))


def start_read(tensors: Sequence[Any]) -> Callable[[], bytes]:
    """Start to copy tensors of one device here, behind what was recorded before.

    The function that comes back is to be called once: it waits for these copies, not for what was
    recorded later, and gives the bytes of all tensors. Both raise RuntimeError for `translate`.
    """
    finish: Callable[[], bytes] = _function("start_read")(list(tensors))
    return finish


def profile_start(index: int, *, by_wall_clock: bool = False) -> None:
    """Begin to measure each kernel; slower, because the kernels no longer run back to back.

    by_wall_clock: around each kernel's own submit, as where the device has no timestamps.
    """
    _function("profile_start")(index, by_wall_clock)


def profile_stop(index: int) -> KernelTimes:
    """What was measured since `profile_start`."""
    told = json.loads(_function("profile_stop")(index))
    kernels = sorted((KernelTime(**row) for row in told["kernels"]), key=lambda k: -k.total_ns)
    return KernelTimes(told["device"], told["clock"], tuple(kernels))


def counts(index: int) -> dict[str, Any]:
    """Totals since the device was opened: dispatches, submits, reads that were started and those of
    them that the device has finished, bytes in use and the like."""
    told: dict[str, Any] = json.loads(_function("counts")(index))
    return told


def _function(name: str) -> Any:
    function = global_function(f"mlcc.webgpu.{name}")
    if function is None:
        raise DeviceError("TVM did not load the WebGPU plugin; see `mlcc targets`")
    return function
