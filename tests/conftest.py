"""Shared by all tests: threads and Vulkan driver fixed before anything imports tvm, and the
collection of what tests prove.

After a full run (all files, nothing deselected) the outcomes of tests with the marker `feature` are
kept for `python3 dev.py matrix`, and if all passed, the README's table must say what they say.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from feature_matrix import HOW, PARTS, TARGETS, Results, differences

os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))
os.environ["TVM_USE_RUNTIME_LIB"] = "0"  # one process holds both the compiler and the executor
LAVAPIPE = Path(f"/usr/share/vulkan/icd.d/lvp_icd.{platform.machine()}.json")
if LAVAPIPE.exists():  # Mesa's software driver, the same device for everybody
    os.environ.setdefault("VK_ICD_FILENAMES", str(LAVAPIPE))


@pytest.fixture(scope="session")
def vulkan() -> None:
    """Skips where there is no Vulkan driver; a plugin that was not built is a failure."""
    from mlcc.device import webgpu
    from mlcc_targets import native

    assert not native.why_absent(), native.why_absent()
    found, reason = webgpu.devices()
    if not found:
        pytest.skip(f"no Vulkan device: {reason}")


class Features:
    """Collects the outcomes of one run."""

    def __init__(self) -> None:
        self.results = Results()
        self.partial = False
        self.waiting: set[str] = set()
        self.faults: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for part, target, how in _claims(item):
                if part not in (*PARTS, "*") or target not in TARGETS or how not in HOW:
                    raise pytest.UsageError(f"{item.nodeid}: no feature {(part, target, how)}")

    def pytest_deselected(self) -> None:
        self.partial = True

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        config = session.config
        named = {Path(argument).resolve() for argument in config.args}
        chosen = any(
            config.getoption(o, False) for o in ("ignore", "ignore_glob", "lf", "collectonly")
        )
        self.partial |= named != {Path(__file__).parent} or chosen
        self.waiting = {item.nodeid for item in session.items}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report: Any = yield
        if report.when == "teardown":
            self.waiting.discard(item.nodeid)
        if report.when == "call" or not report.passed:
            refusal = dict(item.user_properties).get("refusal", "")
            for claim in _claims(item):
                self.results.add(*claim, report.outcome, str(refusal))
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.partial or self.waiting or session.testscollected == 0:
            return
        self.results.save()
        if session.exitstatus == pytest.ExitCode.OK and (faults := differences(self.results)):
            self.faults = faults
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.faults:
            terminalreporter.section("README.md does not say what the tests prove")
            for line in [*self.faults, "type: python3 dev.py matrix"]:
                terminalreporter.line(line)


def _claims(item: pytest.Item) -> list[tuple[str, str, str]]:
    """(part, target, how) of each `feature` marker of a test."""

    def claim(part: str, target: str, how: str) -> tuple[str, str, str]:
        return part, target, how

    return [claim(*mark.args, **mark.kwargs) for mark in item.iter_markers("feature")]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Features(), "mlcc-features")
