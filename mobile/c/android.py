"""Builds the native parts and the Python of an Android app with the NDK (list: mobile/README.md).

    ANDROID_NDK_HOME=... python mobile/c/android.py [--abi arm64-v8a,x86_64] [OUT]

OUT defaults to build/mobile/android. Maven downloads Chaquopy's CPython for Android. Run this with
a Python of the same version, whose bytecode goes into the zips. jinja2, markupsafe and TVM's
packages must be installed (TVM's sources are compiled into the executor). Uses the standard library
only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import build as desktop
from build import FLAGS, FOLDER, LIBRARY, ROOT, VERSION, ZIP, Embedded, link, run

JNI = ROOT / "mobile" / "android" / "jni"
sys.path.insert(0, str(JNI.parent))
from packing import licenses  # noqa: E402
from packing.library import Library  # noqa: E402

OUT = ROOT / "build" / "mobile" / "android"
CHAQUOPY = "com.chaquo.python:target:3.11.10-0"
"""CPython for Android, with its standard library, on Maven Central."""
API = 26
"""Android 8: the oldest that the Kotlin package supports."""
TRIPLES = {"arm64-v8a": "aarch64-linux-android", "x86_64": "x86_64-linux-android"}
LINK = ("-static-libstdc++", "-s", "-Wl,-z,max-page-size=16384", "-Wl,--no-undefined")
BESIDE = {"_hashlib": ("libcrypto_python.so",)}
"""Extension module -> libraries that it links. OpenSSL hashes a model ten times as fast."""


def build(abis: Sequence[str], out: Path) -> None:
    """Build all parts into a folder. Raises SystemExit that names a missing tool."""
    compilers = {abi: compiler(ndk(), abi) for abi in abis}
    out.mkdir(parents=True, exist_ok=True)
    desktop.bundle(out / ZIP)
    with tempfile.TemporaryDirectory() as folder:
        zips = Path(folder)
        standard = unpacked(fetched("stdlib", zips), zips / "stdlib")
        library = Library(standard)
        library.write(out / "python.zip")
        for abi in abis:
            root = unpacked(fetched(abi, zips), zips / abi)
            (out / abi).mkdir(exist_ok=True)
            native(compilers[abi], root, out / abi)
            copy_python(root, abi, library, out / abi)
    licenses.gather(out / "licences", Path(sysconfig.get_path("stdlib")) / "LICENSE.txt", [])


def native(words: Sequence[str], root: Path, out: Path) -> None:
    """Compile libmlcc, libmlcc_executor and libmlcc_jni for the Python in `root`."""
    run(link(out / LIBRARY, words, Embedded.unpacked(root), *LINK))
    build_executor = desktop.executor()
    try:
        options = (*build_executor.LINK, *LINK, f"-Wl,-soname,{desktop.EXECUTOR.name}")
        tools = (list(words), ["-ldl", "-lm"])
        build_executor.build(out / desktop.EXECUTOR.name, link=options, tools=tools)
    except build_executor.BuildError as error:
        sys.exit(f"mobile/c: {error}")
    jni = ["-shared", f"-I{FOLDER / 'include'}", *map(str, sorted(JNI.glob("*.cc")))]
    name = "libmlcc_jni.so"
    jni += ["-o", str(out / name), f"-L{out}", "-lmlcc", *LINK, f"-Wl,-soname,{name}"]
    run([*words, *FLAGS, *jni])


def ndk() -> Path:
    """The folder of the NDK's clang."""
    home = os.environ.get("ANDROID_NDK_HOME", "")
    found = sorted(Path(home).glob("toolchains/llvm/prebuilt/*/bin")) if home else []
    if not found:
        where = f"{home} has no toolchains/llvm/prebuilt" if home else "ANDROID_NDK_HOME is not set"
        sys.exit(
            f"mobile/c: {where}; install the NDK (r26 or later: Android Studio's SDK manager, or "
            "https://developer.android.com/ndk/downloads) and set ANDROID_NDK_HOME to its folder"
        )
    return found[0]


def compiler(folder: Path, abi: str) -> list[str]:
    """clang's command for an ABI."""
    if abi not in TRIPLES:
        sys.exit(f"mobile/c: no ABI '{abi}'; use --abi with one or more of: {','.join(TRIPLES)}")
    return [str(folder / "clang++"), f"--target={TRIPLES[abi]}{API}"]


def fetched(part: str, folder: Path) -> Path:
    """Download a zip of Chaquopy's through Maven, which caches it."""
    if (maven := shutil.which("mvn")) is None:
        sys.exit(
            "mobile/c: Maven downloads Python for Android and is not installed; apt install maven"
        )
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    artifact = f"-Dartifact={CHAQUOPY}:zip:{part}"
    run([maven, "-q", "-B", goal, artifact, f"-DoutputDirectory={folder}"])
    version = CHAQUOPY.rpartition(":")[2]
    if not version.startswith(f"{VERSION}."):
        sys.exit(
            f"mobile/c: Python for Android is {version}, so run this with Python {version[:4]}"
        )
    return folder / f"target-{version}-{part}.zip"


def unpacked(archive: Path, folder: Path) -> Path:
    """Extract a zip into a folder."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    return folder


def copy_python(root: Path, abi: str, library: Library, out: Path) -> None:
    """Copy libpython, and the extension modules that the engine imports with their libraries."""
    libraries, modules = root / "jniLibs" / abi, out / "lib-dynload"
    shutil.copy(libraries / f"libpython{VERSION}.so", out)
    shutil.rmtree(modules, ignore_errors=True)
    modules.mkdir()
    for module in library.extensions(root / "lib-dynload" / abi):
        shutil.copy(module, modules)
        for name in BESIDE.get(module.stem, ()):
            shutil.copy(libraries / name, out)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build mlcc's native parts for Android.")
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--abi", default="arm64-v8a,x86_64", help="arm64-v8a,x86_64 or one of them")
    arguments = parser.parse_args()
    build(arguments.abi.split(","), arguments.out.resolve())


if __name__ == "__main__":
    main()
