"""The plugin's own functions, found by their names in TVM."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from mlcc.device.compiled.webgpu import WebGpuDevice


@dataclass(frozen=True)
class KernelTime:
    """How often a kernel ran while it was watched, and for how long in all."""

    name: str
    count: int
    total_ns: int


@dataclass(frozen=True)
class KernelTimes:
    """The result of `profile_stop`."""

    device: str
    clock: str
    kernels: tuple[KernelTime, ...]


def devices() -> tuple[list[WebGpuDevice], str]:
    """The machine's devices, best first, and why there are none."""
    reply = json.loads(_function("devices")())
    return [WebGpuDevice(index=i, **row) for i, row in enumerate(reply["devices"])], reply["reason"]


def fault(error: BaseException) -> str:
    """The kind of a plugin's error."""
    match = re.search(r"mlcc\.webgpu\.(\w+): ", str(error))
    return match[1] if match else ""


def prepare(library: Any, index: int) -> int:
    """Compile all kernels of a loaded library; returns how many."""
    return int(_function("prepare")(library, index))


def start_read(tensors: Sequence[Any]) -> Callable[[], bytes]:
    """Start to copy tensors here; the function, to be called once, waits for these copies alone."""
    finish: Callable[[], bytes] = _function("start_read")(list(tensors))
    return finish


def profile_start(index: int, *, by_wall_clock: bool = False) -> None:
    """Begin to measure each kernel."""
    _function("profile_start")(index, by_wall_clock)


def profile_stop(index: int) -> KernelTimes:
    """Kernel times since `profile_start`."""
    device, clock, kernels = _function("profile_stop")(index)
    rows = tuple(KernelTime(str(name), int(count), int(ns)) for name, count, ns in kernels)
    return KernelTimes(str(device), str(clock), rows)


def counts(index: int) -> dict[str, Any]:
    """Totals since the device was opened."""
    reply: dict[str, Any] = json.loads(_function("counts")(index))
    return reply


def _function(name: str) -> Any:
    return tvm.get_global_func(f"mlcc.webgpu.{name}")
