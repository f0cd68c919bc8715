"""mobile/swift/package.py: what an iPhone's app links, read by object tools.

Nothing here runs an app. The framework of CPython is a stand-in with headers alone; the same C++
runs on Linux (test_static_app.py).
"""

from __future__ import annotations

import json
import plistlib
import re
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers import shared
from tests.helpers.demo_model import DEMO
from tests.helpers.mobile import ios_package
from tests.helpers.mobile.ios_link import LIBRARIES, compile_c, link, names
from tests.helpers.mobile.python_framework import write_framework
from tests.helpers.mobile.swift_package import BUILD, SWIFT, run
from tests.targets.small_library import inspect

pytestmark = pytest.mark.needs("llvm")
PACKAGE: Any = ios_package.load()
MLCC_H = PACKAGE.C / "include" / "mlcc.h"
HEADERS = Path(sysconfig.get_path("include"))
SLICES = {"ios-arm64": "ios", "ios-arm64-simulator": "iossimulator"}
LIBSYSTEM = """
__Unwind_Resume ___dso_handle ___error ___stderrp __tlv_atexit __tlv_bootstrap
_aligned_alloc _bzero _calloc _clock_gettime _close _dladdr _dlclose _dlerror _dlopen _dlsym _exit
_exp _fcntl _fprintf _free _fstat _localtime _log _madvise _malloc _memchr
_memcmp _memcpy _memmove _memset _memset_pattern16 _mmap _modf _munmap _open _pipe _poll
_posix_memalign _pthread_atfork _pthread_create _pthread_setspecific _read
_realpath$DARWIN_EXTSN _sched_yield _sin _snprintf _stat _strcmp _strerror _strlen _strncmp _strtod
_sysconf _sysctlbyname _time _usleep _write
"""
"""Functions of libSystem."""
PYTHON = re.compile(r"__?Py[A-Z_]\w*$")
CPP = re.compile(
    r"___cxa_\w+$|___gxx_personality_v0$|__Z(T[ISTVC]|T(v0_n|hn)\d+_)?N?K?(St|10__cxxabiv1)"
    r"|__ZTI[a-z]$|__Z(n|d)[wal]"
)
NEWER = re.compile(
    r"__hash_memory|__from_native_exception_pointer|___cxa_init_primary|__verbose_abort"
)
"""Of a C++ library newer than iOS 15's."""


def check_library(library: Path, platform: str, others: set[str]) -> None:
    """Its objects are for iOS 15 on arm64 and need Python, libc++, libSystem and `others` alone."""
    headers = inspect("llvm-objdump", "-m", "--private-headers", library)
    found = set(re.findall(r"platform (\w+)\s+sdk \S+\s+minos (\S+)", headers))
    assert found == {(platform, "15.0")}
    assert headers.count("ARM64") == headers.count("MH_MAGIC_64") > 6
    defined = names(library, "defined")
    left = names(library, "undefined") - defined - set(LIBSYSTEM.split()) - others
    assert {name for name in left if not PYTHON.match(name) and not CPP.match(name)} == set()
    assert not [name for name in left if NEWER.search(name)]
    declared = re.findall(r"^\w[\w \*]*\b(mlcc_\w+)\(", MLCC_H.read_text(), re.M)
    assert len(declared) > 10 and {f"_{name}" for name in declared} <= defined


