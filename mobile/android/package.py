#!/usr/bin/env python3
"""Builds the packages that apps depend on: JARs with native parts, and Android's AAR.

    python mobile/android/package.py jar            # a Maven repository: build/mobile/repository
    python mobile/android/package.py parts FOLDER   # native parts of this machine, for a JAR
    python mobile/android/package.py parts FOLDER --root ROOT   # of another CPU, built with zig
    python mobile/android/package.py aar            # for Android; see README.md

Run it with .venv's Python, which is packed and must have a shared library. Needs a C++ compiler, a
JDK and Maven: apt install g++ default-jdk-headless maven. Options: --help of each command.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from packing import ANDROID, ROOT, PackingError, aar, jar, parts
from packing.system import System

BUILD = ROOT / "build" / "mobile"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    folder = commands.add_parser("parts", help="native parts of this machine or of a root folder")
    folder.add_argument("out", type=Path)
    folder.add_argument("--root", type=Path, help="a Debian root of another CPU, with its Python")
    made = commands.add_parser("jar", help="JARs in a Maven repository")
    made.add_argument("--out", type=Path, default=BUILD / "repository")
    made.add_argument(
        "--parts", type=Path, action="append", default=[], help="native parts of another machine"
    )
    made = commands.add_parser("aar", help="the AAR for Android")
    made.add_argument("--out", type=Path, default=BUILD / "repository")
    made.add_argument(
        "--native", type=Path, default=BUILD / "android", help="output of c/android.py"
    )
    made.add_argument("--without-native", action="store_true", help="classes only, to compile apps")
    arguments = parser.parse_args()
    if arguments.command == "parts":
        make_parts(arguments.out, arguments.root)
    elif arguments.command == "jar":
        make_jar(arguments.out, arguments.parts)
    else:
        make_aar(arguments.out, None if arguments.without_native else arguments.native)


def make_parts(out: Path, root: Path | None = None) -> dict[str, Any]:
    """Build the native parts of this machine or of another CPU's root folder; return parts.json."""
    system = System.at(root)
    libraries, options, arch = BUILD / "c", [], []
    if root is not None:
        libraries = BUILD / f"c-{system.arch}"
        options, arch = ["--arch", system.arch, "--python", str(root)], [system.arch]
    run([sys.executable, str(ROOT / "mobile" / "c" / "build.py"), *options, str(libraries)])
    run([sys.executable, str(ANDROID / "jni" / "build.py"), str(libraries), *arch])
    return parts.make(system, libraries, out)


def make_jar(out: Path, others: list[Path]) -> None:
    """Build the JARs with native parts of this machine and of others."""
    own = BUILD / "parts" / System.at(None).name
    made = make_parts(own)
    maven("mlcc-jvm,mlcc-openai")
    written = jar.publish([own, *others], out)
    print(f"{written}: {written.stat().st_size / 1e6:.1f} MB, Python {made['python']}, ", end="")
    print(f"for glibc {made['glibc']} or later")


def make_aar(out: Path, native: Path | None) -> None:
    """Build the AAR; native: None = without native parts."""
    abis = aar.find_abis(native) if native else []
    maven("mlcc-android")
    written = aar.publish(native, abis, out)
    print(f"{written}: {written.stat().st_size / 1e6:.1f} MB")
    for abi in abis:
        print(f"{abi}: {aar.installed_size(native, abi) / 1e6:.1f} MB installed, without a model")
    if not abis:
        print("no native parts inside: apps compile against it, but do not run")


def maven(modules: str) -> None:
    """Build modules and their dependencies with Maven."""
    if shutil.which("mvn") is None:
        raise PackingError("there is no mvn; apt install default-jdk-headless maven")
    words = ["mvn", "-q", "-f", str(ANDROID / "pom.xml"), "-pl", modules, "-am", "-DskipTests"]
    run([*words, "package"])


def run(command: list[str]) -> None:
    """Run a command, whose output is shown. Raises PackingError if it fails."""
    if subprocess.run(command, check=False).returncode:
        raise PackingError(f"`{' '.join(command)}` failed; see its output above")


if __name__ == "__main__":
    main()
