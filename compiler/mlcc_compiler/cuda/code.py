"""CUDA C++ to machine code: nvcc for several architectures at once, or nvrtc for a single one.

Needs no GPU. Knows text and files, nothing of TVM (`build.py` joins the two). Arithmetic stays
exact: no --use_fast_math, whose division and square root lose digits that the kernels rely on.
Machine code is cached in `mlcc.util.file_cache.KERNELS`, by the text, the architectures and the
compiler.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlcc.util.file_cache import KERNELS
from mlcc_compiler.cuda import nvrtc as cuda_nvrtc
from mlcc_targets import TargetError
from mlcc_targets.cuda_files import toolkit

_INSTALL = 'pip install "mlcc[cuda]"'
_FLAGS = ("--fatbin", "-O3", "-std=c++17", "-w", "-Xptxas", "-v")
_FORMAT = "cuda 2"
"""Part of every key of the cache; raised when its entries change."""


@dataclass(frozen=True)
class KernelResources:
    """Resources of one kernel on one architecture, as ptxas reports them."""

    kernel: str
    arch: str
    registers: int
    spill_bytes: int
    """Stores and loads of spilled registers, per thread; 0 is wanted."""
    shared_bytes: int


@dataclass(frozen=True)
class DeviceCode:
    """A fat binary or a cubin, and its kernels' resources."""

    binary: bytes
    kernels: tuple[KernelResources, ...]
    seconds: float


def missing(archs: Sequence[str]) -> str:
    """What this machine lacks to compile for `archs` and the command that installs it; empty =
    nothing."""
    if toolkit() is not None:
        if shutil.which("g++") is None:
            return "nvcc needs a C++ compiler; apt install g++"
        return ""
    if not cuda_nvrtc.available():
        return f"neither nvcc nor nvrtc is here; {_INSTALL}"
    if len(archs) > 1:
        return (
            "nvrtc makes code for one architecture; name it with --arch, as in --arch "
            f"{archs[-1]}, or {_INSTALL} for all of {','.join(archs)}"
        )
    return ""


def compile_cuda(text: str, archs: Sequence[str]) -> DeviceCode:
    """Machine code for each of `archs` (oldest first), and PTX of the first. Raises TargetError."""
    start = time.perf_counter()
    key = hashlib.sha256(f"{cuda_compiler(archs)}\0{text}".encode()).hexdigest()
    if (cached := KERNELS.load(key)) is not None:
        binary, report = _unpacked(cached)
    else:
        root = toolkit()
        binary, report = (
            _nvcc(root, text, archs) if root else cuda_nvrtc.compile_cubin(text, archs[0])
        )
        KERNELS.store(key, _packed(binary, report))
        KERNELS.trim()
    return DeviceCode(binary, parse_report(report), time.perf_counter() - start)


def cuda_compiler(archs: Sequence[str]) -> str:
    """What machine code depends on beside its text: the compiler's version and options, and the
    architectures. Raises TargetError if there is no compiler."""
    root = toolkit()
    version = _nvcc_version(root) if root else cuda_nvrtc.version()
    return "\0".join((_FORMAT, version, *_FLAGS, *cuda_nvrtc.OPTIONS, *archs))


def _packed(binary: bytes, report: str) -> bytes:
    """A cache's entry: the length of the report in 8 bytes, the report, the machine code."""
    text = report.encode()
    return len(text).to_bytes(8, "little") + text + binary


def _unpacked(entry: bytes) -> tuple[bytes, str]:
    end = 8 + int.from_bytes(entry[:8], "little")
    return entry[end:], entry[8:end].decode()


@cache
def _nvcc_version(root: Path) -> str:
    """What nvcc says of itself. Raises TargetError if it does not start."""
    try:
        command = [str(root / "bin/nvcc"), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise TargetError(f"nvcc in {root} cannot be run ({error}); {_INSTALL}") from error


def _nvcc(root: Path, text: str, archs: Sequence[str]) -> tuple[bytes, str]:
    """Run in its own folder with plain names, so that the result depends on the text alone.

    The text goes through the front end once, as PTX of the oldest architecture: the kernels use
    nothing newer, and the front end takes most of the time.
    """
    command = [str(root / "bin/nvcc"), *_FLAGS, "--threads=0", "-o", "kernels.fatbin", "kernels.cu"]
    ptx = archs[0].replace("sm_", "compute_")
    command.append(f"-gencode=arch={ptx},code=[{','.join([*archs, ptx])}]")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernels.cu").write_text(text, encoding="utf-8")
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        report = done.stdout + done.stderr
        if done.returncode:
            faults = [line for line in report.splitlines() if "error" in line.lower()]
            reason = (faults or report.splitlines() or ["no message"])[0]
            raise TargetError(f"nvcc failed on the generated kernels: {reason}")
        return (folder / "kernels.fatbin").read_bytes(), report


_REPORT = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)' for '(?P<arch>\w+)'"
    r".*?(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def parse_report(text: str) -> tuple[KernelResources, ...]:
    """The kernels of a `ptxas -v` report, in its order."""
    found = []
    for match in _REPORT.finditer(text):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        spilled = int(match["stores"]) + int(match["loads"])
        found.append(
            KernelResources(
                match["kernel"],
                match["arch"],
                int(match["registers"]),
                spilled,
                int(shared[1]) if shared else 0,
            )
        )
    return tuple(found)


def table(kernels: Sequence[KernelResources]) -> str:
    """The kernels as a text table."""
    rows = [f"{'kernel':<48} {'arch':<8}{'registers':>10}{'spill B':>9}{'shared B':>10}"]
    for k in kernels:
        numbers = f"{k.registers:>10}{k.spill_bytes:>9}{k.shared_bytes:>10}"
        rows.append(f"{k.kernel:<48} {k.arch:<8}{numbers}")
    return "\n".join(rows) + "\n"
