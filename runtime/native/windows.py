"""What a build of the executor for Windows needs besides the sources.

By zig, with MinGW's C library, on any system. TVM's sources ask for Microsoft's compiler where they
mean Windows, and open libraries by names that must be ASCII; changed copies come first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

TRIPLE = "x86_64-windows-gnu"
FLAGS = ("-mcpu=x86_64_v2", "-fno-sanitize=all", "-DMLCC_BUILDS_EXECUTOR")
LINK = ("-shared", "-s", "-Wl,--gc-sections")
"""The exported functions are those that say so (MLCC_API)."""
LEFT_OUT = ("posix", "ranks", "elf_file")
"""Units of other systems."""
ONLY = ("windows", "single_rank", "pe_file")
"""Units that other systems leave out."""

_COPIES = {
    "tvm_ffi": (
        "include/tvm/ffi/memory.h",
        "src/ffi/extra/library_module_dynamic_lib.cc",
        "src/ffi/extra/module_internal.h",
    ),
    "tvm": ("src/runtime/cpu_device_api.cc", "src/runtime/workspace_pool.h"),
}
"""Package -> files, by their place in it, with the headers that they include beside them."""
_CHANGES = {
    r"#if(?:def)? _MSC_VER\b": "#ifdef _WIN32",
    # a path is UTF-8
    r"std::wstring wname\(name\.data\(\), name\.data\(\) \+ name\.size\(\)\);": (
        "std::wstring wname = std::filesystem::u8path(name.c_str()).wstring();"
    ),
    r"\A": "#include <filesystem>\n",
}
"""Pattern -> text in its place."""
_PYTHON_NAME = re.compile(r"^MLCC_PYTHON\b.*?\b(_?Py\w+)(?:\(|;)", re.MULTILINE)


def headers(folder: Path, package: Callable[[str], Path]) -> list[str]:
    """Write the copies; returns the words that put them first."""
    for name, files in _COPIES.items():
        for file in files:
            text = (package(name) / file).read_text(encoding="utf-8")
            for pattern, changed in _CHANGES.items():
                text = re.sub(pattern, changed, text)
            place = folder / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
    names = (
        f"-ffile-prefix-map={folder}="  # else the folder's name is in errors, and in the library
    )
    return [f"-isystem{folder / 'include'}", f"-isystem{folder}", names]


def python_library(folder: Path, declarations: Path, run: Callable[[Sequence[str]], None]) -> Path:
    """Write an import library of the functions that `declarations` names, from python3.dll: the
    stable ABI, for every Python. run: runs a command of zig."""
    found = sorted(set(_PYTHON_NAME.findall(declarations.read_text(encoding="utf-8"))))
    names = folder / "python3.def"
    names.write_text("\n".join(["LIBRARY python3.dll", "EXPORTS", *found, ""]), encoding="utf-8")
    library = folder / "libpython3.a"
    run(["dlltool", "-m", "i386:x86-64", "-d", str(names), "-l", str(library)])
    return library
