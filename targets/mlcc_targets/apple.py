"""Shared by the rows of Apple's systems: limits of GPUs, and Mach-O libraries made on any system.

Apple's SDK is not needed: a stub names the one system library, and symbols are resolved at load.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.linking.linker import run_zig
from mlcc_targets.linking.static import (
    HEADER,
    LINKED_PARTS,
    archive,
    collect,
    compile_part,
    header,
    symbol_prefix,
)

MACOS, IOS = "13.0", "15.0"
"""The oldest supported systems; their drivers accept MSL 3.0 and 2.4."""
LIMITS = {
    "workgroup_invocations": 1024,
    "workgroup_bytes": 32768,
    "storage_binding_bytes": 1 << 32,
    "row_slices": 1024,
    "subgroup": 32,
    "narrow_types": 1,
}
# dyld refuses a dylib that names no other library, "must link with at least libSystem.dylib"; the
# linker needs the one symbol, and a file with the SDK's version.
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
"""The folders that zig requires if it does not search for an SDK."""


def link_dylib(objects: Sequence[Path], library: Path, arch: str = "aarch64") -> None:
    """Link objects into a macOS library with an ad-hoc signature. Raises TargetError.

    TVM's functions stay undefined: the loaded runtime provides them. The signature contains the
    name of the linker's output, which is always "model.dylib"; `library` sets the install name.
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
    """Write a stand-in for Apple's SDK; return the file that describes it to zig."""
    name = {"aarch64": "arm64"}.get(arch, arch)
    (folder / "libSystem.tbd").write_text(_LIBSYSTEM.format(arch=name), encoding="utf-8")
    (folder / "SDKSettings.json").write_text(f'{{"Version": "{MACOS}"}}', encoding="utf-8")
    places = folder / "places.txt"
    places.write_text("".join(f"{key}_dir={folder}\n" for key in _SDK), encoding="utf-8")
    return places


def link_static(objects: Sequence[Path], library: Path) -> None:
    """Collect objects in an archive for Xcode and write HEADER beside it. Raises TargetError."""
    prefix = symbol_prefix(objects)
    collect(objects, library, "darwin")
    library.with_name(HEADER).write_text(header(prefix, library.name, _USE), encoding="utf-8")


def archive_model(objects: Sequence[Path], library: Path, target: str) -> None:
    """Collect a CPU's objects in a static library for programs that also link libmlcc_executor, and
    write its header. target: zig's name of the system. Raises TargetError."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"{LINKED_PARTS.stem}.o"
        run_zig(compile_part(LINKED_PARTS, made, target), made)
        archive([*objects, made], library, "darwin")
