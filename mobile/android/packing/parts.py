"""Writes the native parts of one platform to a folder, in the layout that `NativeParts` unpacks.

    parts.json                  list of the files, with hashes
    mlcc.zip python.zip         the engine; the needed part of the standard library
    lib/                        libpython, libmlcc, its executor, its JNI, their dependencies
    modules/                    Python's extension modules
    licenses/

Python is the one that runs this, or one of the same version in another system's root folder
(`system.py`). Its library is stripped of debugging symbols.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from packing import PackingError, elf, licenses
from packing.library import Library
from packing.system import System

LIST = "parts.json"
OURS = ("libmlcc.so", "libmlcc_executor.so", "libmlcc_jni.so")


def make(system: System, libraries: Path, out: Path) -> dict[str, Any]:
    """Collect all parts. libraries: the output folder of mobile/c/build.py and jni/build.py.

    Returns the list. Raises PackingError, also if `out` holds anything but parts: it would be
    deleted.
    """
    _check(libraries)
    if out.is_dir() and any(out.iterdir()) and not (out / LIST).is_file():
        raise PackingError(f"{out} holds no parts, and would be replaced; give a new folder")
    shutil.rmtree(out, ignore_errors=True)
    lib, modules = out / "lib", out / "modules"
    lib.mkdir(parents=True)
    modules.mkdir()
    folder, python = system.library, system.python
    library = Library(folder)
    library.write(out / "python.zip")
    shutil.copyfile(libraries / "mlcc.zip", out / "mlcc.zip")
    for name in OURS:
        system.strip(libraries / name, lib / name)
    extensions = library.extensions(folder / "lib-dynload")
    for path in extensions:
        system.strip(path, modules / path.name)
    needed = system.needed([python, *extensions])
    for path in (python, *needed):
        system.strip(path, lib / path.name)
    licenses.gather(out / "licenses", folder / "LICENSE.txt", needed, system.root)
    first = [path.name for path in (*needed, python)]
    return write_list(out, system.name, first, version=system.version)


def write_list(
    out: Path,
    platform: str,
    first: list[str],
    libraries: str | None = "lib",
    version: str = sys.version.split()[0],
) -> dict[str, Any]:
    """Write parts.json for the files of a folder.

    first: dependencies to load before mlcc's libraries, in order; libraries: the folder of all
    libraries, None if the system finds them; version: that of Python. Raises PackingError for a
    library of another CPU.
    """
    code = [*out.rglob("*.so"), *out.rglob("*.so.*")]
    for path in code:
        elf.check(path, platform.rpartition("-")[2])
    described = {
        "platform": platform,
        "python": version,
        "glibc": elf.glibc(code),
        "libraries": libraries,
        "first": first,
        "modules": ["python.zip", "modules"],
        "files": [entry(path, out) for path in sorted(out.rglob("*")) if path.is_file()],
    }
    (out / LIST).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    return described


def entry(path: Path, folder: Path) -> dict[str, Any]:
    """The entry of one file."""
    data = path.read_bytes()
    name = path.relative_to(folder).as_posix()
    return {"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _check(libraries: Path) -> None:
    for name in OURS:
        if not (libraries / name).exists():
            raise PackingError(
                f"{libraries} has no {name}; type: python runtime/native/build_executor.py, "
                "then repeat"
            )
