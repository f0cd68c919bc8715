"""Device selection: finds the GPU for a library and checks it against the library's target.

Delegates to a module per kind of device (`compiled.webgpu`, `tvm.cuda`). Allocates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any

from mlcc.artifact.schema import TargetInfo
from mlcc.device.compiled import webgpu
from mlcc.device.device import DeviceHandle
from mlcc.device.tvm import cuda
from mlcc.device.tvm.runtime import runtime
from mlcc.errors import DeviceError
from mlcc.util.extras import OF_DEVICE, advice, is_here
from mlcc.util.memory import DeviceMemory, available_bytes
from mlcc_targets import Target, TargetError, get_target
from mlcc_targets.wgsl import LIMITS

METAL = "metal"
"""TVM's name of the device."""


def select_device(target: TargetInfo, wanted: int | None) -> DeviceHandle:
    """The GPU with index `wanted` (None = the best) for a library of this target.

    Raises DeviceError if there is no such GPU, or if it lacks a feature the library needs.
    """
    if target.device == webgpu.KIND:
        return _webgpu(target, wanted)
    if target.device == cuda.KIND:
        return _cuda(target, wanted)
    if not (names := _metal_names()):
        raise DeviceError(f"this machine has no {target.device} device; compile with --target cpu")
    return DeviceHandle(METAL, _number(wanted, len(names)))


def list_devices(kind: str) -> tuple[list[str], str]:
    """Descriptions of the devices of a kind, and the reason if there are none."""
    found: Sequence[object]
    if kind == webgpu.KIND:
        found, reason = webgpu.devices()
    elif not is_here("tvm"):
        found, reason = [], f"this needs {advice('tvm', OF_DEVICE[kind])}"
    elif kind == cuda.KIND:
        found, reason = cuda.devices()
    else:
        found = [f"{i}: {name}" for i, name in enumerate(_metal_names() if kind == METAL else [])]
        reason = "" if found else f"this machine has no {kind} device"
    return [str(device) for device in found], reason


def compile_flags(target_name: str, wanted: int | None) -> tuple[str, ...]:
    """Flags of `mlcc compile` for the device of this machine.

    Raises DeviceError if there is none: before a compile that could not be used.
    """
    try:
        row = get_target(target_name)
    except TargetError:
        return ()  # the compiler has the better message
    if row.run_missing:
        raise DeviceError(f"target '{target_name}' {row.run_missing}; use --target cpu here")
    if not row.generator:
        if wanted is not None:
            raise DeviceError(f"target '{target_name}' runs on the CPU; leave out --device")
        return ()
    if row.device == webgpu.KIND:
        found, reason = webgpu.devices()
        _some(found, target_name, reason)
        return _webgpu_flags(row, found[_number(wanted, len(found))])
    if row.device == cuda.KIND:
        gpus, reason = cuda.devices()
        _some(gpus, target_name, reason)
        return ("--arch", gpus[_number(wanted, len(gpus))].arch)
    return ()


def _webgpu_flags(row: Target, device: webgpu.WebGpuDevice) -> tuple[str, ...]:
    """Flags for what the row assumes and the device lacks."""
    lacks = row.webgpu_limits is not None and _lacking(device, row.limits)
    flags = ("--no-f16" if not device.f16 else "", "--webgpu-limits" if lacks else "")
    return tuple(filter(None, flags))


def _lacking(device: webgpu.WebGpuDevice, limits: Mapping[str, Any]) -> str:
    """The first limit that is beyond the device's, and what to type; "" if there is none."""
    has = device.limits
    for limit, most in (
        ("storage_binding_bytes", has["max_storage_binding_bytes"]),
        ("workgroup_bytes", has["workgroup_bytes"]),
        ("workgroup_invocations", has["workgroup_invocations"]),
    ):
        if most < (needed := limits.get(limit, 0)):
            advice = _LESS if needed > LIMITS[limit] else "use another --device or --target cpu"
            of = limit.replace("_", " ")
            return f"allows {of} up to {most}, the model needs {needed}; {advice}"
    wanted = limits.get("least_subgroup", 0)
    if wanted and device.least_subgroup < wanted:
        least = device.least_subgroup
        found = f"subgroups of {least} threads" if least else "no subgroups that it reports"
        return f"has {found}, the model needs {wanted}; {_LESS}"
    return ""


_LESS = "compile it again with --webgpu-limits, or use another --device"


def _metal_names() -> list[str]:
    """A Mac's GPUs; TVM's own runtime lists them."""
    devices = (runtime().device(METAL, index) for index in count())
    return [device.device_name for device in takewhile(lambda d: d.exist, devices)]


def _some(found: Sequence[object], target: str, reason: str) -> None:
    if not found:
        raise DeviceError(f"no GPU for target '{target}': {reason}")


def _cuda(target: TargetInfo, wanted: int | None) -> DeviceHandle:
    found, reason = cuda.devices()
    _some(found, target.name, reason)
    device = found[_number(wanted, len(found))]
    if why := device.cannot_run(target.options.get("archs", ())):
        raise DeviceError(why)
    return DeviceHandle(cuda.KIND, device.index, DeviceMemory(device.free_bytes), cuda.translate)


def _webgpu(target: TargetInfo, wanted: int | None) -> DeviceHandle:
    found, reason = webgpu.devices()
    _some(found, target.name, reason)
    device = found[_number(wanted, len(found))]
    options = target.options
    if options.get("f16") and not device.f16:
        raise DeviceError(
            f"{device.name} does not compute in float16, for which the model was compiled; "
            "compile it again with --no-f16"
        )
    if lacks := _lacking(device, options):
        raise DeviceError(f"{device.name} {lacks}")
    note = ""
    if device.software:
        note = f"{device.name} is a software driver: it computes on the CPU, slowly"
    free = available_bytes() if device.software else None  # WebGPU does not report free memory
    memory = DeviceMemory(free, device.limits["max_storage_binding_bytes"])
    return DeviceHandle(webgpu.KIND, device.index, memory, note=note)


def _number(wanted: int | None, count: int) -> int:
    if wanted is not None and not 0 <= wanted < count:
        raise DeviceError(
            f"there is no device {wanted}; `mlcc targets` lists this machine's: 0 .. {count - 1}"
        )
    return wanted or 0
