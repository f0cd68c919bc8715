"""Selects the part of Python's standard library that the engine imports."""

from __future__ import annotations

import runpy
import zipfile
from pathlib import Path

from packing import ROOT
from tools.python_zip import Sources, write

_ROOTS = (
    "asyncio",
    "concurrent.futures.thread",  # imported by name on first use
    "_strptime",  # imported by datetime's C code
    *(f"encodings.{name}" for name in ("ascii", "idna", "latin_1", "unicode_escape", "utf_8")),
    "encodings.utf_8_sig",
    *(f"encodings.utf_{bits}{order}" for bits in (16, 32) for order in ("", "_be", "_le")),
    "encodings.cp437",  # for zipimport
)
_NEVER = (
    "__main__",
    "_aix_support",
    "_bz2",
    "_lzma",
    "_osx_support",
    "_pydecimal",
    "_pyio",
    "argparse",
    "asyncio.windows_events",
    "asyncio.windows_utils",
    "bz2",
    "concurrent.futures.process",
    "ctypes.macholib",
    "decimal",
    "doctest",
    "email",
    "fractions",
    "gettext",
    "gzip",
    "http",
    "lzma",
    "multiprocessing",
    "pdb",
    "plistlib",
    "py_compile",
    "pydoc",
    "readline",
    "secrets",
    "ssl",
    "statistics",
    "sysconfig",
    "tarfile",
    "test",
    "unittest",
    "urllib.request",
    "xml",
)
"""Imported only inside functions that the engine does not call: processes, archives, TLS, mail.
OpenSSL's hashes stay: they hash a model ten times as fast."""
_ENGINE = ("mlcc", "jinja2", "markupsafe")


class Library:
    """The sources of a standard library, and the modules of it that are needed."""

    def __init__(self, folder: Path) -> None:
        """folder: lib/pythonX.Y."""
        build = runpy.run_path(str(ROOT / "mobile" / "c" / "build.py"))
        self._sources = Sources()
        for package in (ROOT / "runtime" / "mlcc", *map(build["package"], _ENGINE[1:])):
            self._sources.add_folder(package)
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder)
            if name.parts[0] != "site-packages" and "test" not in name.parts:
                self._sources.add(name.as_posix(), path.read_bytes())
        roots, never = build["ROOTS"], build["NEVER"]
        found = self._sources.closure([*roots, *_ROOTS], [*never, *_NEVER])
        self.modules = [name for name in found if name.partition(".")[0] not in _ENGINE]
        """Names of the needed Python modules."""
        self._imported = {name for module in found for name in self._sources.imports(module)}

    def extensions(self, folder: Path) -> list[Path]:
        """The needed extension modules of a folder."""
        wanted = self._imported - set(_NEVER)
        return sorted(path for path in folder.glob("*.so") if path.name.split(".")[0] in wanted)

    def write(self, out: Path) -> None:
        """Write the zip, uncompressed: zlib is an extension module, and JARs compress already."""
        write(self._sources, self.modules, out, method=zipfile.ZIP_STORED)
