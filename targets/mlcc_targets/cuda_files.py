"""Finds CUDA's files on this machine: a toolkit, or NVIDIA's packages from PyPI.

Finds and loads only; the compiler (`cuda_code.py`) and the runtime (`device/tvm/cuda.py`) use them.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

MAJOR = 13
"""The major version of CUDA that TVM's runtime library links."""
NCCL = "libnccl.so.2"
_COMPILER = ("bin/nvcc", "nvvm/bin/cicc", "include/cuda_fp16.h", "include/crt/mma.h")


def toolkit() -> Path | None:
    """The root of a CUDA toolkit with nvcc: $CUDA_HOME, NVIDIA's packages, or nvcc's own."""
    for root in _roots():
        if all((root / name).exists() for name in _COMPILER):
            return root
    nvcc = shutil.which("nvcc")
    return Path(nvcc).resolve().parent.parent if nvcc else None


def library(name: str) -> str | None:
    """A shared library of CUDA as a path, or as the bare name if the loader knows it."""
    for root in _roots():
        for folder in ("lib", "lib64"):
            if (root / folder / name).exists():
                return str(root / folder / name)
    return name if _loads(name) else None


def program(name: str) -> str | None:
    """A program of CUDA, such as nvdisasm: of a toolkit, of NVIDIA's packages, or on the path."""
    for root in _roots():
        if (root / "bin" / name).exists():
            return str(root / "bin" / name)
    return shutil.which(name)


def nccl() -> str | None:
    """NCCL's library, likewise; NVIDIA's package has it in a separate folder."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(place) / "nccl" / "lib" / NCCL).exists():
            return str(path)
    return library(NCCL)


def has_driver() -> bool:
    """Whether NVIDIA's driver library is installed (a GPU may still be missing)."""
    return _loads("libcuda.so.1")


def include_folders() -> list[Path]:
    """Folders of CUDA's headers, for a compiler that is not nvcc."""
    found = [root / "include" for root in _roots() if (root / "include/cuda_fp16.h").exists()]
    return [folder for root in found[:1] for folder in (root, root / "cccl") if folder.exists()]


def load_tvm_runtime(folder: Path, driver: str = "libcuda.so.1") -> str:
    """Load TVM's CUDA runtime from `folder` into a process that has imported tvm.

    `driver` may be a stand-in without a GPU. Returns "", or why it cannot be loaded.
    """
    runtime = library(f"libcudart.so.{MAJOR}")
    if runtime is None:
        return f'libcudart.so.{MAJOR} is not here; pip install "mlcc[cuda-runtime]"'
    try:
        for name in (runtime, driver, str(folder / "libtvm_runtime_cuda.so")):
            ctypes.CDLL(name)  # later libraries find the earlier ones by name
    except OSError as error:
        return f"TVM's CUDA runtime does not load: {error}"
    return ""


def _roots() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place) / f"cu{MAJOR}"


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
