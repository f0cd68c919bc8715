"""Shared by all tests: threads and Vulkan driver fixed before anything imports tvm, which files are
first, and the collection of what tests prove.

After a full run (all files, nothing deselected but the long tail) the outcomes of tests with the
marker `feature` are kept for `python3 dev.py matrix`, and if all passed, docs/features.md must
say what they say. What only the long tail proves is checked where it runs: with --long.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.feature_matrix import HOW, PARTS, TARGETS, Claim, Results, differences
from tests.helpers import needs
from tools.packages import LAVAPIPE

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))
if "PYTEST_XDIST_WORKER" in os.environ:  # numpy and torch spin where they wait for each other
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
settings.register_profile("mlcc", deadline=None)  # nothing is asserted by the clock
settings.load_profile("mlcc")
os.environ["TVM_USE_RUNTIME_LIB"] = "0"  # one process holds both the compiler and the executor
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="mlcc-state-")  # what tests compile, below
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
if not os.environ.get("MLCC_TESTS_SHARED"):  # the first process: those of pytest-xdist inherit it
    os.environ["MLCC_TESTS_SHARED"] = tempfile.mkdtemp(prefix="mlcc-tests-")
    atexit.register(shutil.rmtree, os.environ["MLCC_TESTS_SHARED"], ignore_errors=True)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a script's shell starts jobs with `&`
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else no test could press Ctrl-C
if LAVAPIPE.exists():  # Mesa's software driver, the same device for everybody
    os.environ.setdefault("VK_ICD_FILENAMES", str(LAVAPIPE))

HANDLED = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGCHLD", "SIGPIPE")
    if hasattr(signal, name)
]
"""Signals that the project or its tests handle."""
DURATIONS = (ROOT / "build" / "durations.json", ROOT / "tests" / "durations.json")
"""Seconds by file, below tests/: of the last run of all tests here, and those that are committed.
The longest files begin first, so that no process is left with one when the others are done."""


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """A test that leaves a signal's handler behind fails itself, not one that comes after it."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    changed = {number for number in HANDLED if signal.getsignal(number) != before[number]}
    for number in changed:
        signal.signal(number, before[number])
    assert not changed


