"""Packs mlcc for iOS as a Swift package, on any Linux, without Apple's SDK.

    python mobile/swift/package.py --python Python.xcframework [OUT]

Python.xcframework is CPython for iOS (PEP 730): an app's developer brings it, from a build of
CPython's or a release of Python-Apple-support. OUT, by default build/mobile/ios, becomes a package:

    CMlcc.xcframework   libmlcc with the executor inside, static, for phones and arm64 simulators
    Python.xcframework  a copy of the one given
    Sources/Mlcc        the Swift of this folder, with mlcc.zip as a resource
    Package.swift

mlcc.zip has bytecode, so a Python of the framework's version makes it: this one, or python3.X of
the path. zig compiles (pip install 'mlcc[compile]'). Uses the standard library only.
"""

from __future__ import annotations

import argparse
import plistlib
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
C = ROOT / "mobile" / "c"
OUT = ROOT / "build" / "mobile" / "ios"
for place in (C, ROOT / "targets", ROOT / "runtime" / "native"):
    sys.path.insert(0, str(place))

import build_executor  # noqa: E402
import windows  # noqa: E402

import build as desktop  # noqa: E402
from mlcc_targets.linking.static import collect  # noqa: E402

SLICES = {"ios": "ios-arm64", "ios-simulator": "ios-arm64-simulator"}
"""System -> name of its slice in CMlcc.xcframework."""
LIBRARY = "libmlcc.a"
FRAMEWORK, PYTHON = "CMlcc.xcframework", "Python.xcframework"
MODULE_MAP = 'module CMlcc {\n    header "mlcc.h"\n    link "c++"\n    export *\n}\n'
_VERSION = re.compile(r"^#define PY_(?:MAJOR|MINOR)_VERSION\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Slice:
    """The part of a Python.xcframework for one system."""

    headers: Path
    version: str
    """Such as 3.13."""


def slice_of(framework: Path, system: str) -> Slice:
    """The slice of `framework` for "ios" or "ios-simulator" on arm64. Raises SystemExit."""
    variant = "simulator" if system == "ios-simulator" else ""
    for library in libraries(framework):
        its = library.get("SupportedPlatform"), library.get("SupportedPlatformVariant", "")
        if its == ("ios", variant) and "arm64" in library.get("SupportedArchitectures", ()):
            return _slice(framework / str(library["LibraryIdentifier"]))
    sys.exit(f"mobile/swift: {framework} has no part for {system} on arm64; build it for both")


def libraries(framework: Path) -> list[dict[str, object]]:
    """What an xcframework lists. Raises SystemExit for another folder."""
    try:
        info = plistlib.loads((framework / "Info.plist").read_bytes())
        return list(info["AvailableLibraries"])
    except (OSError, KeyError, plistlib.InvalidFileException) as error:
        sys.exit(
            f"mobile/swift: {framework} is no xcframework ({error}); --python wants CPython for "
            "iOS, such as the Python.xcframework of a Python-Apple-support release"
        )


def _slice(folder: Path) -> Slice:
    """Headers lie in the framework, or beside it as `make install` puts them."""
    for header in sorted(folder.glob("**/Python.h")):
        text = header.with_name("patchlevel.h").read_text(encoding="utf-8")
        return Slice(header.parent, ".".join(_VERSION.findall(text)))
    sys.exit(f"mobile/swift: {folder} has no Python.h, which a Python to embed brings")


def build(python: Path, out: Path, left_out: Collection[str] = ()) -> None:
    """Write the package. left_out: units of the executor to leave out, for tests. Raises
    SystemExit."""
    found = {system: slice_of(python, system) for system in SLICES}
    versions = {each.version for each in found.values()}
    if len(versions) != 1:
        sys.exit(f"mobile/swift: {python} has parts of Python {' and '.join(sorted(versions))}")
    out.mkdir(parents=True, exist_ok=True)
    sources = out / "Sources" / "Mlcc"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(FOLDER / "Sources" / "Mlcc", sources)
    write_zip(versions.pop(), sources / desktop.ZIP)
    write_framework(found, out / FRAMEWORK, left_out)
    shutil.copyfile(FOLDER / "ios" / "Package.swift", out / "Package.swift")
    copy = out / PYTHON
    if copy.resolve() != python:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(python, copy, symlinks=True)


def write_zip(version: str, out: Path) -> None:
    """The engine's modules as bytecode of a version of Python. Raises SystemExit."""
    if version == desktop.VERSION:
        desktop.bundle(out)
        return
    name = f"python{version}"
    if (found := shutil.which(name)) is None:
        sys.exit(
            f"mobile/swift: the framework has Python {version}, and its bytecode is made by one; "
            f"install {name}, or run this with it"
        )
    code = "import sys; from pathlib import Path; import build; build.bundle(Path(sys.argv[1]))"
    # jinja2's and markupsafe's sources come from the packages of this Python
    paths = [str(C), sysconfig.get_path("purelib")]
    desktop.run([found, "-c", f"import sys; sys.path[:0] = {paths!r}; {code}", str(out)])


def write_framework(
    python: dict[str, Slice], framework: Path, left_out: Collection[str] = ()
) -> None:
    """CMlcc.xcframework: libraries, headers with their module map, and Info.plist."""
    shutil.rmtree(framework, ignore_errors=True)
    listed = []
    for system, name in SLICES.items():
        print(f"mobile/swift: {name}: compiling", file=sys.stderr)
        headers = framework / name / "Headers"
        headers.mkdir(parents=True)
        shutil.copy(C / "include" / "mlcc.h", headers)
        (headers / "module.modulemap").write_text(MODULE_MAP, encoding="utf-8")
        write_library(system, python[system].headers, framework / name / LIBRARY, left_out)
        variant = {"SupportedPlatformVariant": "simulator"} if "simulator" in system else {}
        listed.append(
            {
                "HeadersPath": "Headers",
                "LibraryIdentifier": name,
                "LibraryPath": LIBRARY,
                "SupportedArchitectures": ["arm64"],
                "SupportedPlatform": "ios",
                **variant,
            }
        )
    info = {"CFBundlePackageType": "XFWK", "XCFrameworkFormatVersion": "1.0"}
    (framework / "Info.plist").write_bytes(plistlib.dumps({"AvailableLibraries": listed, **info}))


def write_library(
    system: str, headers: Path, library: Path, left_out: Collection[str] = ()
) -> None:
    """libmlcc and the executor as one archive. Raises SystemExit."""
    try:
        command = build_executor.ios_command(system)
        with tempfile.TemporaryDirectory() as folder:
            without = (*windows.ONLY, *left_out)
            objects = build_executor.compile_all(Path(folder), command, without)
            objects += compile_host([*command, f"-I{headers}"], Path(folder))
            collect(objects, library, "darwin")
    except build_executor.BuildError as error:
        sys.exit(f"mobile/swift: {error}")


def compile_host(command: list[str], folder: Path) -> list[Path]:
    """The objects of mobile/c. Raises SystemExit."""
    options = [*desktop.FLAGS, "-DMLCC_LINKED_EXECUTOR", f"-I{C / 'include'}"]
    made = {path: folder / f"mlcc_{path.stem}.o" for path in sorted((C / "src").glob("*.cc"))}

    def compile_one(source: Path) -> None:
        words = [*command, *options, "-c", str(source), "-o", str(made[source])]
        desktop.run(words, build_executor.zig_cache())

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_one, made))
    return list(made.values())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Pack mlcc for iOS as a Swift package.")
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument(
        "--python", type=Path, required=True, metavar=PYTHON, help="CPython for iOS"
    )
    arguments = parser.parse_args()
    build(arguments.python.resolve(), arguments.out.resolve())
    print(f"{arguments.out}: add this folder to the Xcode project as a package")


if __name__ == "__main__":
    main()
