"""Builds the engine for C programs: libmlcc.so, mlcc.zip, and a copy of libmlcc_executor.so.

    python mobile/c/build.py [OUT]                              for this machine [build/mobile/c]
    python mobile/c/build.py --arch aarch64 --python ROOT OUT   for another Linux, by zig

Run it with the Python that is to be embedded: the library links it, and the zip holds bytecode of
its version. To build for another machine, run it with a Python of the same version; ROOT holds the
other machine's Python (for example Debian's libpython3.11 and libpython3.11-dev, unpacked). jinja2
and markupsafe must be installed: their files go into the zip. The C++ compiler is $CXX, or the
system's. `android.py` builds for phones. Uses the standard library only.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(ROOT))
from tools.python_zip import Sources, write  # noqa: E402

VERSION = "{}.{}".format(*sys.version_info)
OUT = ROOT / "build" / "mobile" / "c"
LIBRARY, ZIP = "libmlcc.so", "mlcc.zip"
EXECUTOR = ROOT / "runtime" / "mlcc" / "device" / "lib" / "libmlcc_executor.so"
"""Built by runtime/native."""
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread")
ROOTS = ("mlcc.embedded.c.process", "mlcc.device.toy.executor")
"""The module that C++ imports, and the toy model that tests use."""
NEVER = ("mlcc.local", "mlcc.commands", "mlcc.server", "mlcc.device.reference.executor")
"""Not in the zip: the other front ends, and the executor that needs numpy."""


@dataclass(frozen=True)
class Embedded:
    """The Python that libmlcc links: its headers and its library."""

    version: str
    """Major and minor, such as 3.11."""
    headers: tuple[Path, ...]
    library: Path

    @classmethod
    def running(cls) -> Embedded:
        """The Python that runs this script. Raises SystemExit if it has no shared library."""
        if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
            sys.exit("mobile/c: this Python has no shared library to embed")
        name = f"libpython{sysconfig.get_config_var('LDVERSION')}.so"
        headers = (Path(sysconfig.get_path("include")),)
        return cls(VERSION, headers, Path(sysconfig.get_config_var("LIBDIR")) / name)

    @classmethod
    def unpacked(cls, root: Path) -> Embedded:
        """A Python whose packages are unpacked in a folder. SystemExit if a part is missing."""
        for header in sorted(root.glob(f"**/python{VERSION}/Python.h")):
            for library in sorted(root.glob(f"**/libpython{VERSION}.so*")):
                # Debian's pyconfig.h names one in a folder of the architecture, beside this one
                return cls(VERSION, (header.parent, header.parent.parent), library)
        sys.exit(
            f"mobile/c: {root} has not both libpython{VERSION}.so and its headers; the zip has "
            f"bytecode of Python {VERSION}, which runs this, so that one is needed"
        )


def build(out: Path) -> None:
    """Build for this machine. Raises SystemExit that names a missing tool or library."""
    out.mkdir(parents=True, exist_ok=True)
    bundle(out / ZIP)
    if EXECUTOR.exists():
        shutil.copyfile(EXECUTOR, out / EXECUTOR.name)
    else:
        print("mobile/c: no executor was built, so models need TVM's package", file=sys.stderr)
    words = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    if shutil.which(words[0]) is None:
        sys.exit(f"mobile/c: there is no compiler '{words[0]}'; apt install g++, or set CXX")
    python = Embedded.running()
    run(link(out / LIBRARY, words, python, f"-Wl,-rpath,{python.library.parent}"))


def build_for(arch: str, root: Path, out: Path) -> None:
    """Build for Linux on another CPU, with the Python in `root`. Raises SystemExit."""
    python = Embedded.unpacked(root)
    out.mkdir(parents=True, exist_ok=True)
    bundle(out / ZIP)
    build_executor = executor()
    try:
        build_executor.build(out / EXECUTOR.name, arch)
        words, _ = build_executor.toolchain(arch)
    except build_executor.BuildError as error:
        sys.exit(f"mobile/c: {error}")
    # libpython may need a newer glibc than libmlcc; the target machine has it
    run(
        link(out / LIBRARY, words, python, "-s", "-Wl,--allow-shlib-undefined"),
        build_executor.zig_cache(),
    )


def link(library: Path, compiler: Sequence[str], python: Embedded, *options: str) -> list[str]:
    """The command line of the compiler for libmlcc."""
    return [
        *compiler,
        *FLAGS,
        "-shared",
        f"-Wl,-soname,{library.name}",
        f"-I{FOLDER / 'include'}",
        *(f"-I{folder}" for folder in python.headers),
        *map(str, sorted((FOLDER / "src").glob("*.cc"))),
        "-o",
        str(library),
        f"-L{python.library.parent}",
        f"-lpython{python.version}",
        *options,
        "-ldl",
    ]


def run(command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
    """Run a command with more environment variables. Raises SystemExit with its stderr."""
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"mobile/c: `{shlex.join(command)}` failed:\n{done.stderr}")


def executor() -> Any:
    """The module that builds libmlcc_executor."""
    sys.path.insert(0, str(ROOT / "runtime" / "native"))
    import build_executor

    return build_executor


def bundle(out: Path) -> list[str]:
    """Write the zip of the engine's modules. Returns their names."""
    sources = Sources()
    for folder in (ROOT / "runtime" / "mlcc", package("jinja2"), package("markupsafe")):
        sources.add_folder(folder)
    names = sources.closure(ROOTS, NEVER)
    stamp = f"abi{abi_version()} {sys.implementation.cache_tag}\n"
    partial = out.with_suffix(".partial")  # the old one may be in use
    write(sources, names, partial, {"mlcc.runtime": stamp})
    partial.replace(out)
    return names


def abi_version() -> int:
    """MLCC_ABI_VERSION of the header."""
    text = (FOLDER / "include" / "mlcc.h").read_text(encoding="utf-8")
    found = re.search(r"#define MLCC_ABI_VERSION (\d+)u", text)
    assert found
    return int(found[1])


def package(name: str) -> Path:
    """The folder of an installed package."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(f"mobile/c: this Python lacks {name}; type: python3 dev.py run targets, then this")
    return Path(spec.origin).parent


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build libmlcc, the engine for C programs.")
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--arch", help="CPU of another Linux: x86_64 or aarch64")
    parser.add_argument(
        "--python", type=Path, metavar="ROOT", help="folder of that machine's Python"
    )
    arguments = parser.parse_args()
    if (arguments.arch is None) != (arguments.python is None):
        sys.exit("mobile/c: give --arch and --python ROOT, the files of a Python for it, together")
    if arguments.arch is None:
        build(arguments.out.resolve())
    else:
        build_for(arguments.arch, arguments.python.resolve(), arguments.out.resolve())


if __name__ == "__main__":
    main()
