"""Reads shared libraries: their CPU, the libraries that they link, and the glibc that they need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from packing import PackingError

_MACHINES = {3: "x86", 40: "arm", 62: "x86_64", 183: "aarch64"}
ABIS = {"arm64-v8a": "aarch64", "armeabi-v7a": "arm", "x86_64": "x86_64", "x86": "x86"}
"""Android's name of a CPU -> that of `uname -m`."""


def machine(library: Path) -> str:
    """The CPU of a library. Raises PackingError for a file that is not ELF."""
    head = library.open("rb").read(20)
    if head[:4] != b"\x7fELF" or len(head) < 20:
        raise PackingError(f"{library} is no library for Linux or Android; build it again")
    number = int.from_bytes(head[18:20], "little")
    return _MACHINES.get(number, f"CPU {number}")


def check(library: Path, wanted: str) -> None:
    """Raise PackingError unless the library is for the CPU."""
    if (found := machine(library)) != wanted:
        raise PackingError(
            f"{library} is for {found}, not for {wanted}; bring the one for {wanted}"
        )


def glibc(libraries: list[Path]) -> str:
    """The oldest glibc that all libraries run with."""
    versions = {
        tuple(map(int, match.groups()))
        for library in libraries
        for match in re.finditer(rb"\0GLIBC_2\.(\d+)(?=[\0.])", library.read_bytes())
    }
    return f"2.{max(versions)[0]}" if versions else ""


def needed(library: Path) -> list[str]:
    """The names of the libraries that a library links."""
    command = ["readelf", "-d", str(library)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\)[^\[]*\[(.+)\]", output)
