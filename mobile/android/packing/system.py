"""Where the native parts of a platform come from: this machine, or an unpacked system of another.

The other is a folder that is Debian's root for that CPU, such as `mmdebstrap` makes and a container
exports; nothing in it is run.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from packing import PackingError, elf

_VERSION = "{}.{}".format(*sys.version_info)


@dataclass(frozen=True)
class System:
    """A Linux whose Python is packed."""

    arch: str
    """As `uname -m` says."""
    root: Path | None = None
    """None = this machine."""

    @classmethod
    def at(cls, root: Path | None) -> System:
        """The CPU is that of the root's Python. Raises PackingError."""
        if root is not None:
            return cls(elf.machine(_one(root, f"libpython{_VERSION}.so.1*")), root)
        if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
            raise PackingError(
                "this Python has no shared library, which is what programs embed; run this by one "
                "of pyenv (PYTHON_CONFIGURE_OPTS=--enable-shared) or of the system"
            )
        return cls(platform.machine())

    @property
    def name(self) -> str:
        """As Kotlin calls it: linux-x86_64."""
        return f"{platform.system().lower()}-{self.arch}"

    @property
    def python(self) -> Path:
        """Its library. Raises PackingError."""
        if self.root is not None:
            return _one(self.root, f"libpython{_VERSION}.so.1*")
        return Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")

    @property
    def version(self) -> str:
        """Python's, as in 3.11.7."""
        if self.root is None:
            return sys.version.split()[0]
        found = re.search(rf"\0({_VERSION}\.\d+)[+\0]".encode(), self.python.read_bytes())
        return found[1].decode() if found else _VERSION

    @property
    def library(self) -> Path:
        """The folder of the standard library. Raises PackingError."""
        if self.root is None:
            return Path(sysconfig.get_path("stdlib"))
        return _one(self.root, f"python{_VERSION}/os.py").parent

    def needed(self, libraries: list[Path]) -> list[Path]:
        """Libraries of the system that those name, but glibc's, each after what it needs itself.

        Raises PackingError.
        """
        found: dict[str, Path] = {}
        for library in libraries:
            for path in self._needs(library):
                found.setdefault(path.name, path)
        return list(found.values())

    def _needs(self, library: Path) -> list[Path]:
        if self.root is None:
            told = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True)
            said = dict(re.findall(r"(\S+) => (/\S+)", told.stdout))
            return [Path(path) for name, path in reversed(said.items()) if _is_packed(name)]
        own = [_one(self.root, name) for name in elf.needed(library) if _is_packed(name)]
        return [path for other in own for path in (*self._needs(other), other)]

    def strip(self, library: Path, out: Path) -> None:
        """A copy without what only a debugger reads, and without this machine's paths.

        Raises PackingError.
        """
        own = self.arch == platform.machine()
        tool = "strip" if own else f"{self.arch}-linux-gnu-strip"
        if shutil.which(tool) is None:
            package = "binutils" if own else f"binutils-{self.arch.replace('_', '-')}-linux-gnu"
            raise PackingError(f"there is no `{tool}`; apt install {package}")
        command = [tool, "--strip-unneeded", "-o", str(out), str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PackingError(f"`{' '.join(command)}` failed:\n{done.stderr}")
        place = sysconfig.get_config_var("LIBDIR").encode()  # where it would look for libpython
        beside = b"$ORIGIN".ljust(len(place), b"\0")
        out.write_bytes(out.read_bytes().replace(b"\0" + place + b"\0", b"\0" + beside + b"\0"))


_GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|util))\.so\.\d+")
"""The system's in any case."""


def _is_packed(name: str) -> bool:
    return not _GLIBC.fullmatch(name) and not name.startswith("libpython")


def _one(root: Path, name: str) -> Path:
    """A file of a root, by the end of its path."""
    folders = [root / top for top in ("usr/lib", "lib", "usr/local/lib")]
    for folder in folders:
        for path in sorted(folder.glob(f"**/{name}"), key=lambda path: len(path.parts)):
            if path.exists():
                return path
    raise PackingError(
        f"{root} has no {name}; it is to be a Debian root with libpython{_VERSION}, "
        f"libpython{_VERSION}-stdlib and what those depend on"
    )
