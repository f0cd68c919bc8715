"""The executor's C++: it builds, its files are short, and the sanitizers find nothing."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mlcc.util import executor_library
from mlcc.version import TVM, TVM_FFI
from mlcc_targets.target import TargetError
from tests.helpers import shared
from tests.runtime.device.conftest import DEMO, DEMO_VULKAN, NATIVE

HERE = Path(__file__).parent
SANITIZED = ("-O0", "-g1", "-fno-sanitize-recover=all")
SCRIPT = """
import sys
from pathlib import Path
from mlcc.util import executor_library
executor_library.LIBRARY = Path(sys.argv[1])
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""
NOT_SANITIZED = "not imported and not fork and not fit"
"""Tests of processes of their own, and of more memory than the sanitizer lets one ask for."""
NOT_SANITIZED_ON_A_GPU = "not package and not two_models"
"""Without the tests that compare with TVM's package or take long."""


def made_of(build: Any, *more: Any) -> list[Any]:
    """The parts of what is compiled here of the executor's sources, for `shared.keep`."""
    versions = (TVM, TVM_FFI, shared.version_of(*build.compiler()))
    flags = (str(each).replace(str(NATIVE), "") for each in more)
    return [build.source_hash(), *versions, *flags]


@pytest.fixture(scope="module")
def runtime(build: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dict[str, Path]]:
    """Compiles TVM's units, by the system's compiler without sanitizers: only mlcc's code is
    checked."""

    @cache
    def units() -> dict[str, Path]:
        folder = tmp_path_factory.mktemp("runtime")
        made = {name: folder / f"{name}.o" for name in build.FOREIGN}
        command = [*build.compiler(), "-std=c++17", "-O0", "-fPIC", *build.includes()]
        for name, unit in made.items():
            build.compile_unit(name, unit, command)
        return made

    return units


