"""NVIDIA's runtime compiler as a library, for a machine without nvcc or a C++ compiler.

Through ctypes: it needs a handful of C functions.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from mlcc_targets import TargetError
from mlcc_targets.cuda_files import MAJOR, include_folders, library

_LIBRARY = f"libnvrtc.so.{MAJOR}"
OPTIONS = ("-default-device", "--device-int128", "-std=c++17", "-w", "--ptxas-options=-v")


def available() -> bool:
    """Whether the library and CUDA's headers are installed."""
    return bool(include_folders()) and library(_LIBRARY) is not None


def version() -> str:
    """The name and version of the library. Raises TargetError if it is not installed."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"nvrtc {major.value}.{minor.value}"


def compile_cubin(text: str, arch: str) -> tuple[bytes, str]:
    """(machine code, compiler log). Raises TargetError with its first error."""
    nvrtc = _nvrtc()
    program = ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"k.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={arch}", *OPTIONS]
        options += [f"-I{folder}" for folder in include_folders()]
        values = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), values)
        log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        report = log.rstrip(b"\0").decode(errors="replace")
        if status:
            faults = [line for line in report.splitlines() if "error" in line.lower()]
            raise TargetError(f"nvrtc failed on the generated kernels: {(faults or [report])[0]}")
        return _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), report
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def _nvrtc() -> Any:
    path = library(_LIBRARY)
    if path is None:
        raise TargetError(f'{_LIBRARY} is not here; pip install "mlcc[cuda]"')
    for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins))  # nvrtc asks the loader for it by its bare name
    return ctypes.CDLL(path)


def _read(size_of: Any, get: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    _check(get(program, data))
    return data.raw


def _check(status: int) -> None:
    if status:
        raise TargetError(f"nvrtc failed with its error {status}")
