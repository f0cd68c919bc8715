#!/usr/bin/env python3
"""Makes what an app names as a dependency: JARs with native parts, and Android's AAR.

    python mobile/android/package.py jar            # a Maven repository: build/mobile/repository
    python mobile/android/package.py parts FOLDER   # this machine's native parts, for another's JAR
    python mobile/android/package.py parts FOLDER --root ROOT   # another CPU's, by zig
    python mobile/android/package.py aar            # for Android; README.md says what it needs

Each says with --help what it takes. The Python that runs this is packed: .venv's, whose interpreter
must have a shared library. Needs a C++ compiler, a JDK and Maven:
apt install g++ default-jdk-headless maven
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
    """One of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    folder = commands.add_parser("parts", help="native parts of this machine")
    folder.add_argument("out", type=Path)
    folder.add_argument("--root", type=Path, help="a Debian root of another CPU, with its Python")
    made = commands.add_parser("jar", help="JARs, as a Maven repository")
    made.add_argument("--out", type=Path, default=BUILD / "repository")
    made.add_argument("--parts", type=Path, action="append", default=[], help="of other machines")
    made = commands.add_parser("aar", help="the AAR")
    made.add_argument("--out", type=Path, default=BUILD / "repository")
    made.add_argument("--native", type=Path, default=BUILD / "android", help="of c/android.py")
    made.add_argument("--without-native", action="store_true", help="to compile apps with, no more")
    asked = parser.parse_args()
    if asked.command == "parts":
        make_parts(asked.out, asked.root)
    elif asked.command == "jar":
        make_jar(asked.out, asked.parts)
    else:
        make_aar(asked.out, None if asked.without_native else asked.native)


def make_parts(out: Path, root: Path | None = None) -> dict[str, Any]:
    """The native parts of this machine or of another CPU's root, built anew; returns their list."""
    system = System.at(root)
    libraries, options, arch = BUILD / "c", [], []
    if root is not None:
        libraries = BUILD / f"c-{system.arch}"
        options, arch = ["--arch", system.arch, "--python", str(root)], [system.arch]
    run([sys.executable, str(ROOT / "mobile" / "c" / "build.py"), *options, str(libraries)])
    run([sys.executable, str(ANDROID / "jni" / "build.py"), str(libraries), *arch])
    return parts.make(system, libraries, out)


def make_jar(out: Path, others: list[Path]) -> None:
    """This machine's parts and those of others, and Kotlin's classes."""
    own = BUILD / "parts" / System.at(None).name
    made = make_parts(own)
    maven("mlcc-jvm,mlcc-openai")
    written = jar.publish([own, *others], out)
    print(f"{written}: {written.stat().st_size / 1e6:.1f} MB, Python {made['python']}, ", end="")
    print(f"for glibc {made['glibc']} or later")


def make_aar(out: Path, native: Path | None) -> None:
    """Android's, if its native parts are there, or for None: without, which says so."""
    abis = aar.found(native) if native else []
    maven("mlcc-android")
    written = aar.publish(native, abis, out)
    print(f"{written}: {written.stat().st_size / 1e6:.1f} MB")
    for abi in abis:
        print(f"{abi}: {aar.installed(native, abi) / 1e6:.1f} MB installed, without a model")
    if not abis:
        print("it has no native parts: apps compile against it, and nothing runs")


def maven(modules: str) -> None:
    """Build modules, and those that they need."""
    if shutil.which("mvn") is None:
        raise PackingError("there is no mvn; apt install default-jdk-headless maven")
    words = ["mvn", "-q", "-f", str(ANDROID / "pom.xml"), "-pl", modules, "-am", "-DskipTests"]
    run([*words, "package"])


def run(command: list[str]) -> None:
    """Or raise PackingError; what went wrong, the command has said."""
    if subprocess.run(command, check=False).returncode:
        raise PackingError(f"`{' '.join(command)}` failed; what it said is above")


if __name__ == "__main__":
    main()
