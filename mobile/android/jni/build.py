"""Builds libmlcc_jni.so, the JNI functions of the Kotlin package, beside libmlcc.so.

    python mobile/android/jni/build.py FOLDER       FOLDER: the output of mobile/c/build.py
    python mobile/android/jni/build.py FOLDER ARCH  for another Linux, with zig

The JNI headers are those of $JAVA_HOME, or of the JDK whose javac is on the path. The C++ compiler
is $CXX, or the system's. Uses the standard library only.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parents[1] / "c" / "include"
LIBRARY = "libmlcc_jni.so"
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


def build(folder: Path, arch: str | None = None) -> None:
    """arch: None = this machine. Raises SystemExit that names a missing tool."""
    java = headers()
    words, variables = compiler(arch)
    command = [
        *words,
        *FLAGS,
        "-shared",
        f"-I{HEADERS}",
        f"-I{java}",
        f"-I{java / 'linux'}",
        *map(str, sorted(HERE.glob("*.cc"))),
        "-o",
        str(folder / LIBRARY),
        f"-L{folder}",
        "-lmlcc",
        "-Wl,-rpath,$ORIGIN",
    ]
    if shutil.which(command[0]) is None:
        sys.exit(f"mobile/android: no compiler '{command[0]}'; apt install g++, or set CXX")
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"mobile/android: `{shlex.join(command)}` failed:\n{done.stderr}")


def compiler(arch: str | None) -> tuple[list[str], dict[str, str]]:
    """The compiler's command, and environment variables for it. Raises SystemExit."""
    if arch is None:
        return shlex.split(os.environ.get("CXX", "")) or ["c++"], {}
    sys.path.insert(0, str(HERE.parents[2] / "runtime" / "native"))
    import build_executor

    try:
        words, _ = build_executor.toolchain(arch)
    except build_executor.BuildError as error:
        sys.exit(f"mobile/android: {error}")
    # the target machine has the dependencies of libmlcc
    return [*words, "-s", "-Wl,--allow-shlib-undefined"], dict(build_executor.zig_cache())


def headers() -> Path:
    """The folder with jni.h."""
    compiler = shutil.which("javac")
    home = os.environ.get("JAVA_HOME") or (compiler and Path(compiler).resolve().parents[1])
    folder = Path(home or "") / "include"
    if not (folder / "jni.h").exists():
        sys.exit("mobile/android: no jni.h; apt install default-jdk-headless, or set JAVA_HOME")
    return folder


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build(Path(sys.argv[1]).resolve(), *sys.argv[2:])