def checked(command: Sequence[str], **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def test_the_library_is_built_from_these_sources(built: None, build: Any) -> None:
    assert build.is_current(), "stale; run: python runtime/native/build_executor.py"


def test_a_build_that_fails_compiles_no_more(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that Ctrl-C ends; and it says from the start how many files there are."""
    commands, counts = [], []

    def fail(words: Sequence[str]) -> None:
        commands.append(words)
        raise build.BuildError("no memory")

    monkeypatch.setattr(build, "_run", fail)
    with pytest.raises(build.BuildError, match="no memory"):
        build.build(
            tmp_path / "lib.so",
            tools=(["c++"], []),
            report=lambda done, total: counts.append((done, total)),
        )
    ((done, total),) = counts
    assert done == 0 and total > 15 and len(commands) < total


def test_without_a_compiler_the_reason_is_noted(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise TargetError("no zig")

    monkeypatch.setattr(build, "LIBRARY", tmp_path / "lib" / build.LIBRARY.name)
    monkeypatch.setattr(build, "zig", none)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = build.build_or_explain()
    assert "neither zig nor a C++ compiler" in reason and "apt install g++" in reason
    monkeypatch.setattr(executor_library, "LIBRARY", build.LIBRARY)
    assert executor_library.why_absent() == reason


@pytest.mark.needs("g++")  # with it comes nm
def test_it_offers_its_own_functions_alone(build: Any, built: None) -> None:
    """The library can be in one process with TVM's package, and needs no newer glibc."""
    listed = checked(["nm", "-D", str(build.LIBRARY)])
    names = re.findall(r" [A-TV-Z] (\S+)$", listed, flags=re.MULTILINE)
    header = (NATIVE / "include" / "executor.h").read_text(encoding="utf-8")
    linked = (NATIVE / "src" / "library" / "linked.cc").read_text(
        encoding="utf-8"
    )  # for what models link
    offered = {"PyInit_libmlcc_executor"}
    offered |= set(re.findall(r"(mlcc_executor_\w+)\(", header + linked))
    assert sorted(names) == sorted(offered)
    assert "TVM" not in listed


def test_files_are_short() -> None:
    paths = [p for p in NATIVE.rglob("*.*") if p.suffix in (".cc", ".h", ".md", ".py")]
    assert paths
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 500 or "unicode_tables.py" in text, path.name  # a script's


def preloaded(build: Any, name: str) -> str:
    path = checked([*build.compiler(), f"-print-file-name={name}"]).strip()
    if not Path(path).is_absolute():
        pytest.skip(f"the compiler has no {name}")
    return path


@pytest.fixture(scope="module")
def sanitized(
    build: Any,
    runtime: Callable[[], dict[str, Path]],
    pytestconfig: pytest.Config,
) -> Callable[..., None]:
    """Runs tests with a library that the address and undefined sanitizers watch. The GPUs' part is
    in it where a test reaches them: in the long tail."""
    # libstdc++ too: else the sanitizer finds no __cxa_throw to pass exceptions on to.
    preload = [preloaded(build, name) for name in ("libasan.so", "libstdc++.so.6")]
    sanitize = ("-fsanitize=address,undefined", "-fno-sanitize=vptr", *SANITIZED)
    with pytest.MonkeyPatch.context() as patch:
        if not pytestconfig.getoption("--long"):
            patch.setattr(build, "has_webgpu", lambda: False)
        flags, link = (*build.FLAGS, *sanitize), (*build.LINK, *sanitize)
        library = shared.keep(
            shared.folder("sanitized") / "libmlcc_executor.so",
            made_of(build, *flags, *link, build.has_webgpu()),
            lambda made: build.build(
                made,
                flags=flags,
                link=link,
                tools=(build.compiler(), ["-pthread", "-ldl"]),
                ready=runtime(),
            ),
        )

    def run(names: Sequence[str], choice: str, **environment: str) -> None:
        tests = [str(HERE / name) for name in names]
        checked(
            [sys.executable, "-c", SCRIPT, str(library), *tests, "-k", choice],
            LD_PRELOAD=" ".join(preload),
            ASAN_OPTIONS="detect_leaks=0",  # Python and drivers leave theirs to the exit
            **environment,
        )

    return run


@pytest.mark.needs("g++")
def test_the_address_and_undefined_sanitizers_find_nothing(
    sanitized: Callable[..., None], demo: Path
) -> None:
    sanitized(
        ("test_checks.py", "test_executor.py", "test_replay.py"), NOT_SANITIZED, **{DEMO: str(demo)}
    )


@pytest.mark.long
@pytest.mark.needs("g++")
def test_they_find_nothing_on_a_gpu(
    vulkan: None, sanitized: Callable[..., None], compiled_demo: Callable[[str, str], Path]
) -> None:
    model = compiled_demo("q4", "vulkan")
    sanitized(("test_vulkan.py",), NOT_SANITIZED_ON_A_GPU, **{DEMO_VULKAN: str(model)})


@pytest.mark.needs("g++")
def test_steps_use_no_more_threads_than_they_get_cores(build: Any, tmp_path: Path) -> None:
    """The number of threads in simulated time: beside other processes, alone again, with pauses
    between steps."""
    program, source = tmp_path / "share", HERE / "helpers" / "share_program.cc"
    warnings = ("-std=c++17", "-Wall", "-Wextra", "-Werror")
    checked([*build.compiler(), *warnings, f"-I{NATIVE / 'src'}", str(source), "-o", str(program)])
    phases = {}
    for line in checked([str(program)]).splitlines():
        name, numbers = line.split(": ")
        phases[name] = [float(number.split()[1]) for number in numbers.split(", ")]
    last, fewest, mean, changes = zip(*phases.values(), strict=True)
    assert list(phases)[1] == "beside one on two cores"
    assert last == (2, 1, 2, 2, 4, 8, 1)
    assert fewest == (2, 1, 1, 2, 3, 4, 1)
    assert mean[1] < 1.05 and mean[2] > 1.5 and 3.9 < mean[4] < 4.2 and mean[5] > 7
    assert changes[0] == 0 and changes[3] == 0 and changes[1] < 50  # tries become rare


@pytest.mark.needs("g++")
def test_the_thread_sanitizer_finds_nothing(
    build: Any, runtime: Callable[[], dict[str, Path]], tmp_path: Path
) -> None:
    sanitize = ("-fsanitize=thread", *SANITIZED)
    sources = (
        HERE / "helpers" / "threads_program.cc",
        NATIVE / "src" / "threads" / "threads.cc",
        NATIVE / "src" / "platform" / "posix.cc",
    )
    program = tmp_path / "threads"
    shared.keep(
        program,
        made_of(build, *build.FLAGS, *sanitize, sources[0].read_text()),
        lambda made: checked(
            [
                *build.compiler(), *build.FLAGS, *sanitize, *build.includes(),
                f"-I{NATIVE / 'src'}", *map(str, sources), *map(str, runtime().values()),
                "-pthread", "-ldl",
                "-o", str(made),
            ]
        ),
    )  # fmt: skip
    program.chmod(0o755)
    # Its shadow memory has places of its own, which a kernel may have given away at random.
    fixed = ["setarch", platform.machine(), "-R"] if Path("/usr/bin/setarch").exists() else []
    right, robbed = checked([*fixed, str(program)]).splitlines()
    assert right == "720 of 720"
    assert int(robbed) == 2 * 4 - 1  # four tasks a thread, of which one did all but one
