"""Builds libmlcc_executor: our C++, the WebGPU plugin and TVM's runtime, of the sources in its
wheels, in one library.

    python runtime/native/build_executor.py [--counts]     in place, for this machine
    python runtime/native/build_executor.py ARCH OUTPUT    for another: x86_64 or aarch64, on Linux
    python runtime/native/build_executor.py windows OUTPUT   for x86_64 on Windows
    python runtime/native/build_executor.py macos OUTPUT     for arm64 on macOS
    python runtime/native/build_executor.py ios OUTPUT       an archive for iOS, or ios-simulator

By zig where its package is installed (for any Linux since glibc 2.17, the C++ library inside), else
by the system's compiler. Run by `pip install` (hatch_build.py), and by hand after changes.
The standard library only; TVM is found as an installed package, and not imported.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
for place in (FOLDER, ROOT / "targets"):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))

import apple  # noqa: E402
import windows  # noqa: E402

from mlcc_targets.linking.linker import zig  # noqa: E402
from mlcc_targets.linking.pe import clear_time  # noqa: E402
from mlcc_targets.linking.static import collect  # noqa: E402
from mlcc_targets.native import build as plugin  # noqa: E402
from mlcc_targets.native import once  # noqa: E402
from mlcc_targets.native.build import compiler, package  # noqa: E402
from mlcc_targets.native.once import BuildError  # noqa: E402
from mlcc_targets.target import TargetError  # noqa: E402

SOURCES, HEADERS = FOLDER / "src", FOLDER / "include"
EXPORTS = FOLDER / "exports.map"
LACKING = ROOT / "targets" / "mlcc_targets" / "wasm" / "include"
"""Headers that TVM's wheel lacks; some are named relative to themselves."""
OUTPUT = FOLDER.parent / "mlcc" / "device" / "lib"
MACOS_LIBRARY = OUTPUT / "libmlcc_executor.dylib"
LIBRARY = MACOS_LIBRARY if sys.platform == "darwin" else OUTPUT / "libmlcc_executor.so"
WINDOWS_LIBRARY = OUTPUT / "libmlcc_executor.pyd"
FLAGS = (
    "-std=c++17",
    "-O2",
    "-g0",  # zig's default writes debug information, a third of the time; the linker drops it
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-ffunction-sections",  # what nothing reaches is left out
    "-fdata-sections",
    "-D__PRETTY_FUNCTION__=__func__",  # in TVM's errors: shorter
)
LINK = ("-shared", "-s", "-Wl,--gc-sections", f"-Wl,--version-script={EXPORTS}")
LINK += ("-Wl,-z,nodelete",)  # its threads run until the process ends
FOREIGN = ("runtime", "runtime_vm")
"""Units of TVM's sources."""
_CALLED = ("TVMFFIEnvModRegisterSystemLibSymbol", "TVMFFIErrorSetRaisedFromCStrParts")
_CALLED += ("TVMBackendParallelLaunch", "TVMBackendParallelBarrier")
_CALLED += ("TVMBackendAllocWorkspace", "TVMBackendFreeWorkspace")
STATIC = tuple(f"-D{name}=mlcc_own_{name}" for name in _CALLED)
"""For an executor inside a program: a static library of a model calls these functions of TVM and
brings forwarding ones (targets/mlcc_targets/linking/linked_parts.c), so its own get other names."""
_ZIG = {"x86_64": ("-mcpu=x86_64_v2",), "aarch64": ()}
_GLIBC = "2.17"


def toolchain(arch: str) -> tuple[list[str], list[str]]:
    """A compiler's command for an instruction set, and what it needs to link. Raises BuildError."""
    if not sys.platform.startswith("linux"):
        raise BuildError(
            f"the executor is not built on {sys.platform} yet; TVM's wheel runs models"
        )
    if not os.environ.get("CXX"):
        try:
            target = ("-target", f"{arch}-linux-gnu.{_GLIBC}", *_ZIG[arch], "-fno-sanitize=all")
            return [zig(), "c++", *target], []
        except (TargetError, KeyError):
            pass  # the system's will do
    if arch != platform.machine():
        raise BuildError(f"the executor for {arch} is built by zig; pip install 'mlcc[compile]'")
    try:
        system = compiler()
    except BuildError as error:
        raise BuildError(
            "neither zig nor a C++ compiler was found when mlcc was installed; pip install "
            "ziglang, or apt install g++, and install mlcc again"
        ) from error
    return system, ["-static-libstdc++", "-static-libgcc", "-pthread", "-ldl"]


