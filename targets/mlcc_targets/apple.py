"""What the rows of Apple's GPUs share: their limits, and how Mach-O libraries are made anywhere.

Nothing of Apple's SDK is needed: the one system library is named by a stub, and every symbol is
looked up at load.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.linker import run_zig
from mlcc_targets.static import HEADER, header, symbol_prefix

MACOS, IOS = "13.0", "15.0"
"""The oldest systems that a library is for; their drivers take MSL 3.0 and 2.4."""
LIMITS = {
    "workgroup_invocations": 1024,
    "workgroup_bytes": 32768,
    "storage_binding_bytes": 1 << 32,
    "row_slices": 1024,
    "subgroup": 32,
    "narrow_types": 1,
}
# dyld refuses a dylib that names no other library, "must link with at least libSystem.dylib"; the
# linker itself asks for the one symbol, and for a file of the SDK that says its version.
_LIBSYSTEM = """--- !tapi-tbd
tbd-version: 4
targets: [ {arch}-macos ]
install-name: /usr/lib/libSystem.B.dylib
exports:
  - targets: [ {arch}-macos ]
    symbols: [ dyld_stub_binder ]
...
"""
_USE = """\
Link {library}, then ask TVM's function "ffi.SystemLib" for the library of this prefix:

       tvm::ffi::Function::GetGlobalRequired("ffi.SystemLib")({prefix}link())
"""
_SDK = ("include", "sys_include", "cc", "crt", "msvc_lib", "kernel32_lib", "darwin_sdk")
"""The folders that zig asks for when told not to look for an SDK of its own."""


def link_dylib(objects: Sequence[Path], library: Path, arch: str = "aarch64") -> None:
    """Link objects into a macOS library with an ad-hoc signature. Raises TargetError.

    TVM's functions stay undefined: they are found in the runtime that is loaded already. The
    signature names the file that the linker writes: "model.dylib" whatever `library` is called,
    but for its install name.
    """
    command = ["build-lib", "-dynamic", "-target", f"{arch}-macos.{MACOS}", "--name", "model"]
    command += ["-fstrip", "-fno-compiler-rt", "-fno-ubsan-rt", "-fallow-shlib-undefined"]
    command += ["-install_name", f"@rpath/{library.name}"]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "model.dylib"
        command += ["--libc", str(_no_sdk(Path(folder), arch)), f"-femit-bin={made}"]
        run_zig([*command, *map(str, objects)], library)
        shutil.copyfile(made, library)


def _no_sdk(folder: Path, arch: str) -> Path:
    """Writes what stands in for Apple's SDK; returns the file that tells zig of it."""
    name = {"aarch64": "arm64"}.get(arch, arch)
    (folder / "libSystem.tbd").write_text(_LIBSYSTEM.format(arch=name), encoding="utf-8")
    (folder / "SDKSettings.json").write_text(f'{{"Version": "{MACOS}"}}', encoding="utf-8")
    places = folder / "places.txt"
    places.write_text("".join(f"{key}_dir={folder}\n" for key in _SDK), encoding="utf-8")
    return places


def link_static(objects: Sequence[Path], library: Path) -> None:
    """Collect objects in an archive for Xcode and write HEADER beside it. Raises TargetError."""
    prefix = symbol_prefix(objects)
    library.unlink(missing_ok=True)  # else its members stay
    # An index of symbols, and neither times nor users: the bytes depend on the objects alone.
    run_zig(["ar", "--format=darwin", "rcsD", str(library), *map(str, objects)], library)
    library.with_name(HEADER).write_text(header(prefix, library.name, _USE), encoding="utf-8")
