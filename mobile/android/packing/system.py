"""The system whose Python is packed: this machine, or an unpacked root folder for another CPU.

The root folder is Debian's for that CPU, for example made by `mmdebstrap` or exported from a
container. Nothing in it is executed.
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
    """A Linux system whose Python is packed."""

    arch: str
    """The output of `uname -m`."""
    root: Path | None = None
    """None = this machine."""

    @classmethod
    def at(cls, root: Path | None) -> System:
        """The system at `root`; its CPU is that of its libpython. Raises PackingError."""
        if root is not None:
            return cls(elf.machine(_one(root, f"libpython{_VERSION}.so.1*")), root)
        if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
            raise PackingError(
                "this Python has no shared library to embed; use one of pyenv "
                "(PYTHON_CONFIGURE_OPTS=--enable-shared) or of the system"
            )
        return cls(platform.machine())

    @property
    def name(self) -> str:
        """The platform's name in Kotlin, such as linux-x86_64."""
        return f"{platform.system().lower()}-{self.arch}"

    @property
    def python(self) -> Path:
        """The path of libpython. Raises PackingError."""
        if self.root is not None:
            return _one(self.root, f"libpython{_VERSION}.so.1*")
        return Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")

    @property
    def version(self) -> str:
        """The version of Python, such as 3.11.7."""
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
        """The dependencies of libraries except glibc, each after its own dependencies.

        Raises PackingError.
        """
        found: dict[str, Path] = {}
        for library in libraries:
            for path in self._needs(library):
                found.setdefault(path.name, path)
        return list(found.values())

    def _needs(self, library: Path) -> list[Path]:
        if self.root is None:
            output = subprocess.run(
                ["ldd", str(library)], capture_output=True, text=True, check=True
            )
            paths = dict(re.findall(r"(\S+) => (/\S+)", output.stdout))
            return [Path(path) for name, path in reversed(paths.items()) if _is_packed(name)]
        own = [_one(self.root, name) for name in elf.needed(library) if _is_packed(name)]
        return [path for other in own for path in (*self._needs(other), other)]

    def strip(self, library: Path, out: Path) -> None:
        """Copy a library without debugging symbols and without paths of this machine.

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
        libdir = sysconfig.get_config_var("LIBDIR").encode()  # the run path for libpython
        origin = b"$ORIGIN".ljust(len(libdir), b"\0")
        data = out.read_bytes().replace(b"\0" + libdir + b"\0", b"\0" + origin + b"\0")
        out.write_bytes(data)


_GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|util))\.so\.\d+")
"""Libraries that every system has."""


def _is_packed(name: str) -> bool:
    return not _GLIBC.fullmatch(name) and not name.startswith("libpython")


def _one(root: Path, name: str) -> Path:
    """The file below a root folder whose path ends with `name`."""
    folders = [root / top for top in ("usr/lib", "lib", "usr/local/lib")]
    for folder in folders:
        for path in sorted(folder.glob(f"**/{name}"), key=lambda path: len(path.parts)):
            if path.exists():
                return path
    raise PackingError(
        f"{root} has no {name}; it is to be a Debian root with libpython{_VERSION}, "
        f"libpython{_VERSION}-stdlib and what those depend on"
    )
