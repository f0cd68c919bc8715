"""`tools/desktop_check.py`, which people run on Windows and Macs, on this system."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CHECK = Path(__file__).parents[3] / "tools" / "desktop_check.py"


def test_all_its_checks_pass(compiled_demo: Callable[[str, str], Path]) -> None:
    command = [sys.executable, str(CHECK), str(compiled_demo("q4", "cpu"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.findall(r"^(\S+) +[\d.]+ s  (ok|-|FAIL) ", done.stdout, flags=re.MULTILINE)
    names = ("system", "run", "server", "Ctrl-C", "kill")
    assert found == [(name, "ok") for name in names], done.stdout + done.stderr
    assert done.returncode == 0
