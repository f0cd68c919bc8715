"""libmlcc_executor by ctypes: where it is, and the records of its C API (runtime/native).

The standard library alone. What the records mean is said in `include/executor.h`; `compiled.py` is
the Executor port over it.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path
from typing import Any

from mlcc.errors import DeviceError

ABI = 2
"""MLCC_EXECUTOR_ABI."""
_FOLDER = Path(__file__).resolve().parent / "lib"
LIBRARY = _FOLDER / f"libmlcc_executor.{'dylib' if sys.platform == 'darwin' else 'so'}"

OK, ARGUMENT, NO_LIBRARY, INTERFACE, WEIGHTS, DEVICE, MEMORY, STATE, UNSUPPORTED, LOST = range(10)
"""mlcc_executor_status."""
DEVICES = {"cpu": 0, "webgpu": 1}
"""mlcc_device_kind."""
KINDS = {"paged": 0, "window": 1, "state": 2}
"""mlcc_group_kind."""

Pointer = c_void_p
PROGRESS = CFUNCTYPE(None, c_void_p, c_int64)


class Weight(Structure):
    """mlcc_weight."""

    _fields_ = (
        ("path", c_char_p),
        ("offset", c_uint64),
        ("dtype", c_char_p),
        ("dimensions", c_int32),
        ("shape", POINTER(c_int64)),
    )


class Group(Structure):
    """mlcc_group."""

    _fields_ = tuple((name, c_int32) for name in ("kind", "page_size", "pool", "most_pages"))


class Cache(Structure):
    """mlcc_cache."""

    _fields_ = (
        ("group", c_int32),
        ("dtype", c_char_p),
        ("dimensions", c_int32),
        ("shape", POINTER(c_int64)),
    )


class Table(Structure):
    """mlcc_table."""

    _fields_ = (("offset", c_int32), ("entries", c_int32))


class Layout(Structure):
    """mlcc_step_layout."""

    _fields_ = (
        *((name, Table) for name in ("header", "sequences", "rows", "copies", "tokens", "pages")),
        ("words", c_int32),
    )


class Bounds(Structure):
    """mlcc_bounds."""

    _fields_ = tuple(
        (name, c_int32)
        for name in (
            "vocabulary", "context", "tokens", "sequences", "rows", "adjust_rows", "adjust_words",
        )
    )  # fmt: skip


class Options(Structure):
    """mlcc_executor_options."""

    _fields_ = (
        ("abi", c_int32),
        ("threads", c_int32),
        ("library", c_char_p),
        ("interface", c_char_p),
        ("functions", POINTER(c_char_p)),
        ("num_functions", c_int32),
        ("num_weights", c_int32),
        ("weights", POINTER(Weight)),
        ("num_groups", c_int32),
        ("num_caches", c_int32),
        ("groups", POINTER(Group)),
        ("caches", POINTER(Cache)),
        ("layout", Layout),
        ("bounds", Bounds),
        ("device", c_int32),
        ("device_index", c_int32),
        ("progress", PROGRESS),
        ("progress_context", c_void_p),
    )


class Kernel(Structure):
    """mlcc_kernel."""

    _fields_ = (
        ("name", c_char * 64),
        ("shape", c_char * 64),
        ("calls", c_int64),
        ("nanoseconds", c_int64),
        ("bytes", c_int64),
    )


class Use(Structure):
    """mlcc_use."""

    _fields_ = tuple((name, c_int64) for name in ("workspace", "replays", "nanoseconds"))


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "abi": (c_int32,),
    "error": (c_char_p,),
    "webgpu": (c_int32, c_char_p, c_char_p),
    "webgpu_devices": (c_int32, POINTER(c_char_p)),
    "webgpu_close": (c_int32, c_int32),
    "open": (c_int32, POINTER(Options), POINTER(Pointer)),
    "step": (c_int32, Pointer, POINTER(Pointer)),
    "adjustments": (c_int32, Pointer, POINTER(Pointer)),
    "submit": (c_int32, Pointer, c_int32, POINTER(c_int64)),
    "collect": (
        c_int32, Pointer, c_int64, Pointer, Pointer, POINTER(c_int32), Pointer, Pointer,
        POINTER(c_int32),
    ),
    "forget": (None, Pointer, c_int64),
    "logits": (c_int32, Pointer, POINTER(c_float), c_size_t),
    "likelihood": (c_int32, Pointer, POINTER(c_int32), c_int32, POINTER(c_double)),
    "use": (c_int32, Pointer, POINTER(Use)),
    "watch": (c_int32, Pointer, c_int32),
    "kernels": (c_int32, Pointer, POINTER(Kernel), c_int32, POINTER(c_int32)),
    "copy": (c_int32, Pointer, c_int64, POINTER(c_int64)),
    "counts": (c_int32, Pointer, POINTER(c_char_p)),
    "close": (None, Pointer),
}  # fmt: skip
"""What each function returns and takes."""


def look_in(folder: Path) -> None:
    """A program that brings the library has it in another folder than a package's."""
    global LIBRARY
    LIBRARY = folder / LIBRARY.name


def why_absent() -> str:
    """Why there is no library, in one line that says what to do; "" if there is one."""
    if LIBRARY.exists():
        return ""
    try:
        return LIBRARY.with_name("absent.txt").read_text(encoding="utf-8").strip()
    except OSError:
        return "the executor was not built; run: python runtime/native/build_executor.py"


@cache
def load() -> ctypes.CDLL:
    """The library, with the types of its functions. Raises DeviceError if it is not there, does
    not load, or is of other sources."""
    if reason := why_absent():
        raise DeviceError(reason)
    try:
        library = ctypes.CDLL(str(LIBRARY))
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = library[f"mlcc_executor_{name}"]
            function.restype, function.argtypes = result, arguments
            setattr(library, name, function)
    except (OSError, AttributeError) as error:
        raise DeviceError(f"{LIBRARY}: {error}; install mlcc again") from error
    if library.abi() != ABI:
        raise DeviceError(f"{LIBRARY} is of another version of mlcc; install mlcc again")
    return library
