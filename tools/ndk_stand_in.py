"""A stand-in for Android's NDK where there is none: zig's clang over bionic's sources.

    python -m tools.ndk_stand_in BIONIC JNI_H FOLDER
    ANDROID_NDK_HOME=FOLDER python mobile/c/android.py --abi arm64-v8a OUT

BIONIC is a checkout of Android's C library (platform/bionic; headers and lists of functions are
used), JNI_H Android's jni.h (Debian: android-libnativehelper-dev). FOLDER gets
`toolchains/llvm/prebuilt/zig/bin/clang++`, which compiles with these headers and zig's C++ library,
and links stubs that have the functions of Android's API level and no code. So a build shows that
sources compile and that no name is undefined on that level. The libraries are not for a phone: the
NDK's own compiler makes those.
"""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mlcc_targets.linking.linker import zig

API = 26
ARCHS = {"aarch64": ("arm64", "arm64"), "x86_64": ("x86", "x86_64")}
"""Instruction set -> the kernel's name of it, and bionic's."""
LISTS = {"c": "libc/libc.map.txt", "m": "libm/libm.map.txt", "dl": "libdl/libdl.map.txt"}
_OBJECTS = ("crtbegin_so.o", "crtend_so.o", "crtbegin_dynamic.o", "crtend_android.o")
_NAME = re.compile(r"^\s+(\w+);(?:\s*#\s*(.*))?$")
_WRAPPER = """\
#!{python}
# Written by tools/ndk_stand_in.py.
import os, re, sys
words = sys.argv[1:]
triple = next(word for word in words if word.startswith("--target="))
arch = triple[len("--target="):].partition("-")[0]
dropped = ("--target=", "-static-libstdc++")
words = [word for word in words if not word.startswith(dropped)]
os.environ["ZIG_LIBC"] = "{folder}/" + arch + "/libc.txt"
target = ["-target", arch + "-linux-android.{api}", "-fno-sanitize=all", "-D__ANDROID__"]
target += ["-D__BIONIC_NO_STDIO_FORTIFY", "-U_FORTIFY_SOURCE"]
os.execv("{zig}", ["{zig}", "c++", *target, *words, "-L{folder}/" + arch])
"""


def functions(bionic: Path, library: str, arch: str) -> Iterator[str]:
    """The functions of a library that the API level has on an instruction set."""
    is_private = False
    for line in (bionic / LISTS[library]).read_text(encoding="utf-8").splitlines():
        if re.match(r"^\w+ \{", line):
            is_private = "PRIVATE" in line or "PLATFORM" in line
        found = _NAME.match(line)
        if found is None or is_private:
            continue
        tags = (found[2] or "").split()
        archs = {tag for tag in tags if tag in ("arm", "arm64", "x86", "x86_64", "riscv64")}
        since = [int(tag.partition("=")[2]) for tag in tags if tag.startswith("introduced=")]
        since += [
            int(tag.partition("=")[2])
            for tag in tags
            if tag.startswith(f"introduced-{ARCHS[arch][1]}=")
        ]
        if (not archs or ARCHS[arch][1] in archs) and not (since and max(since) > API):
            yield found[1]


def write(bionic: Path, jni: Path, folder: Path) -> Path:
    """Write the stand-in; returns its compiler."""
    for arch, (kernel, _) in ARCHS.items():
        place = folder / arch
        uapi = bionic / "libc" / "kernel" / "uapi"
        android = bionic / "libc" / "kernel" / "android" / "uapi"
        for part in (uapi, uapi / f"asm-{kernel}", android, bionic / "libc" / "include"):
            shutil.copytree(part, place / "include", dirs_exist_ok=True)
        shutil.copy(jni, place / "include" / "jni.h")
        for library in LISTS:
            stub(sorted(set(functions(bionic, library, arch))), place / f"lib{library}.so", arch)
        for name in _OBJECTS:
            _compile("", place / name, arch, "-c")
        keys = dict.fromkeys(("include_dir", "sys_include_dir"), place / "include")
        keys |= {"cc_dir": place, "crt_dir": place}
        lines = [f"{key}={path}" for key, path in keys.items()]
        empty = [f"{key}=" for key in ("msvc_lib_dir", "kernel32_lib_dir", "darwin_sdk_dir")]
        (place / "libc.txt").write_text("\n".join([*lines, *empty, ""]), encoding="utf-8")
    made = folder / "toolchains" / "llvm" / "prebuilt" / "zig" / "bin" / "clang++"
    made.parent.mkdir(parents=True, exist_ok=True)
    given = {"python": sys.executable, "folder": folder, "api": API, "zig": zig()}
    made.write_text(_WRAPPER.format(**given), encoding="utf-8")
    made.chmod(made.stat().st_mode | stat.S_IXUSR)
    return made


def stub(names: list[str], library: Path, arch: str) -> None:
    """A library that defines these functions, without code."""
    text = "".join(f".globl {name}\n.type {name}, %function\n{name}:\n" for name in names)
    _compile(text, library, arch, "-shared", "-nostdlib", f"-Wl,-soname,{library.name}")


def _compile(text: str, made: Path, arch: str, *options: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "stub.s"
        source.write_text(f".text\n{text}", encoding="utf-8")
        command = [zig(), "cc", "-target", f"{arch}-linux", *options]
        subprocess.run([*command, str(source), "-o", str(made)], check=True)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    print(write(*(Path(word).resolve() for word in sys.argv[1:])))


if __name__ == "__main__":
    main()
