"""System packages that tests use: one row each.

`dev.py test` installs missing ones (`debian.py`), and tests name the ones they lack
(`tests/helpers/needs.py`). PyPI and npm provide everything else. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools import windows_python

LAVAPIPE = Path(f"/usr/share/vulkan/icd.d/lvp_icd.{platform.machine()}.json")
"""Mesa's Vulkan driver on the CPU."""
SWIFT_ROOT = Path(__file__).with_name("swift_root.sh")
WINDOWS = ("python", "-m", "tools.windows_python", "make")
SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
"""Google's driver in Debian's chromium: no f16, another compiler."""


@dataclass(frozen=True)
class Need:
    """A tool of the tests, its Debian packages, and a check whether it is installed."""

    name: str
    packages: str
    purpose: str
    is_here: Callable[[], bool]
    command: tuple[str, ...] = ()
    """Makes it of the packages, as root. CI may lack it, and skips its tests then."""

    @property
    def absent(self) -> str:
        """The message if it is not installed."""
        then = f", then as root: {' '.join(self.command)}" if self.command else ""
        return f"needs {self.name} (apt install {self.packages}{then})"


def tools(*names: str) -> Callable[[], bool]:
    """Whether programs are on the path, by their plain names or LLVM's versioned ones."""

    def are_here() -> bool:
        return all(any(map(shutil.which, (name, *versioned(name)))) for name in names)

    return are_here


def versioned(name: str) -> list[str]:
    """A tool's name with Debian's LLVM version: ld64.lld-14."""
    return [f"{name}-{version}" for version in range(40, 13, -1)]


def lavapipe() -> bool:
    """Whether the driver and Vulkan's loader are here."""
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return False
    return LAVAPIPE.exists()


def maven() -> bool:
    """Whether Maven, a JDK, and Compose's graphics libraries are installed."""
    try:
        ctypes.CDLL("libGL.so.1")
    except OSError:
        return False
    return tools("mvn", "javac")()


def swift() -> bool:
    """Whether Swift is installed, or a root with it was made, which needs chroot."""
    made = subprocess.run((str(SWIFT_ROOT), "is-made"), check=False).returncode == 0
    return (made and os.geteuid() == 0) or tools("swift", "swiftc")()


CROSS = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
NEEDS = (
    Need("g++", "g++", "builds the WebGPU plugin and emulates CUDA", tools("g++")),
    Need("clang-tidy", "clang-tidy", "checks the plugin's C++", tools("clang-tidy")),
    Need("lavapipe", "libvulkan1 mesa-vulkan-drivers", "runs GPU kernels on the CPU", lavapipe),
    Need("chromium", "chromium", "runs models in a tab, on its GPU in software", tools("chromium")),
    Need("llvm", "llvm", "reads libraries for Apple and Android", tools("llvm-nm", "llvm-readelf")),
    Need("maven", "default-jdk-headless maven libgl1", "builds Kotlin", maven),
    Need("systemd", "systemd", "checks the unit", tools("systemd-analyze")),
    Need("debootstrap", "debootstrap", "builds the image without an engine", tools("debootstrap")),
    Need(
        "swift", "debootstrap", "builds the Swift package", swift, ("tools/swift_root.sh", "make")
    ),
    Need("wine", "wine64", "runs Windows programs", windows_python.is_made, WINDOWS),
    Need("xvfb", "xvfb", "is the screen without which wine has no GPU", tools("Xvfb")),
    Need("curl", "curl", "asks the server as it says one can", tools("curl")),
    Need("qemu", "qemu-user", "runs arm64 code", tools("qemu-aarch64")),
    Need("an arm64 compiler", CROSS, "builds arm64 programs", tools("aarch64-linux-gnu-gcc")),
)
VENV = Need("python3-venv", "python3-venv", "creates .venv", lambda: False)
"""Debian's Python cannot without; asked for where it has failed."""


def missing() -> list[Need]:
    """The rows of what is not here and must be in CI."""
    return [need for need in NEEDS if not need.command and not need.is_here()]


def slow() -> list[Need]:
    """The rows of what a command still has to make."""
    return [need for need in NEEDS if need.command and not need.is_here()]


def named(name: str) -> Need:
    """A row. Raises KeyError."""
    return {need.name: need for need in NEEDS}[name]
