"""Makes libmlcc.so and mlcc.zip, and puts libmlcc_executor.so beside: the engine for C programs.

    python mobile/c/build.py [OUT]                              for this machine [build/mobile/c]
    python mobile/c/build.py --arch aarch64 --python ROOT OUT   for another Linux, by zig

To be run by the Python that is to be embedded: its headers and library are linked, and the zip has
bytecode of its version; or by one of the same version, where ROOT has the files of the other, as
its packages have them (Debian's libpython3.11 and libpython3.11-dev, unpacked). It must have jinja2
and markupsafe, whose files go into the zip. The C++ compiler is $CXX, or the system's. `android.py`
is for phones. The standard library only.
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
"""As runtime/native built it."""
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread")
ROOTS = ("mlcc.embedded.c.process", "mlcc.device.toy.executor")
"""What C++ imports, and the model of tests."""
NEVER = ("mlcc.local", "mlcc.commands", "mlcc.server", "mlcc.device.reference.executor")
"""Other doors of the package, and numpy's executor. Of TVM's, for GPUs, it has what is mlcc's."""


@dataclass(frozen=True)
class Embedded:
    """The Python that is linked: where its headers are, and its library."""

    version: str
    """As in 3.11."""
    headers: tuple[Path, ...]
    library: Path

    @classmethod
    def running(cls) -> Embedded:
        """The one that runs this. Raises SystemExit if no program can embed it."""
        if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
            sys.exit("mobile/c: this Python has no shared library, which is what programs embed")
        name = f"libpython{sysconfig.get_config_var('LDVERSION')}.so"
        headers = (Path(sysconfig.get_path("include")),)
        return cls(VERSION, headers, Path(sysconfig.get_config_var("LIBDIR")) / name)

    @classmethod
    def unpacked(cls, root: Path) -> Embedded:
        """Of packages that were unpacked into a folder. Raises SystemExit that names what lacks."""
        for header in sorted(root.glob(f"**/python{VERSION}/Python.h")):
            for library in sorted(root.glob(f"**/libpython{VERSION}.so*")):
                # Debian's pyconfig.h names one in a folder of the architecture, beside this one
                return cls(VERSION, (header.parent, header.parent.parent), library)
        sys.exit(
            f"mobile/c: {root} has not both libpython{VERSION}.so and its headers; the zip has "
            f"bytecode of Python {VERSION}, which runs this, so that one is needed"
        )


def build(out: Path) -> None:
    """For this machine, into a folder. Raises SystemExit that names what is missing."""
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
    """For Linux on another CPU, with the Python in `root`. Raises SystemExit."""
    python = Embedded.unpacked(root)
    out.mkdir(parents=True, exist_ok=True)
    bundle(out / ZIP)
    build_executor = executor()
    try:
        build_executor.build(out / EXECUTOR.name, arch)
        words, _ = build_executor.toolchain(arch)
    except build_executor.BuildError as error:
        sys.exit(f"mobile/c: {error}")
    # libpython asks for a newer glibc than we do, which the machine that has it has too
    run(
        link(out / LIBRARY, words, python, "-s", "-Wl,--allow-shlib-undefined"),
        build_executor.zig_cache(),
    )


def link(library: Path, compiler: Sequence[str], python: Embedded, *options: str) -> list[str]:
    """The compiler's command line."""
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


def run(command: Sequence[str], places: Mapping[str, str] | None = None) -> None:
    """Raises SystemExit with what a compiler says. places: what to add to the environment."""
    environment = {**os.environ, **(places or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"mobile/c: `{shlex.join(command)}` failed:\n{done.stderr}")


def executor() -> Any:
    """What builds libmlcc_executor."""
    sys.path.insert(0, str(ROOT / "runtime" / "native"))
    import build_executor

    return build_executor


def bundle(out: Path) -> list[str]:
    """The zip. Returns the names of its modules."""
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
    """As the header says."""
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
    """As the command line says."""
    parser = argparse.ArgumentParser(description="Build libmlcc, the engine for C programs.")
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--arch", help="x86_64 or aarch64, of another Linux")
    parser.add_argument("--python", type=Path, metavar="ROOT", help="where its Python's files are")
    asked = parser.parse_args()
    if (asked.arch is None) != (asked.python is None):
        sys.exit(
            "mobile/c: --arch needs --python ROOT, the files of a Python for it, and vice versa"
        )
    if asked.arch is None:
        build(asked.out.resolve())
    else:
        build_for(asked.arch, asked.python.resolve(), asked.out.resolve())


if __name__ == "__main__":
    main()
