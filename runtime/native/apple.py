"""What builds of the executor for macOS and iOS need besides the sources.

By zig on any system, without Apple's SDK: for macOS zig knows what libSystem exports, for iOS there
are headers only, so what is built there is an archive that an app links. Headers of iOS are those
of macOS, which zig brings.
"""

from __future__ import annotations

from pathlib import Path

IOS = {"ios": "aarch64-ios.15.0", "ios-simulator": "aarch64-ios.15.0-simulator"}
"""System, as `mlcc compile --os` names it -> zig's name of it."""
MACOS = {"aarch64": "aarch64-macos.13.0", "x86_64": "x86_64-macos.13.0"}
_HIDDEN = ("TVM_FFI_DLL", "TVM_FFI_DLL_EXPORT", "TVM_DLL", "TVM_DLL_EXPORT", "TVM_RUNTIME_DLL")
FLAGS = ("-fno-sanitize=all", *(f"-D{name}=" for name in _HIDDEN))
"""TVM's functions are not exported: zig's linker has no list of those to export."""
MACOS_LINK = ("-shared", "-s", "-Wl,-dead_strip", "-Wl,-undefined,dynamic_lookup")
MACOS_LINK += ("-Wl,-install_name,@rpath/libmlcc_executor.dylib",)
"""Python's functions are those of the process. zig signs the library ad hoc."""
_ANNOTATIONS = "_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS"
IOS_FLAGS = (*FLAGS, f"-U{_ANNOTATIONS}", f"-D{_ANNOTATIONS}=1")
"""An app uses the phone's C++ library. zig's headers take it for one as new as they are, and call
what iOS 15 lacks (std::__hash_memory), unless asked for what Apple has had since when."""


def ios_headers(zig: str) -> list[str]:
    """The words that name the headers of Apple's C library."""
    return ["-isystem", str(Path(zig).parent / "lib" / "libc" / "include" / "any-darwin-any")]
