"""Compiles the wasm runtime that is linked into every model library for browsers.

    python -m mlcc_targets.wasm.build      into lib/, for a wheel

The sources are TVM's, from the installed wheels, and those in `src/`; the C and C++ libraries are
zig's. The wheel mlcc-web contains the result (web/wheel). Without it, or if its sources differ, the
runtime is compiled once per machine, in a minute or two, into the XDG cache, in a folder named by a
hash of all inputs. Independent of models. Standard library and filelock; finds TVM, no import.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from mlcc_targets.linking.linker import run_zig, zig
from mlcc_targets.target import TargetError
from mlcc_targets.wasm.cxx import CXX, CXX_FLAGS, UNWIND_FLAGS

FOLDER = Path(__file__).resolve().parent
UNITS = ("runtime", "host", "page")
"""`src/UNIT.cc` becomes UNIT.o."""
ARCHIVES = ("libc.a", "libzigc.a", "libcompiler_rt.a")
"""The C library and the compiler's runtime, as built by zig."""
TARGET = ("-target", "wasm32-wasi")
FLAGS = (
    *TARGET,
    "-Oz",
    "-g0",
    "-fwasm-exceptions",  # TVM's errors become JavaScript errors; without, they end the library
    "-mcpu=generic+exception_handling",
    *("-mllvm", "-wasm-enable-eh"),
    "-fno-sanitize=undefined",
    # The C library provides threads (only one exists), because TVM uses mutexes.
    *("-U_LIBCPP_HAS_THREADS", "-D_LIBCPP_HAS_THREADS=1", "-D_LIBCPP_HAS_THREAD_API_PTHREAD=1"),
)
_UNIT_FLAGS = (
    "-std=c++17",
    "-DTVM_FFI_CMAKE_LITTLE_ENDIAN=1",
    "-D__PRETTY_FUNCTION__=__func__",  # in TVM's errors: shorter, and without folders
    "-Wno-ignored-attributes",
)
_PARTIAL = ".partial"
_KEY = "sources.sha256"
_EXPORTING = ("TVM_DLL", "TVM_RUNTIME_DLL", "TVM_FFI_DLL")
"""TVM's macros that export its whole C API; libraries export only functions for JavaScript."""
_INCLUDE = ("include", "include/tvm", "include/tvm/support")
"""Include folders. The last two are for TVM's headers with paths relative to its sources."""


