"""Compiles the wasm runtime that every model library for a browser tab is linked with.

The sources are TVM's, out of the installed wheels, and ours, in `src/`. They are compiled once a
machine, in half a minute, into the XDG cache; the name of the folder is a hash of all they depend
on. Knows nothing of models. The standard library and filelock; TVM is found, not imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mlcc_targets.linker import find_tool, output_of, run
from mlcc_targets.target import TargetError

FOLDER = Path(__file__).resolve().parent
UNITS = ("runtime", "host", "page")
"""`src/UNIT.cc` becomes UNIT.o."""
FLAGS = (
    "-std=c++17",
    "-Oz",
    "-fwasm-exceptions",  # an error of TVM is one in JavaScript; without, it ends the library
    "-D__PRETTY_FUNCTION__=__func__",  # in TVM's errors: shorter, and names no folder
    "-Wno-ignored-attributes",
)
_PARTIAL = ".partial"
_EXPORTING = ("TVM_DLL", "TVM_RUNTIME_DLL", "TVM_FFI_DLL")
"""TVM's macros that export its whole C API; libraries export what JavaScript calls."""
_INCLUDE = ("include", "include/tvm", "include/tvm/support")
"""Ours. TVM's sources name some headers relative to themselves: found from the last two."""


def runtime(say: Callable[[str], None] = lambda text: None) -> tuple[Path, ...]:
    """The runtime's objects, which are compiled unless they are here; `say` hears of it.

    Raises TargetError.
    """
    from filelock import FileLock  # not in a bare install, which reads rows all the same

    folder = cache_folder() / _key()
    objects = tuple(folder / f"{unit}.o" for unit in UNITS)
    if all(path.is_file() for path in objects):
        return objects
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not folder.is_dir():  # another process may have been at it
                say("compiling the wasm runtime, about half a minute")
                _compile_all(folder)
    except OSError as error:
        raise TargetError(
            f"{folder.parent} cannot be used as the cache ({error.strerror or error}); set "
            "XDG_CACHE_HOME to a folder that you may write to"
        ) from error
    return objects


def cache_folder() -> Path:
    """Where compiled runtimes are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mlcc" / "wasm"


def kept() -> list[Path]:
    """The folders of the runtimes that are in the cache, of earlier sources too."""
    folder = cache_folder()
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if path.is_dir() and path.suffix != _PARTIAL)


def command(unit: str, output: Path) -> list[str]:
    """emcc's command line for one unit. Raises TargetError if a part of it is missing."""
    tvm, ffi = _package("tvm"), _package("tvm_ffi")
    ours = [FOLDER / name for name in _INCLUDE]
    return [
        find_tool("emcc"),
        *FLAGS,
        *(f"-D{macro}{suffix}=" for macro in _EXPORTING for suffix in ("", "_EXPORT")),
        *(f"-I{path}" for path in (*ours, tvm, ffi, tvm / "include", ffi / "include")),
        # TVM's errors name the source file: not where it lies on the machine that compiled.
        *(f"-ffile-prefix-map={path.parent}=" for path in (FOLDER, tvm, ffi)),
        "-c",
        str(FOLDER / "src" / f"{unit}.cc"),
        "-o",
        str(output),
    ]


def _compile_all(folder: Path) -> None:
    partial = folder.with_suffix(_PARTIAL)  # what a killed process left is no runtime
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for unit in UNITS:
        run(command(unit, partial / f"{unit}.o"), partial / f"{unit}.o")
    partial.rename(folder)


def _key() -> str:
    """Of the compiler, its options and every source: changes when the objects would."""
    digest = hashlib.sha256(output_of([find_tool("emcc"), "--version"]).encode())
    digest.update(repr((FLAGS, _EXPORTING, _INCLUDE)).encode())
    for path in _sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    tvm, ffi = _package("tvm"), _package("tvm_ffi")
    folders = (
        FOLDER,
        tvm / "src",
        tvm / "web" / "emcc",
        tvm / "include",
        ffi / "src",
        ffi / "include",
    )
    for folder in folders:
        yield from sorted(path for path in folder.rglob("*") if path.suffix in (".cc", ".h"))


def _package(name: str) -> Path:
    """The folder of an installed package, found without importing it. Raises TargetError."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise TargetError(f"the Python package '{name}' is not installed; pip install mlcc")
    return Path(next(iter(spec.submodule_search_locations)))
