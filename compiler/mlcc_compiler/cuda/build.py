"""Connects TVM's CUDA generator with `code.py`, so that a library contains machine code.

TVM compiles the kernels' text when its CUDA runtime makes a module of them; without that runtime it
stores the text, and a serving machine would have to compile it. So the runtime is loaded here too,
on machines without a driver with a stub of the driver's library.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mlcc.util.machine import machine
from mlcc_compiler.cuda.code import DeviceCode, compile_cuda, table
from mlcc_compiler.ir._tvm import tvm
from mlcc_targets import Target, TargetError
from mlcc_targets.cuda_files import has_driver, load_tvm_runtime
from mlcc_targets.linking.elf import link_elf
from mlcc_targets.linking.linker import run_zig

_CALLBACK = "tvm_callback_cuda_compile"
_DRIVER = (
    "cuDeviceGetName", "cuFuncSetAttribute", "cuGetErrorName", "cuGetErrorString",
    "cuLaunchKernelEx", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload",
    "cuTensorMapEncodeTiled",
)  # fmt: skip
"""Symbols of the driver that TVM's runtime needs."""
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


@contextlib.contextmanager
def cuda_code_in(target: Target, dump: Path | None = None) -> Iterator[list[DeviceCode]]:
    """Inside, TVM's CUDA kernels become machine code for the row's architectures.

    Each result is appended to the list; with `dump`, the text and the register report are written
    there. Does nothing for other rows. Raises TargetError.
    """
    made: list[DeviceCode] = []
    faults: list[TargetError] = []
    if target.generator != "cuda":
        yield made
        return

    def compile_text(text: str) -> bytes:
        try:
            code = compile_cuda(text, target.archs)
        except TargetError as error:
            faults.append(error)
            raise
        made.append(code)
        if dump is not None:
            dump.mkdir(parents=True, exist_ok=True)
            (dump / "kernels.cu").write_text(text, encoding="utf-8")
            (dump / "kernels.txt").write_text(table(code.kernels), encoding="utf-8")
        return code.binary

    load_runtime()
    before = tvm.get_global_func(_CALLBACK)
    tvm.register_global_func(_CALLBACK, compile_text, override=True)
    try:
        yield made
    except Exception as error:
        if faults:  # TVM lost its type on the way
            raise faults[0] from error
        raise
    finally:
        tvm.register_global_func(_CALLBACK, before, override=True)


def load_runtime() -> None:
    """Load TVM's CUDA runtime into the compiler's process, once. Raises TargetError."""
    if tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True) is not None:
        return
    folder = Path(tvm.base._LOADED_LIBS["tvm_runtime"]._name).resolve().parent
    if has_driver():
        reason = load_tvm_runtime(folder)
    else:
        with tempfile.TemporaryDirectory() as name:  # a loaded library needs its file no more
            reason = load_tvm_runtime(folder, str(stand_in(Path(name))))
    if reason:
        raise TargetError(reason)


def stand_in(folder: Path) -> Path:
    """A stub libcuda.so.1 in `folder` whose functions all report that there is no device."""
    text = "".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in _DRIVER)
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text(text, encoding="utf-8")
    made = folder / "driver.o"
    run_zig(
        ["cc", "-target", f"{machine()}-linux", "-fPIC", "-c", str(source), "-o", str(made)], made
    )
    link_elf([made], library, machine(), needed=())
    return library
