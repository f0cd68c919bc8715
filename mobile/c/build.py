"""Makes libmlcc.so and mlcc.zip, and puts libmlcc_executor.so beside: the engine for C programs.

    python mobile/c/build.py [OUT]      OUT: a folder  [build/mobile/c]

To be run by the Python that is to be embedded: its headers and library are linked, and the zip has
bytecode of its version. It must have jinja2 and markupsafe, whose files go into the zip. The C++
compiler is $CXX, or the system's. The standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(ROOT))
from tools.python_zip import Sources, write  # noqa: E402

OUT = ROOT / "build" / "mobile" / "c"
LIBRARY, ZIP = "libmlcc.so", "mlcc.zip"
EXECUTOR = ROOT / "runtime" / "mlcc" / "device" / "lib" / "libmlcc_executor.so"
"""As runtime/native built it."""
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread")
ROOTS = ("mlcc.embedded.c.process", "mlcc.device.toy")
"""What C++ imports, and the model of tests."""
NEVER = ("mlcc.local", "mlcc.commands", "mlcc.server", "mlcc.device.reference")
"""Other doors of the package, and numpy's executor. Of TVM's, for GPUs, it has what is mlcc's."""


def build(out: Path) -> None:
    """Both, into a folder. Raises SystemExit that names what is missing."""
    out.mkdir(parents=True, exist_ok=True)
    bundle(out / ZIP)
    if EXECUTOR.exists():
        shutil.copyfile(EXECUTOR, out / EXECUTOR.name)
    else:
        print("mobile/c: no executor was built, so models need TVM's package", file=sys.stderr)
    command = link(out / LIBRARY)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"mobile/c: `{shlex.join(command)}` failed:\n{done.stderr}")


def link(library: Path) -> list[str]:
    """The compiler's command line."""
    words = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    if shutil.which(words[0]) is None:
        sys.exit(f"mobile/c: there is no compiler '{words[0]}'; apt install g++, or set CXX")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        sys.exit("mobile/c: this Python has no shared library, which is what programs embed")
    folder = sysconfig.get_config_var("LIBDIR")
    name = "python" + sysconfig.get_config_var("LDVERSION")
    return [
        *words,
        *FLAGS,
        "-shared",
        f"-I{FOLDER / 'include'}",
        f"-I{sysconfig.get_path('include')}",
        *map(str, sorted((FOLDER / "src").glob("*.cc"))),
        "-o",
        str(library),
        f"-L{folder}",
        f"-l{name}",
        f"-Wl,-rpath,{folder}",
        "-ldl",
    ]


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


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve() if sys.argv[1:] else OUT)
