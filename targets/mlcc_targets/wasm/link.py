"""Links a model's objects and the wasm runtime into a library, and adds its ABI.

The result is one wasm file that imports only functions of npm's @mlc-ai/web-runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.linking.linker import run_zig
from mlcc_targets.wasm.build import runtime

ABI_SECTION = "mlcc.abi"
"""A custom section: WebAssembly.Module.customSections(module, "mlcc.abi") reads it in a tab."""

EXPORTS = (
    "TVMFFIAnyViewToOwnedAny",
    "TVMFFIDataTypeToString",
    "TVMFFIErrorSetRaisedFromCStr",
    "TVMFFIFunctionCall",
    "TVMFFIFunctionGetGlobal",
    "TVMFFIFunctionSetGlobal",
    "TVMFFIGetTypeInfo",
    "TVMFFIObjectDecRef",
    "TVMFFITypeKeyToIndex",
    "TVMFFIWasmFunctionCreate",
    "TVMFFIWasmGetLastError",
    "TVMWasmAllocSpace",
    "TVMWasmFreeSpace",
)
"""Functions that JavaScript calls. Code that no export reaches is left out of the library."""

_FLAGS = (
    "--no-entry",
    "--export-memory",
    "--strip-all",
    "--stack-first",  # a stack overflow raises an error instead of overwriting data
    *("-z", f"stack-size={1 << 20}"),
    f"--max-memory={1 << 31}",  # JavaScript reads addresses as signed numbers
    *(f"--export={name}" for name in EXPORTS),
)


def link_wasm(objects: Sequence[Path], library: Path) -> None:
    """Link wasm objects and the runtime into a library for a browser tab. Raises TargetError."""
    inputs = [str(path) for path in (*objects, *runtime())]
    run_zig(["wasm-ld", *_FLAGS, "-o", str(library), *inputs], library)


def mark_abi(library: Path, abi: str) -> None:
    """Append the ABI's hash to a library, for pages to compare before they run it."""
    name = ABI_SECTION.encode()
    content = bytes([len(name)]) + name + abi.encode()
    with library.open("ab") as file:
        file.write(bytes([0, len(content)]) + content)  # id 0: a custom section
