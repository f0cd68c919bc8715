"""NCCL, by which ranks that each have a GPU exchange what they computed: our binding of it
(runtime/native/nccl), and NVIDIA's library, which PyPI's `nvidia-nccl-cu13` brings.

Loaded when ranks are opened, and not before.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from mlcc.device.tvm.runtime import global_function, open_device, runtime
from mlcc.errors import DeviceError
from mlcc_targets import cuda_files

LIBRARY = Path(__file__).resolve().parents[2] / "lib" / "nccl" / "libmlcc_nccl.so"


@cache
def load() -> int:
    """NCCL's version, as 22907, once both libraries are here. Raises DeviceError."""
    if not LIBRARY.exists():
        raise DeviceError(
            "the binding of NCCL was not built; run: python runtime/native/build_nccl.py"
        )
    if (nccl := cuda_files.nccl()) is None:
        raise DeviceError('ranks on GPUs need NCCL (libnccl.so.2); pip install "mlcc[nccl]"')
    runtime()
    try:
        ctypes.CDLL(str(LIBRARY))
        version: int = _function("load")(nccl)
    except (OSError, RuntimeError) as error:
        raise DeviceError(f"NCCL does not load: {error}") from error
    return version


def unique_id() -> bytes:
    """What the ranks of one model have in common. Raises DeviceError."""
    load()
    return bytes(_called("unique_id"))


def join(name: bytes, rank: int, count: int, device: int) -> Any:
    """A rank's collectives, as the module that its library imports, once all have joined. Raises
    DeviceError."""
    load()
    open_device("cuda", device).sync()  # this thread's GPU from now on
    return _called("join", name, rank, count, device)


def abort(collectives: Any) -> None:
    """From whichever thread: what waits for the other ranks ends."""
    collectives["abort"]()


def _called(name: str, *arguments: Any) -> Any:
    try:
        return _function(name)(*arguments)
    except RuntimeError as error:
        raise DeviceError(str(error).strip().splitlines()[-1]) from error


def _function(name: str) -> Any:
    found = global_function(f"mlcc.nccl.{name}")
    assert found is not None, "the binding registers it"
    return found
