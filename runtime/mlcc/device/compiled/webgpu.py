"""Lists the GPUs that are reachable through WebGPU (target vulkan).

libmlcc_executor contains the plugin of `mlcc_targets/native`, which uses wgpu-native from the
Python package `wgpu`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from mlcc.util import executor_library
from mlcc.util.fast_dataclass import fast_dataclass

KIND = "webgpu"
"""TVM's name of the device."""
_PREFIX = re.compile(r"mlcc\.webgpu\.\w+: ")


@fast_dataclass(frozen=True)
class WebGpuDevice:
    """One GPU, or a driver that computes on the CPU (`software`). `index` is TVM's device id."""

    index: int
    name: str
    vendor: str
    driver: str
    backend: str
    """vulkan, d3d12 or metal."""
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

    @property
    def least_subgroup(self) -> int:
        """Threads that a subgroup has at least; 0 = none, or the driver does not say."""
        if not self.subgroups:
            return 0
        if self.backend == "metal":
            return 32  # each GPU of Apple's, by "Metal feature set tables"
        from mlcc.device.compiled.vulkan import least_subgroups  # ctypes, which a CPU never needs

        return self.subgroup_min or least_subgroups().get(self.name, 0)

    def __str__(self) -> str:
        kind = "software, on the CPU" if self.software else self.type
        by = dict.fromkeys((self.backend, self.driver))
        by.pop("vulkan" if self.driver else "", None)
        return f"{self.index}: {self.name} ({kind}; {', '.join(filter(None, by))})"


@cache
def library() -> executor_library.Module:
    """libmlcc_executor, set up with the path of wgpu-native. Raises DeviceError."""
    from mlcc_targets import native

    found = executor_library.load()
    native.prepare_drivers()
    wgpu = native.wgpu_library()
    found.webgpu(bytes(wgpu) if wgpu else b"", native.why_no_wgpu())
    return found


def devices() -> tuple[list[WebGpuDevice], str]:
    """The machine's devices, best first, and the reason if there are none."""
    if reason := executor_library.why_absent():
        return [], reason
    reply: dict[str, Any] = json.loads(library().webgpu_devices())
    found = [WebGpuDevice(index=i, **row) for i, row in enumerate(reply["devices"])]
    return found, _PREFIX.sub("", reply["reason"])
