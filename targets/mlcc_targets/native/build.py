"""Compiles the WebGPU device plugin: one command of the system's C++ compiler.

    python -m mlcc_targets.native.build

Run by `pip install` (hatch_build.py), and by hand after changes of the C++ sources. The standard
library only; TVM, its FFI and wgpu are found as installed packages, and none of them is imported.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.native import once
from mlcc_targets.native.once import BuildError

FOLDER = Path(__file__).resolve().parent
SOURCES = FOLDER / "src"
OUTPUT = FOLDER / "lib"
LIBRARY = OUTPUT / ("libmlcc_webgpu.dylib" if sys.platform == "darwin" else "libmlcc_webgpu.so")
FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")


def build(output: Path, flags: Sequence[str] = FLAGS) -> Path:
    """Compile the sources into `output`. Raises BuildError."""
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_suffix(".partial")  # the old library may be in use
    words = command(partial, flags)
    if shutil.which(words[0]) is None:
        raise BuildError(f"$CXX names '{words[0]}', which is not there; unset CXX or install it")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        partial.unlink(missing_ok=True)
        raise BuildError(f"compiling the WebGPU plugin failed: {_first_error(done.stderr)}")
    partial.replace(output)
    return output


def command(output: Path, flags: Sequence[str] = FLAGS) -> list[str]:
    """The compiler's command line. Raises BuildError if a part of it is missing."""
    if sys.platform == "win32":
        raise BuildError(
            "the WebGPU plugin cannot be built on Windows, which is untried; use --target cpu"
        )
    tvm, ffi = package("tvm"), package("tvm_ffi")
    suffix = LIBRARY.suffix
    return [
        *compiler(),
        *flags,
        *translation_unit(),
        "-o",
        str(output),
        str(tvm / "lib" / f"libtvm_runtime{suffix}"),
        str(ffi / "lib" / f"libtvm_ffi{suffix}"),
        *_run_paths(),
        "-ldl",
    ]


def translation_unit(webgpu_headers: Path | None = None) -> list[str]:
    """All sources as one unit, and where headers lie: TVM's are read once, not in each file.

    webgpu_headers: the folder of `webgpu.h`, if not that of the package wgpu. Raises BuildError.
    """
    headers = [
        webgpu_headers or package("wgpu") / "resources",
        package("tvm") / "include",
        package("tvm_ffi") / "include",
    ]
    *before, last = sorted(map(str, SOURCES.rglob("*.cc")))
    included = [word for source in before for word in ("-include", source)]
    return [f"-I{SOURCES}", *(f"-isystem{folder}" for folder in headers), *included, last]


def package(name: str) -> Path:
    """The folder of an installed package, found without importing it. Raises BuildError."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"the Python package '{name}' is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def compiler() -> list[str]:
    """$CXX, or the first of c++, g++, clang++ on the path. Raises BuildError."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise BuildError(
        "no C++ compiler was found when mlcc was installed (tried $CXX, c++, g++, clang++); "
        "apt install g++, then python -m mlcc_targets.native.build"
    )


def _run_paths() -> list[str]:
    """Where macOS looks for TVM; elsewhere it is in the process before the plugin is."""
    if sys.platform != "darwin":
        return []
    return [f"-Wl,-rpath,@loader_path/../../../{name}/lib" for name in ("tvm", "tvm_ffi")]


def _first_error(text: str) -> str:
    lines = text.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error" in line.lower()), lines[-1])


def source_hash() -> str:
    """Of all sources and this file: tells whether a library was built from them."""
    return once.hash_of([Path(__file__), *sorted(SOURCES.rglob("*.*"))])


def is_current() -> bool:
    """Whether the library stands and was built from the sources as they are now."""
    return once.is_current(LIBRARY, source_hash())


def build_or_explain() -> str:
    """Build in place unless that was done. Returns "", or why it failed, which it also notes."""
    return once.build_or_explain(LIBRARY, source_hash(), build)


if __name__ == "__main__":
    sys.exit(build_or_explain() or None)
