"""Links a model's objects with the wasm runtime into a library, and marks it with its ABI.

The result is one wasm file that imports what npm's @mlc-ai/web-runtime provides and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.linker import find_tool, run
from mlcc_targets.wasm.build import FOLDER, runtime

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
"""What JavaScript calls. All else that no export reaches is left out of the library."""

_FLAGS = (
    "-O1",  # from -O2 on, binaryen takes 17 s to make it a fifth smaller
    "-fwasm-exceptions",
    "--no-entry",
    "-sSTANDALONE_WASM=1",  # WASI for the console; no JavaScript of emscripten's
    "-sWASM_BIGINT=1",
    "-sALLOW_MEMORY_GROWTH=1",
    "-Wl,--strip-all",
    "-sEXPORTED_FUNCTIONS=" + ",".join(f"_{name}" for name in EXPORTS),
    f"--js-library={FOLDER / 'src' / 'page.js'}",
)


def link_wasm(objects: Sequence[Path], library: Path) -> None:
    """Link wasm objects and the runtime into a library for a browser tab. Raises TargetError."""
    inputs = [str(path) for path in (*objects, *runtime())]
    command = [find_tool("emcc"), *_FLAGS, "-o", str(library), *inputs]
    run(command, library, environment=_environment())


def mark_abi(library: Path, abi: str) -> None:
    """Append the ABI's hash to a library, for a page to compare before it runs any of it."""
    name = ABI_SECTION.encode()
    content = bytes([len(name)]) + name + abi.encode()
    with library.open("ab") as file:
        file.write(bytes([0, len(content)]) + content)  # id 0: a custom section


def _environment() -> dict[str, str]:
    """Debian puts `acorn`, which emcc's own JavaScript needs, where node does not look."""
    folders = [os.environ.get("NODE_PATH", ""), "/usr/share/nodejs"]
    return {**os.environ, "NODE_PATH": os.pathsep.join(filter(None, folders))}