@pytest.fixture(scope="session", autouse=True)
def authorities() -> Iterator[None]:
    """httpx reads all certificate authorities for each client, also one of plain HTTP, which takes
    20 ms. Here for each environment once, if the files of tests import it."""
    default: Any = sys.modules.get("httpx._transports.default")
    if default is None:
        yield
        return
    read = cache(lambda arguments, _: default_read(**dict(arguments)))
    default_read = default.create_ssl_context

    def create_ssl_context(**arguments: Any) -> Any:
        if arguments["verify"] is not True or arguments["cert"]:
            return default_read(**arguments)
        files = tuple(map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))
        return read(tuple(arguments.items()), files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", create_ssl_context)
        yield


@pytest.fixture(scope="session")
def plugin() -> None:
    """The WebGPU plugin is there; one that could have been built and was not is a failure."""
    from mlcc_targets import native

    if native.why_absent():
        if sys.version_info < (3, 11):
            needs.absent("the WebGPU plugin needs Python 3.11 or later")
        needs.require("g++")
    assert not native.why_absent(), native.why_absent()


@pytest.fixture(scope="session")
def vulkan(plugin: None) -> None:
    """Whether there is a GPU for target vulkan, possibly in software."""
    from mlcc.device.compiled import webgpu

    if not webgpu.devices()[0]:
        needs.require("lavapipe")
        pytest.fail(f"no Vulkan device: {webgpu.devices()[1]}")


@pytest.fixture(scope="session")
def compiled_demo(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Callable[[str, str], Path]:
    """(recipe, target) -> the demo model's artifact; see `demo_model.py`."""
    from tests.helpers.demo_model import compiled

    folder = tmp_path_factory.getbasetemp()
    if hasattr(pytestconfig, "workerinput"):  # one process of several, each in a folder below
        folder = folder.parent
    folder = folder / "compiled-demo"
    folder.mkdir(exist_ok=True)
    return lambda quant, target: compiled(folder, quant, target)


@pytest.fixture(scope="session")
def c_library(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Any:
    """The C library and the tests' program over it: a `c_library.Library`."""
    from tests.helpers.mobile.c_library import built

    folder = tmp_path_factory.getbasetemp()
    if hasattr(pytestconfig, "workerinput"):
        folder = folder.parent
    return built(folder / "c-library")


@pytest.fixture(scope="session")
def kotlin_package(
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
    request: pytest.FixtureRequest,
) -> Any:
    """The Kotlin package as Maven built and tested it: a `kotlin_package.Package`."""
    needs.require("maven")
    from tests.helpers.mobile.kotlin_package import built

    folder = tmp_path_factory.getbasetemp()
    if hasattr(pytestconfig, "workerinput"):
        folder = folder.parent
    library, demo = (request.getfixturevalue(name) for name in ("c_library", "compiled_demo"))
    return built(folder / "kotlin-package", library, demo("q4", "cpu"))


@pytest.fixture(scope="session")
def swift_package(request: pytest.FixtureRequest) -> Any:
    """The Swift package, built: a `swift_package.Package`."""
    needs.require("swift")
    from tests.helpers.mobile.swift_package import built

    return built(request.getfixturevalue("c_library"))


class Features:
    """Collects the outcomes of one run, in the process that hears of all of them."""

    def __init__(self) -> None:
        self.results = Results()
        self.left: set[Claim] = set()
        self.faults: list[str] = []
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[_file(report.nodeid)] += report.duration
        if report.when != "call" and report.passed:
            return
        properties = dict(report.user_properties)
        for claim in properties.get("features", ()):
            self.results.add(*claim, report.outcome, str(properties.get("refusal", "")))

    def leave(self, claims: Iterable[Claim]) -> None:
        """The claims of tests that this run leaves to --long."""
        self.left.update(claims)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process of pytest-xdist has ended; only it knows which tests it deselected."""
        self.leave(map(tuple, getattr(node, "workeroutput", {}).get("left", ())))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if _is_partial(session):
            return
        self.results.leave(self.left)
        self.results.save()
        rounded = {file: round(spent, 1) for file, spent in self.seconds.most_common()}
        DURATIONS[0].write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
        if session.exitstatus == pytest.ExitCode.OK and (faults := differences(self.results)):
            self.faults = faults
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.faults:
            terminalreporter.section("docs/features.md does not say what the tests prove")
            for line in [*self.faults, "type: python3 dev.py matrix"]:
                terminalreporter.line(line)


def _is_partial(session: pytest.Session) -> bool:
    """Whether tests were chosen, or not all of them ran."""
    config = session.config
    named = {Path(argument).resolve() for argument in config.args}
    options = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "collectonly")
    chosen = any(config.getoption(option, None) for option in options)
    ended = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    return chosen or not ended or bool(session.shouldfail) or named != {Path(__file__).parent}


def _claims(item: pytest.Item) -> list[Claim]:
    """(part, target, how) of each `feature` marker of a test."""

    def claim(part: str, target: str, how: str) -> Claim:
        if part not in (*PARTS, "*") or target not in TARGETS or how not in HOW:
            raise pytest.UsageError(f"{item.nodeid}: no feature {(part, target, how)}")
        return part, target, how

    return [claim(*mark.args, **mark.kwargs) for mark in item.iter_markers("feature")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the long tail too: marker `long`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add each test's claims to its report, also from another process. Leaves out the long
    tests."""
    for item in items:
        item.user_properties.append(("features", _claims(item)))
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        left = set(long)
        items[:] = [item for item in items if item not in left]
        claims = [claim for item in long for claim in _claims(item)]
        if hasattr(config, "workeroutput"):
            config.workeroutput["left"] = claims
        else:
            config.pluginmanager.get_plugin("mlcc-features").leave(claims)
    seconds = _durations()
    items.sort(key=lambda item: -seconds.get(_file(item.nodeid), 0.0))


def _file(nodeid: str) -> str:
    """A test's file, below tests/."""
    return nodeid.partition("::")[0].removeprefix("tests/")


def _durations() -> dict[str, float]:
    """Seconds by file of a former run; empty if there was none."""
    for path in DURATIONS:
        with suppress(OSError, ValueError):
            return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture works for a test that cannot run."""
    for mark in item.iter_markers("needs"):
        needs.require(*mark.args)


class WholeFiles(LoadFileScheduling):
    """Schedules the tests of a file, and those that share one resource, in one process. Drops a
    file once its tests are done: pytest-xdist 3.8 keeps it, counts the tests of all files anew
    after each test, schedules finished files again if a process dies, and never stops a process
    that gets an empty assignment twice."""

    def _split_scope(self, nodeid: str) -> str:
        """The name of a group of tests that stay together: a file, or all that need the one run of
        Maven or of SwiftPM."""
        for name in ("kotlin", "swift"):
            if f"/test_{name}" in nodeid:
                return name
        return str(super()._split_scope(nodeid))

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        files = self.assigned_work[node]
        file = self._split_scope(self.registered_collections[node][item_index])
        if all(files[file].values()):
            del files[file]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFiles:
    return WholeFiles(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Thousands of tests and the libraries that they import stay to the end. The garbage collector
    would walk through them again and again: a twelfth of a run of all tests."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # that is a process of pytest-xdist, not the first
        config.pluginmanager.register(Features(), "mlcc-features")
