"""Builds libmlcc_nccl: our binding of NCCL, for ranks that each have a GPU.

    python runtime/native/build_nccl.py                in place, for this machine
    python runtime/native/build_nccl.py ARCH OUTPUT    for another: x86_64 or aarch64, on Linux

By the compiler that builds the executor; beside that, as a model's CUDA runs through TVM's package
and not through it. Needs neither CUDA's headers nor NCCL's.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

import build_executor as executor  # noqa: E402

SOURCES = FOLDER / "nccl"
LIBRARY = executor.OUTPUT / "nccl" / "libmlcc_nccl.so"
LINK = ("-shared", "-s", "-Wl,--gc-sections", "-Wl,-z,nodelete")  # its functions are TVM's by then


def build(output: Path, arch: str = "") -> Path:
    """Compile it into `output`. Raises BuildError."""
    command, libraries = executor.toolchain(arch or platform.machine())
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_suffix(".partial")  # the old library may be in use
    words = [*executor.FLAGS, "-Wall", "-Wextra", *executor.includes(), *LINK]
    try:
        executor._run(
            [*command, *words, str(SOURCES / "collectives.cc"), *libraries, "-o", str(partial)]
        )
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return output


def source_hash() -> str:
    """Of all sources and this file: tells whether a library was built from them."""
    return executor.once.hash_of([*sorted(SOURCES.iterdir()), Path(__file__)])


def is_current() -> bool:
    """Whether the library stands and was built from the sources as they are now."""
    return executor.once.is_current(LIBRARY, source_hash())


def build_or_explain(arch: str = "") -> str:
    """Build in place unless that was done. Returns "", or why it failed, which it also notes."""
    return executor.once.build_or_explain(
        LIBRARY, source_hash(), lambda path: build(path, arch), arch
    )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(None if build(Path(sys.argv[2]), sys.argv[1]) else 1)
    sys.exit(build_or_explain() or None)
