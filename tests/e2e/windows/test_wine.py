"""mlcc on Windows as far as wine shows it: `tools/desktop_check.py`, which people run there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mlcc.util.machine import cpu_features, machine
from tests.e2e.windows.conftest import ROOT, run
from tools.windows_python import windows_path

pytestmark = [
    pytest.mark.needs("wine"),
    pytest.mark.usefixtures("windows_packages"),
    pytest.mark.skipif(machine() != "x86_64", reason="wine runs this machine's programs alone"),
]
CHECK = ROOT / "tools" / "desktop_check.py"


@pytest.mark.feature("llama", "windows", "runs")
@pytest.mark.feature("batching", "windows", "runs")
@pytest.mark.feature("server", "windows", "runs")
@pytest.mark.feature("structured", "windows", "runs")
def test_the_checks_of_a_person(windows_demo: Path) -> None:
    text = run(windows_path(CHECK), windows_path(windows_demo), seconds=600)
    found = dict(re.findall(r"^(\S+) +[\d.]+ s  (ok|-|FAIL) ", text, flags=re.MULTILINE))
    checks = dict.fromkeys(("system", "run", "server", "kill"), "ok")
    assert found == {**checks, "Ctrl-C": "-"}, text  # wine has no console here


def test_the_cpu_is_the_one_that_linux_sees() -> None:
    program = """\
import json
from mlcc.util import machine
print(json.dumps([sorted(machine.cpu_features()), machine.cpu_vendor()]))
"""
    features, vendor = json.loads(run("-c", program))
    some = {"avx2", "fma", "f16c", "bmi2"}  # wine says that no registers of AVX-512 are saved
    assert some & cpu_features() == some & set(features)
    assert set(features) <= cpu_features()
    assert vendor in Path("/proc/cpuinfo").read_text(encoding="utf-8")