def runtime(say: Callable[[str], None] = lambda text: None) -> tuple[Path, ...]:
    """The objects and archives to link a model with; compiles them if needed.

    `say` is called before a compile. Raises TargetError.
    """
    from filelock import FileLock  # missing in a bare install, which also reads the rows

    key = _key()
    for folder in _built():
        if _brought(folder, key):
            return _files(folder)
    folder = cache_folder() / key
    if folder.is_dir():
        return _files(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not folder.is_dir():  # another process may have compiled it
                say("compiling the wasm runtime, once: a minute or two")
                partial = folder.with_suffix(_PARTIAL)  # remains of a killed process
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                _compile_all(partial)
                partial.rename(folder)
    except OSError as error:
        raise TargetError(
            f"{folder.parent} cannot be used as the cache ({error.strerror or error}); set "
            "XDG_CACHE_HOME to a folder that you may write to"
        ) from error
    return _files(folder)


def bring(folder: Path = FOLDER / "lib") -> None:
    """Put the runtime into the folder of the wheel. Raises TargetError."""
    if _brought(folder, _key()):
        return
    files = runtime()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in files:
        shutil.copyfile(path, folder / path.name)
    (folder / _KEY).write_text(_key(), encoding="utf-8")


def cache_folder() -> Path:
    """The cache folder of compiled runtimes."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mlcc" / "wasm"


def kept() -> list[Path]:
    """The folders of cached runtimes, also of earlier sources."""
    folder = cache_folder()
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if path.is_dir() and path.suffix != _PARTIAL)


def _built() -> Iterator[Path]:
    """Possible folders of a built runtime: in a clone, or in the wheel mlcc-web."""
    yield FOLDER / "lib"
    wheel = importlib.util.find_spec("mlcc_web")
    for place in (wheel.submodule_search_locations or ()) if wheel else ():
        yield Path(place) / "wasm"


def _brought(folder: Path, key: str) -> bool:
    try:
        return (folder / _KEY).read_text(encoding="utf-8") == key
    except OSError:
        return False


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(
        folder / name for name in (*(f"{unit}.o" for unit in UNITS), "libcxx.a", *ARCHIVES)
    )


def _compile_all(folder: Path) -> None:
    """Write the files of `_files` to `folder`. Raises TargetError."""
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(scratch)
        lib = Path(zig()).parent / "lib"
        members = [(lib / name, cache / f"{Path(name).name}.o") for name in CXX]
        jobs = [(unit_words(unit), folder / f"{unit}.o") for unit in UNITS]
        jobs += [(_library_words(lib, source), output) for source, output in members]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            archives = pool.submit(_c_library, folder, cache)
            list(pool.map(lambda job: run_zig([*job[0], "-o", str(job[1])], job[1], cache), jobs))
            archives.result()
        _pack(folder / "libcxx.a", [str(path) for _, path in members])


def unit_words(unit: str) -> list[str]:
    """zig's command line for one unit, without its output. Raises TargetError."""
    tvm, ffi = _package("tvm"), _package("tvm_ffi")
    ours = [FOLDER / name for name in _INCLUDE]
    return [
        "c++",
        *FLAGS,
        *_UNIT_FLAGS,
        *(f"-D{macro}{suffix}=" for macro in _EXPORTING for suffix in ("", "_EXPORT")),
        *(f"-I{path}" for path in (*ours, tvm, ffi, tvm / "include", ffi / "include")),
        # TVM's errors name the source file, without its folder on the compiling machine.
        *(f"-ffile-prefix-map={path.parent}=" for path in (FOLDER, tvm, ffi)),
        "-c",
        str(FOLDER / "src" / f"{unit}.cc"),
    ]


def _library_words(lib: Path, source: Path) -> list[str]:
    prefix = f"-ffile-prefix-map={lib}="
    if source.suffix == ".c":
        return [
            "cc",
            *FLAGS,
            *UNWIND_FLAGS,
            f"-I{lib / 'libunwind/include'}",
            prefix,
            "-c",
            str(source),
        ]
    folders = ("libcxx/src", "libcxxabi/src", "libcxx/libc")
    includes = [f"-I{lib / name}" for name in folders]
    return ["c++", *FLAGS, *CXX_FLAGS, *includes, prefix, "-c", str(source)]


def _c_library(folder: Path, cache: Path) -> None:
    """The archives that zig links into a C program, which it compiles and prints on the way.

    They are packed again, because zig's use paths as names of members.
    """
    source = cache / "nothing.c"
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    command = ["build-exe", *TARGET, "-OReleaseSmall", "-lc", "--verbose-link", str(source)]
    commands = run_zig([*command, f"-femit-bin={cache / 'nothing.wasm'}"], source, cache)
    packed = [line.split()[2:] for line in commands.splitlines() if line.startswith("ar rcs ")]
    for name in ARCHIVES:
        members = [rest for archive, *rest in packed if Path(archive).name == name]
        if len(members) != 1:
            raise TargetError(
                f"zig packed no {name}; this is a bug: is its version the pinned one?"
            )
        _pack(folder / name, members[0])


def _pack(archive: Path, members: Sequence[str]) -> None:
    run_zig(["ar", "rcsD", str(archive), *members], archive)


def _key() -> str:
    """A hash of the compiler, its options and every source."""
    zig()  # raises an error that names the package, if there is none
    digest = hashlib.sha256(importlib.metadata.version("ziglang").encode())
    digest.update(repr((FLAGS, _UNIT_FLAGS, _EXPORTING, _INCLUDE, CXX, CXX_FLAGS)).encode())
    for name in ("src", "include"):
        digest.update(_sources(FOLDER / name))
    for name in ("src", "web/emcc", "include"):
        digest.update(_installed_sources(_package("tvm") / name))
    for name in ("src", "include"):
        digest.update(_installed_sources(_package("tvm_ffi") / name))
    return digest.hexdigest()[:16]


def _sources(folder: Path) -> bytes:
    """The names and texts of a folder's sources."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".cc", ".h"))
    return b"".join(path.name.encode() + b"\0" + path.read_bytes() + b"\0" for path in paths)


@cache
def _installed_sources(folder: Path) -> bytes:
    """Those of an installed package, which stay the same in a process that links many models: 3 MB
    of hundreds of files."""
    return _sources(folder)


def _package(name: str) -> Path:
    """The folder of an installed package, found without importing it. Raises TargetError."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise TargetError(f"the Python package '{name}' is not installed; pip install mlcc")
    return Path(next(iter(spec.submodule_search_locations)))


if __name__ == "__main__":
    try:
        bring()
    except TargetError as error:
        sys.exit(str(error))
