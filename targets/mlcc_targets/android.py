"""Target `android`: Android phones: arm64 host code, WGSL kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.linker import find_tool, run
from mlcc_targets.target import Choices, Target
from mlcc_targets.wgsl import LIMITS, computes_f16

_SHARED = ["-m", "aarch64linux", "-shared", "--build-id=none", "--hash-style=gnu"]
# Android 15's devices may have pages of 16 KiB; Google Play asks for it. A model's own symbols are
# bound to it (-Bsymbolic): every model has some of the same name.
_MODEL = ["-z", "max-page-size=16384", "-z", "noexecstack", "-z", "relro", "-z", "now"]
_MODEL += ["-Bsymbolic", "--strip-all", "--no-as-needed"]
_SYSTEM = ("libm.so", "libc.so")
"""Android looks symbols up in the libraries that a library names, so it must name these."""


def target(choices: Choices) -> Target:
    """The row."""
    return Target(
        name="android",
        device="webgpu",
        kernels="gpu",
        generator="webgpu",
        arch="aarch64",
        triple="aarch64-linux-android",
        library="model.so",
        limits=LIMITS,
        f16=computes_f16(choices.f16),
        link=link_android,
        tools=("ld.lld",),
        run_missing="runs in an Android app; see docs/devices.md",
    )


def link_android(objects: Sequence[Path], library: Path) -> None:
    """Link arm64 objects into a shared library for Android, without its NDK. Raises TargetError.

    TVM's functions stay undefined: they are found in the runtime that the app has loaded.
    """
    tool = find_tool("ld.lld")
    with tempfile.TemporaryDirectory() as folder:
        stubs = [_stub(tool, Path(folder) / name) for name in _SYSTEM]
        inputs = [str(path) for path in (*objects, *stubs)]
        command = [tool, *_SHARED, *_MODEL, "-soname", library.name, "-o", str(library)]
        run([*command, *inputs], library)


def _stub(tool: str, library: Path) -> Path:
    """A library that has a name and nothing else: linking it notes that name."""
    nothing = library.with_suffix(".bin")  # the linker wants one input, of any kind
    nothing.write_bytes(b"\0")
    command = [tool, *_SHARED, "-soname", library.name, "-o", str(library)]
    run([*command, "-b", "binary", str(nothing)], library)
    return library
