"""Lists NVIDIA GPUs through TVM's CUDA runtime.

No CUDA compiler is needed: libraries carry machine code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from mlcc.device.tvm.runtime import load_cuda, runtime
from mlcc.errors import DeviceError, DeviceLostError, MlccError, OutOfMemoryError
from mlcc.util.fast_dataclass import fast_dataclass
from mlcc_targets.cuda import WITH_WGMMA
from mlcc_targets.cuda_files import MAJOR

KIND = "cuda"
"""TVM's name of the device."""
_MOST = 64
"""More GPUs than one machine has."""
_LOST = ("illegal", "launch failure", "launch_failed", "misaligned", "unrecoverable")
"""Of CUDA's errors, those after which the process cannot use the device again."""


@fast_dataclass(frozen=True)
class CudaDevice:
    """One GPU. `index` is TVM's device id."""

    index: int
    name: str
    compute: str
    """Compute capability, as in 9.0; a library made for sm_90 runs on it."""
    memory_bytes: int
    free_bytes: int
    """Bytes that no process has allocated."""
    multiprocessors: int

    def __str__(self) -> str:
        return f"{self.index}: {self.name} ({self.memory_bytes / 1e9:.0f} GB, sm_{self.number})"

    @property
    def number(self) -> int:
        """The compute capability as architectures spell it: 90."""
        return int(self.compute.replace(".", ""))

    @property
    def arch(self) -> str:
        """The architecture to compile for. Not sm_90a, until a card has run its kernels."""
        return f"sm_{self.number}"

    def cannot_run(self, archs: Sequence[str]) -> str:
        """Why a library of these architectures does not run here; "" if it does.

        Newer ones run the PTX of the oldest, where there is no machine code for them.
        """
        numbers = [int(arch.removeprefix("sm_")) for arch in archs if arch not in WITH_WGMMA]
        own = f"{self.arch}a" in WITH_WGMMA.intersection(archs)
        if not archs or own or (numbers and self.number >= min(numbers)):
            return ""
        return (
            f"{self.name} is sm_{self.number}, the model was compiled for {', '.join(archs)}; "
            f"compile it again with --arch {self.arch}"
        )


def devices() -> tuple[list[CudaDevice], str]:
    """The machine's devices, and why there are none ("" if there are some)."""
    try:
        load_cuda()
    except DeviceError as error:
        return [], error.message
    found = []
    for index in range(_MOST):
        device = runtime().device(KIND, index)
        if not device.exist:
            break
        found.append(_describe(index, device))
    return found, "" if found else _why_none()


def _describe(index: int, device: Any) -> CudaDevice:
    return CudaDevice(
        index=index,
        name=device.device_name,
        compute=device.compute_version,
        memory_bytes=int(device.total_global_memory),
        free_bytes=int(device.available_global_memory),
        multiprocessors=int(device.multi_processor_count),
    )


def _why_none() -> str:
    version = driver_version()
    if 0 < version < 1000 * MAJOR:
        return (
            f"NVIDIA's driver supports CUDA {version // 1000}.{version % 1000 // 10} only; "
            f"install driver 580 or later, for CUDA {MAJOR}"
        )
    return "NVIDIA's driver finds no GPU; `nvidia-smi` says more"


def translate(error: RuntimeError, doing: str) -> MlccError:
    """The typed error of what TVM's CUDA runtime reported while `doing`."""
    message = str(error).strip().splitlines()[-1]
    if "out of memory" in message.lower():
        return OutOfMemoryError(
            f"the GPU's memory is full while {doing}; use a smaller --context or --max-batch, or "
            "compile with a smaller --quant"
        )
    if any(fault in message.lower() for fault in _LOST):
        return DeviceLostError(f"the GPU was lost while {doing}: {message}")
    return DeviceError(f"the GPU failed while {doing}: {message}")


def driver_version() -> int:
    """The CUDA that the driver supports, as 1000 * major + 10 * minor; 0 if it does not say."""
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return version.value
