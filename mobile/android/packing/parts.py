"""The native parts of one platform in a folder, as `NativeParts` of Kotlin unpacks them.

    parts.json                  what is here, with sums
    mlcc.zip python.zip         the engine; the standard library, as far as it is needed
    lib/                        libpython, libmlcc, its executor, its JNI, and what those need
    modules/                    Python's modules in C
    licenses/

Python is the one that runs this: its library, with debugging symbols taken out.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from packing import PackingError, elf, licenses
from packing.library import Library

LIST = "parts.json"
OURS = ("libmlcc.so", "libmlcc_executor.so", "libmlcc_jni.so")
_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|util))\.so\.\d+")
"""glibc, which is the system's in any case."""


def this_platform() -> str:
    """As Kotlin calls it: linux-x86_64."""
    return f"{platform.system().lower()}-{platform.machine()}"


def make(libraries: Path, out: Path) -> dict[str, Any]:
    """Gather all parts. libraries: what mobile/c/build.py and jni/build.py built.

    Returns the list. Raises PackingError.
    """
    _check(libraries)
    shutil.rmtree(out, ignore_errors=True)
    lib, modules = out / "lib", out / "modules"
    lib.mkdir(parents=True)
    modules.mkdir()
    folder = Path(sysconfig.get_path("stdlib"))
    library = Library(folder)
    library.write(out / "python.zip")
    shutil.copyfile(libraries / "mlcc.zip", out / "mlcc.zip")
    for name in OURS:
        _strip(libraries / name, lib / name)
    extensions = library.extensions(folder / "lib-dynload")
    for path in extensions:
        _strip(path, modules / path.name)
    python = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    _strip(python, lib / python.name)
    needed = _needed([python, *extensions])
    for path in needed:
        _strip(path, lib / path.name)
    licenses.gather(out / "licenses", folder / "LICENSE.txt", needed)
    return write_list(out, this_platform(), [path.name for path in needed] + [python.name])


def write_list(
    out: Path, platform: str, first: list[str], libraries: str | None = "lib"
) -> dict[str, Any]:
    """parts.json over what lies in a folder.

    first: what to load before mlcc's libraries, in order; libraries: the folder of all of them, or
    None where the system finds them. Raises PackingError for one of another CPU.
    """
    code = [*out.rglob("*.so"), *out.rglob("*.so.*")]
    for path in code:
        elf.check(path, platform.rpartition("-")[2])
    described = {
        "platform": platform,
        "python": sys.version.split()[0],
        "glibc": elf.glibc(code),
        "libraries": libraries,
        "first": first,
        "modules": ["python.zip", "modules"],
        "files": [entry(path, out) for path in sorted(out.rglob("*")) if path.is_file()],
    }
    (out / LIST).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    return described


def entry(path: Path, folder: Path) -> dict[str, Any]:
    """A line of the list."""
    data = path.read_bytes()
    name = path.relative_to(folder).as_posix()
    return {"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _check(libraries: Path) -> None:
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        raise PackingError(
            "this Python has no shared library, which is what programs embed; run this by one of "
            "pyenv (PYTHON_CONFIGURE_OPTS=--enable-shared) or of the system"
        )
    for name in OURS:
        if not (libraries / name).exists():
            raise PackingError(
                f"{libraries} has no {name}; type: python runtime/native/build_executor.py, and "
                "this again"
            )


def _strip(library: Path, out: Path) -> None:
    """A copy without what only a debugger reads, and without this machine's paths."""
    command = ["strip", "--strip-unneeded", "-o", str(out), str(library)]
    if shutil.which(command[0]) is None:
        raise PackingError("there is no `strip`; apt install binutils")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PackingError(f"`{' '.join(command)}` failed:\n{done.stderr}")
    place = sysconfig.get_config_var("LIBDIR").encode()  # where it would look for libpython
    beside = b"$ORIGIN".ljust(len(place), b"\0")
    out.write_bytes(out.read_bytes().replace(b"\0" + place + b"\0", b"\0" + beside + b"\0"))


def _needed(libraries: list[Path]) -> list[Path]:
    """Libraries of the system that those name, but glibc's, each after what it needs itself."""
    found: dict[str, Path] = {}
    for library in libraries:
        told = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True)
        for name, path in reversed(re.findall(r"(\S+) => (/\S+)", told.stdout)):
            if not _SYSTEM.fullmatch(name) and not name.startswith("libpython"):
                found.setdefault(name, Path(path))
    return list(found.values())
