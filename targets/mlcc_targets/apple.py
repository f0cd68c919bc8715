"""What the rows of Apple's GPUs share: their limits, and how Mach-O libraries are made anywhere.

A Mac links with its own tools, any other machine with LLVM's. Nothing of Apple's SDK is needed: the
one system library is named by a stub that exports nothing, and every symbol is looked up at load.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.linker import c_compiler, find_tool, run
from mlcc_targets.target import TargetError

MACOS, IOS = "13.0", "15.0"
"""The oldest systems that a library is for; their drivers take MSL 3.0 and 2.4."""
LIMITS = {
    "workgroup_invocations": 1024,
    "workgroup_bytes": 32768,
    "storage_binding_bytes": 1 << 32,
    "subgroup": 32,
    "narrow_types": 1,
}
HEADER = "mlcc_model.h"
"""What `link_static` writes beside the library."""

# dyld refuses a dylib that names no other library, "must link with at least libSystem.dylib".
_LIBSYSTEM = """--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: /usr/lib/libSystem.B.dylib
...
"""

_HEADER = """\
/* Written by mlcc beside {library}: the prefix under which the model registers itself.

   Link {library}, then ask TVM's function "ffi.SystemLib" for the library of this prefix:

       tvm::ffi::Function::GetGlobalRequired("ffi.SystemLib")({prefix}link())

   Calling {prefix}link() is also what makes the linker take the members of {library}. */
#ifndef {guard}
#define {guard}

#ifdef __cplusplus
extern "C" {{
#endif

extern const char {prefix}__tvm_ffi__library_bin[];
extern void *{prefix}__tvm_ffi__library_ctx;

static inline const char *{prefix}link(void) {{
  const void *volatile members[2] = {{{prefix}__tvm_ffi__library_bin,
                                     &{prefix}__tvm_ffi__library_ctx}};
  return members[0] && members[1] ? "{prefix}" : 0;
}}

#ifdef __cplusplus
}}
#endif

#endif
"""


def dylib_tools() -> tuple[str, ...]:
    """What `link_dylib` runs on this machine."""
    return ("cc",) if sys.platform == "darwin" else ("ld64.lld",)


def static_tools() -> tuple[str, ...]:
    """What `link_static` runs on this machine."""
    return ("libtool",) if sys.platform == "darwin" else ("llvm-libtool-darwin",)


def link_dylib(objects: Sequence[Path], library: Path) -> None:
    """Link arm64 objects into a macOS library with an ad-hoc signature. Raises TargetError.

    TVM's functions stay undefined: they are found in the runtime that is loaded already. Debug
    symbols (-S) would name the objects' folder and time, an output path as a name the library's.
    """
    inputs = [str(path) for path in objects]
    name = ["-install_name", f"@rpath/{library.name}", "-undefined", "dynamic_lookup"]
    if sys.platform == "darwin":
        options = ["-dynamiclib", "-Wl,-S", "-arch", "arm64", f"-mmacosx-version-min={MACOS}"]
        run([*c_compiler(), *options, *name, "-o", str(library), *inputs], library)
        return
    options = ["-dylib", "-S", "-arch", "arm64", "-platform_version", "macos", MACOS, MACOS]
    with tempfile.TemporaryDirectory() as folder:
        stub = Path(folder) / "libSystem.tbd"
        stub.write_text(_LIBSYSTEM, encoding="utf-8")
        tool = find_tool("ld64.lld")
        run([tool, *options, *name, "-o", str(library), *inputs, str(stub)], library)


def link_static(objects: Sequence[Path], library: Path) -> None:
    """Collect objects in an archive for Xcode and write HEADER beside it. Raises TargetError."""
    prefix = symbol_prefix(objects)
    tool = find_tool(static_tools()[0])
    run([tool, "-static", "-D", "-o", str(library), *map(str, objects)], library)
    library.with_name(HEADER).write_text(header(prefix, library.name), encoding="utf-8")


def header(prefix: str, library: str) -> str:
    """The C header of a static library: what an app calls to link and name its model."""
    return _HEADER.format(library=library, prefix=prefix, guard=f"{prefix.upper()}H")


def symbol_prefix(objects: Sequence[Path]) -> str:
    """The prefix of a static library's symbols: TVM names the object of the device code by it.

    Raises TargetError if there is none, or if it is no beginning of a C name.
    """
    for path in objects:
        prefix = path.stem.removesuffix("devc")
        if prefix != path.stem and re.fullmatch(r"[A-Za-z_]\w*", prefix, re.ASCII):
            return prefix
    raise TargetError("the objects of a static library carry no symbol prefix; this is a bug")