def includes() -> list[str]:
    """Where headers and TVM's sources are found. Raises BuildError."""
    tvm, ffi = package("tvm"), package("tvm_ffi")
    foreign = [LACKING, LACKING / "tvm", LACKING / "tvm" / "support", tvm, ffi]
    foreign += [tvm / "include", ffi / "include", ffi / "3rdparty" / "dlpack" / "include"]
    maps = [f"-ffile-prefix-map={path.parent}=" for path in (FOLDER, LACKING, tvm, ffi)]
    return [f"-I{HEADERS}", *(f"-isystem{path}" for path in foreign), *maps]


def build(
    output: Path,
    arch: str = "",
    flags: Sequence[str] = FLAGS,
    link: Sequence[str] = LINK,
    tools: tuple[list[str], list[str]] | None = None,
    ready: Mapping[str, Path] | None = None,
    left_out: Sequence[str] = windows.ONLY,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Compile all sources and link them into `output`. Raises BuildError.

    report: called with the units compiled, and all; zig's C++ library counts as one.

    tools: a compiler's command and what it links with, if not those of `toolchain`. ready: objects
    of units that are compiled already. left_out: units of other systems.
    """
    command, libraries = tools or toolchain(arch or platform.machine())
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # What takes longest first: zig compiles its C++ library when it first links so.
        alike = [*command, *flags, *(word for word in link if not word.startswith("-Wl,"))]
        empty = [*alike, "-x", "c++", os.devnull, "-o", str(Path(folder) / "empty.so")]
        common = [*command, *flags]
        objects = compile_all(Path(folder), common, left_out, ready or {}, [empty], report)
        # under its own name, which macOS' signature has; for Windows zig writes more beside it
        made = Path(folder) / "made" / output.name
        made.parent.mkdir()
        _run([*command, *link, *map(str, objects), *libraries, "-o", str(made)])
        partial = output.with_suffix(".partial")  # the old library may be in use
        try:
            shutil.copy(made, partial)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)
    return output


def compile_all(
    folder: Path,
    command: Sequence[str],
    left_out: Sequence[str] = windows.ONLY,
    ready: Mapping[str, Path] = MappingProxyType({}),
    first: Sequence[Sequence[str]] = (),
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Compile the units into `folder`, on all cores; returns their objects. Raises BuildError.

    first: commands that run beside the units, and begin before them.
    """
    words = [*command, *includes()]
    made = {name: folder / f"{name}.o" for name in units(left_out)}
    objects = {**made, **ready}

    def compile_one(name: str) -> None:
        if objects[name] == made[name]:
            compile_unit(name, made[name], words)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [pool.submit(_run, each) for each in first]
        work += [pool.submit(compile_one, name) for name in made]
        report(0, len(work))
        try:
            for done, future in enumerate(as_completed(work), 1):
                future.result()
                report(done, len(work))
        except BaseException:  # else Ctrl-C waits until the rest is compiled
            pool.shutdown(cancel_futures=True)
            raise
    return list(objects.values())


def build_for_windows(output: Path) -> Path:
    """Likewise for Windows on x86-64, by zig. Raises BuildError."""
    try:
        zig()
    except TargetError as error:
        raise BuildError(str(error)) from error
    with tempfile.TemporaryDirectory() as folder:
        headers = windows.headers(Path(folder), package)
        declarations = SOURCES / "python" / "python_abi.h"
        python = windows.python_library(Path(folder), declarations, lambda w: _run([zig(), *w]))
        command = [zig(), "c++", "-target", windows.TRIPLE, *windows.FLAGS, *headers]
        flags = [flag for flag in FLAGS if flag != "-fPIC"]
        tools = command, [str(python)]
        left_out = windows.LEFT_OUT
        made = build(output, "", flags, windows.LINK, tools, left_out=left_out)
        clear_time(made)
        return made


def build_for_macos(output: Path, arch: str = "aarch64") -> Path:
    """Likewise for macOS, with zig's C++ library inside. Raises BuildError."""
    try:
        command = [zig(), "c++", "-target", apple.MACOS[arch], *apple.FLAGS]
    except TargetError as error:
        raise BuildError(str(error)) from error
    return build(output, arch, FLAGS, apple.MACOS_LINK, (command, []))


def build_for_ios(
    output: Path, system: str, report: Callable[[int, int], None] = lambda done, total: None
) -> Path:
    """An archive of the executor for apps, by zig. system: of `apple.IOS`. Raises BuildError."""
    with tempfile.TemporaryDirectory() as folder:
        objects = compile_all(Path(folder), ios_command(system), report=report)
        output.parent.mkdir(parents=True, exist_ok=True)
        collect(objects, output, "darwin")
    return output


def ios_command(system: str) -> list[str]:
    """zig's C++ compiler with its options for a system of `apple.IOS`. Raises BuildError."""
    try:
        found = zig()
    except TargetError as error:
        raise BuildError(str(error)) from error
    words = ["-target", apple.IOS[system], *apple.IOS_FLAGS, *STATIC, *apple.ios_headers(found)]
    return [found, "c++", *words, *FLAGS]


def units(left_out: Sequence[str] = windows.ONLY) -> dict[str, list[str]]:
    """What is compiled: the words of a command that say which source, and how.

    The slowest come first. The WebGPU plugin is one of them, where the headers of wgpu-native are.
    Raises BuildError.
    """
    warnings, ours = ["-Wall", "-Wextra"], f"-I{SOURCES}"
    found = {name: ["-w", ours, str(SOURCES / "tvm_runtime" / f"{name}.cc")] for name in FOREIGN}
    if has_webgpu():
        found["webgpu"] = ["-std=c++20", *warnings, *plugin.translation_unit()]
    for source in sorted(SOURCES.rglob("*.cc")):
        found.setdefault(source.stem, [*warnings, ours, str(source)])
    return {name: words for name, words in found.items() if name not in left_out}


def has_webgpu() -> bool:
    """Whether the library reaches GPUs too."""
    return find_spec("wgpu") is not None


def compile_unit(name: str, made: Path, command: Sequence[str]) -> None:
    """Compile a unit of `units` into `made`. Raises BuildError."""
    _run([*command, *units(())[name], "-c", "-o", str(made)])


def zig_cache() -> dict[str, str]:
    """Where zig keeps what it compiled, its C++ library among it, which takes minutes."""
    base = os.environ.get("XDG_CACHE_HOME")
    kept = str((Path(base) if base else Path.home() / ".cache") / "mlcc" / "zig")
    return {"ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}


def _run(words: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env={**os.environ, **zig_cache()}
        )
    except OSError as error:
        raise BuildError(f"$CXX names '{words[0]}', which cannot be run ({error})") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        reason = next((line for line in lines if "error" in line.lower()), lines[-1])
        raise BuildError(f"compiling the executor failed: {reason}")


def source_hash() -> str:
    """Of all sources and this file: tells whether a library was built from them."""
    builders = Path(__file__), Path(windows.__file__), Path(apple.__file__)
    sources = [*SOURCES.rglob("*.*"), *HEADERS.iterdir(), EXPORTS, *builders]
    if has_webgpu():
        sources += plugin.SOURCES.rglob("*.*")
    return once.hash_of(sorted(sources))


def is_current() -> bool:
    """Whether the library stands and was built from the sources as they are now."""
    return once.is_current(LIBRARY, source_hash())


def build_or_explain(
    arch: str = "", report: Callable[[int, int], None] = lambda done, total: None
) -> str:
    """Build in place unless that was done. Returns "", or why it failed, which it also notes."""
    if LIBRARY == MACOS_LIBRARY:
        return build_for_macos_or_explain(arch or platform.machine())

    def make(library: Path) -> Path:
        return build(library, arch, report=report)

    return once.build_or_explain(LIBRARY, source_hash(), make, arch)


def build_for_windows_or_explain(library: Path = WINDOWS_LIBRARY) -> str:
    """Likewise for Windows."""
    return once.build_or_explain(library, source_hash(), build_for_windows, windows.TRIPLE)


def build_for_macos_or_explain(arch: str, library: Path = MACOS_LIBRARY) -> str:
    """Likewise for macOS; arch: arm64 (aarch64) or x86_64."""
    its = "aarch64" if arch == "arm64" else arch

    def make(output: Path) -> Path:
        return build_for_macos(output, its)

    return once.build_or_explain(library, source_hash(), make, apple.MACOS[its])


def main() -> int | str | None:
    """Build for this machine; with --counts print the files compiled, and all, as they grow."""
    if len(sys.argv) == 3 and sys.argv[1] == "windows":
        return build_for_windows_or_explain(Path(sys.argv[2])) or None
    if len(sys.argv) == 3 and sys.argv[1] == "macos":
        return None if build_for_macos(Path(sys.argv[2])) else 1
    if len(sys.argv) == 3 and sys.argv[1] in apple.IOS:
        return None if build_for_ios(Path(sys.argv[2]), sys.argv[1]) else 1
    if len(sys.argv) == 3:
        return None if build(Path(sys.argv[2]), sys.argv[1]) else 1
    if "--counts" in sys.argv:
        return build_or_explain(report=partial(print, flush=True)) or None
    return build_or_explain() or None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