@pytest.fixture(scope="module")
def host_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without the executor, which takes minutes to compile. Its libraries are kept for
    later runs."""
    folder = tmp_path_factory.mktemp("ios")
    python, write = write_framework(folder, HEADERS), PACKAGE.write_library

    def keep_library(system: str, headers: Path, library: Path, left_out: Any) -> None:
        shared.keep(library, [system, *_sources()], lambda at: write(system, headers, at, left_out))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PACKAGE, "write_library", keep_library)
        PACKAGE.build(python, folder / "out", tuple(PACKAGE.build_executor.units()))
    return folder / "out"


def _sources() -> list[str | bytes]:
    """All that the libraries without the executor are made of."""
    scripts = (
        SWIFT / "package.py",
        PACKAGE.C / "build.py",
        *PACKAGE.build_executor.FOLDER.glob("*.py"),
    )
    parts: list[str | bytes] = [path.read_bytes() for path in scripts]
    parts += shared.texts(PACKAGE.ROOT / "targets" / "mlcc_targets" / "linking", "*.py")
    parts += [*shared.texts(PACKAGE.C / "src", "*"), *shared.texts(PACKAGE.C / "include", "*")]
    return [*parts, sys.version, version("ziglang")]


def test_the_framework_has_a_part_for_phones_and_one_for_simulators(host_alone: Path) -> None:
    framework = host_alone / "CMlcc.xcframework"
    info = plistlib.loads((framework / "Info.plist").read_bytes())
    assert info["CFBundlePackageType"] == "XFWK"
    assert [row["LibraryIdentifier"] for row in info["AvailableLibraries"]] == list(SLICES)
    for row in info["AvailableLibraries"]:
        folder = framework / row["LibraryIdentifier"]
        assert row["SupportedPlatform"] == "ios" and row["SupportedArchitectures"] == ["arm64"]
        assert ("SupportedPlatformVariant" in row) == ("simulator" in folder.name)
        assert (folder / row["LibraryPath"]).is_file()
        module_map = (folder / row["HeadersPath"] / "module.modulemap").read_text()
        (header,) = re.findall(r'header "(.+)"', module_map)
        assert (folder / "Headers" / header).read_bytes() == MLCC_H.read_bytes()


@pytest.mark.parametrize("name", SLICES)
def test_libmlcc_for_a_phone(host_alone: Path, name: str) -> None:
    library = host_alone / "CMlcc.xcframework" / name / "libmlcc.a"
    check_library(library, SLICES[name], {"_PyInit_libmlcc_executor"})


def test_the_zip_is_bytecode_of_the_frameworks_python(host_alone: Path) -> None:
    with zipfile.ZipFile(host_alone / "Sources" / "Mlcc" / "mlcc.zip") as archive:
        stamp = archive.read("mlcc.runtime").decode().split()
        assert stamp[1] == f"cpython-{PACKAGE.desktop.VERSION.replace('.', '')}"
        assert "mlcc/util/apple.pyc" in archive.namelist()


@pytest.mark.needs("swift")
def test_swift_reads_the_package(host_alone: Path) -> None:
    words = ["swift", "package", "--package-path", str(host_alone), "describe", "--type", "json"]
    shown = run(BUILD["command"](words, [host_alone]), BUILD["environment"]())
    package = json.loads(shown[shown.index("{") :])
    assert {target["name"]: target["type"] for target in package["targets"]} == {
        "CMlcc": "binary",
        "Mlcc": "library",
        "Python": "binary",
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libmlcc with the executor, for a phone: two minutes of CPU time."""
    library = tmp_path_factory.mktemp("whole") / "libmlcc.a"
    PACKAGE.write_library("ios", HEADERS, library)
    return library


@pytest.mark.long
def test_libmlcc_with_the_executor(whole: Path) -> None:
    check_library(whole, "ios", set())
    defined = names(whole, "defined")
    assert {"_mlcc_executor_abi", "_PyInit_libmlcc_executor"} <= defined
    assert "_TVMBackendParallelLaunch" not in defined  # models' libraries bring it
    assert whole.stat().st_size < 7 << 20


@pytest.mark.long
def test_a_chat_for_a_phone_links(whole: Path, tmp_path: Path) -> None:
    """examples/c's, with the demo model of both levels."""
    model, main = tmp_path / "model", tmp_path / "main.c"
    row = get_target("cpu", Choices(cpu="any", systems=("ios",)))
    source = Checkpoint.open(DEMO / "model")
    compile_model(source, row, model, Options(quant="q4", context=512), Progress())
    levels = ("arm-dotprod", "arm")
    lines = [f'#include "mlcc_model.{level}.h"' for level in levels]
    lines += [f'#include "{PACKAGE.ROOT}/examples/c/chat.c"']
    lines += ["__attribute__((constructor)) static void linked(void) {"]
    lines += [f"  mlcc_{level.replace('-', '_')}_demo_link();" for level in levels]
    main.write_text("\n".join([*lines, "}", ""]), encoding="utf-8")
    objects = [compile_c(main, (model, MLCC_H.parent)), whole]
    app = link([*objects, *(model / f"model.{level}.a" for level in levels)], tmp_path)
    headers = inspect("llvm-objdump", "-m", "--private-headers", app)
    assert re.search(r"platform ios\s+sdk 15.0\s+minos 15.0", headers)
    needed = set(re.findall(r"LC_LOAD_DYLIB\s+cmdsize \d+\s+name (\S+)", headers))
    assert needed == {path for path, _ in LIBRARIES.values()}
    assert b"linked:mlcc_arm_dotprod_demo_" in app.read_bytes()


def refused(*words: str | Path) -> str:
    command = [sysconfig.get_path("scripts") + "/python", PACKAGE.__file__, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    return done.stderr


def test_what_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "is no xcframework" in refused("--python", tmp_path, out)
    python = write_framework(tmp_path, HEADERS)
    patch = python / "ios-arm64" / "Python.framework" / "Headers" / "patchlevel.h"
    text = patch.read_text()
    patch.write_text(re.sub(r"(#define PY_MINOR_VERSION\s+)\d+", r"\g<1>99", text))
    assert "has parts of Python 3." in refused("--python", python, out)
    other = python / "ios-arm64_x86_64-simulator" / "Python.framework" / "Headers" / "patchlevel.h"
    other.write_text(patch.read_text())
    assert "install python3.99, or run this with it" in refused("--python", python, out)
    info = plistlib.loads((python / "Info.plist").read_bytes())
    info["AvailableLibraries"] = info["AvailableLibraries"][:1]
    (python / "Info.plist").write_bytes(plistlib.dumps(info))
    assert "has no part for ios-simulator on arm64" in refused("--python", python, out)
