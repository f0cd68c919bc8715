"""Collects the licences of all packed parts."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

from packing import ROOT, PackingError

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "jinja2", "markupsafe")
"""Python packages whose code is in the zip or in the executor."""
_COMPILER = "ziglang-*.dist-info/licenses/ziglang/lib/libcxx*/LICENSE.TXT"
"""Licences of the C++ library that zig links into the executor."""


def gather(out: Path, python: Path, system: list[Path], root: Path | None = None) -> None:
    """Copy all licences to `out`. python: the file of Python's licence; system: libraries of the
    system; root: the root folder of that system, None = this machine.

    Raises PackingError for a part whose licence is not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "LICENSE", out / "mlcc.txt")
    if not python.exists():
        raise PackingError(
            f"{python} is missing: Python may be redistributed with its licence only"
        )
    shutil.copyfile(python, out / "python.txt")
    for name in _PACKAGES:
        for number, file in enumerate(_of_package(name)):
            shutil.copyfile(file, out / f"{name}{f'-{number}' if number else ''}.txt")
    site = Path(str(metadata.distribution("jinja2").locate_file("")))
    for file in site.glob(_COMPILER):
        shutil.copyfile(file, out / f"{file.parent.name}.txt")
    for library in system:
        found = _of_debian(library, root or Path("/"))
        shutil.copyfile(found, out / f"{library.name.split('.')[0]}.txt")


def _of_package(name: str) -> list[Path]:
    found = metadata.distribution(name)
    files = [
        Path(str(file.locate()))
        for file in found.files or ()
        if file.name.startswith(("LICENSE", "NOTICE")) and "dist-info" in str(file)
    ]
    if not files:
        raise PackingError(f"the package {name} is installed without its licence; install it again")
    return files


def _of_debian(library: Path, root: Path) -> Path:
    """The copyright file of the package that owns a library, by dpkg's file lists."""
    for files in (root / "var/lib/dpkg/info").glob("*.list"):
        if any(line.endswith("/" + library.name) for line in files.read_text().splitlines()):
            package = files.stem.partition(":")[0]
            copyright = root / "usr/share/doc" / package / "copyright"
            if copyright.exists():
                return copyright
    raise PackingError(f"no package of the system says the licence of {library}")
