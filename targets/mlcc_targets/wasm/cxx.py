"""The parts of LLVM's C++ library that TVM's runtime uses, as files in zig's own library folder.

zig compiles them for wasm without exceptions; here they are compiled with exceptions. The linker
leaves out unreachable code, so an unneeded file only costs compile time.
"""

from __future__ import annotations

_ABI = (
    *("abort_message", "cxa_aux_runtime", "cxa_default_handlers", "cxa_exception"),
    *("cxa_exception_storage", "cxa_guard", "cxa_handlers", "cxa_personality", "cxa_virtual"),
    *("fallback_malloc", "private_typeinfo", "stdlib_exception", "stdlib_new_delete"),
    *("stdlib_stdexcept", "stdlib_typeinfo"),
)
_STD = (
    *("algorithm", "charconv", "error_category", "exception", "functional", "hash", "ios"),
    *("ios.instantiations", "iostream", "locale", "memory", "mutex", "mutex_destructor"),
    *("new_handler", "new_helpers", "optional", "ostream", "stdexcept", "string", "system_error"),
    *("typeinfo", "variant", "vector", "verbose_abort", "call_once"),
    *("ryu/d2fixed", "ryu/d2s", "ryu/f2s"),
)
CXX = (
    *(f"libcxxabi/src/{name}.cpp" for name in _ABI),
    *(f"libcxx/src/{name}.cpp" for name in _STD),
    "libunwind/src/Unwind-wasm.c",
)
CXX_FLAGS = (
    "-std=c++23",
    "-D_LIBCPP_BUILDING_LIBRARY",
    "-D_LIBCXXABI_BUILDING_LIBRARY",
    "-DLIBCXX_BUILDING_LIBCXXABI",
    "-DLIBCXXABI_NON_DEMANGLING_TERMINATE",
    "-Wno-everything",
)
UNWIND_FLAGS = ("-D_LIBUNWIND_HIDE_SYMBOLS", "-Wno-everything")
