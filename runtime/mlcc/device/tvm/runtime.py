"""The only module of the runtime that imports tvm: in runtime mode, after setting its threads.

Runtime mode does not load TVM's compiler, unless this process has loaded it already.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mlcc.device.threads import set_threads
from mlcc.errors import DeviceError
from mlcc_targets.cuda_files import has_driver, load_tvm_runtime
from mlcc_targets.tvm_import import importing_tvm


def runtime() -> Any:
    """TVM, imported."""
    if "tvm" not in sys.modules:
        os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    if "TVM_NUM_THREADS" not in os.environ:
        set_threads(None)
    with importing_tvm():
        import tvm
        import tvm.runtime.vm

    return tvm


def global_function(name: str) -> Any | None:
    """A function that a loaded library registered, or None."""
    return runtime().get_global_func(name, allow_missing=True)


def load_cuda() -> None:
    """Load TVM's CUDA runtime, which its runtime mode does not load.

    Raises DeviceError that says what to install.
    """
    if global_function("ffi.Module.load_from_bytes.cuda") is not None:
        return
    if not has_driver():
        raise DeviceError(
            "NVIDIA's driver (libcuda.so.1) is not on this machine; install driver 580 or later, "
            "or compile with --target cpu"
        )
    folder = Path(runtime().base._LOADED_LIBS["tvm_runtime"]._name).resolve().parent
    if reason := load_tvm_runtime(folder):
        raise DeviceError(reason)


def open_device(kind: str, index: int) -> Any:
    """A TVM device. Raises DeviceError if it does not exist."""
    tvm = runtime()
    if kind == "cuda":
        load_cuda()
    device = tvm.cpu() if kind == "cpu" else tvm.device(kind, index)
    if kind != "cpu" and not device.exist:
        raise DeviceError(
            f"there is no {kind} device {index}; `mlcc targets` lists this machine's devices"
        )
    return device
