"""Requirements of the tests of web/: Node, a built package, and a bridge to a tab.

Without Node or Chromium, which brings a GPU in software, the tests are skipped with a reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.helpers import needs

WEB = Path(__file__).parents[2] / "web"
MAKE = WEB / "tools" / "make.py"


@cache
def node() -> str:
    """The Node that builds and tests web/."""
    found = subprocess.run([sys.executable, MAKE, "--node"], capture_output=True, text=True)
    if found.returncode:
        needs.absent(found.stderr.strip())
    return found.stdout.strip()


@cache
def built_web() -> Path:
    """web/, with dist/ made of the sources as they are."""
    node()
    made = subprocess.run([sys.executable, MAKE], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return WEB


@cache
def environment() -> dict[str, str]:
    """For processes of Node: Dawn finds its driver itself, and refuses the tests' lavapipe."""
    unset = {"VK_ICD_FILENAMES"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    path = f"{Path(node()).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**kept, "PATH": path, "MLCC_PYTHON": sys.executable}


def has_grammars() -> bool:
    """Whether Rust is there to compile llguidance; if that fails, `make` fails."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    return bool(shutil.which("cargo") or shutil.which("cargo", path=str(home)))


@contextmanager
def bridge(mode: str, model: Path, *adapters: str) -> Iterator[str]:
    """The URL under which a tab answers HTTP; mode: node, chromium; adapters: NAME=FOLDER."""
    needs.require("chromium")  # Node computes on its SwiftShader
    program = built_web() / "dist" / "bridge.mjs"
    command = [node(), str(program), "--mode", mode, "--model", str(model)]
    command += [part for adapter in adapters for part in ("--adapter", adapter)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout
    try:
        line = process.stdout.readline()
        assert line, "the bridge did not start; its stderr says why"
        yield f"http://127.0.0.1:{json.loads(line)['port']}"
    finally:
        process.terminate()
        process.wait(timeout=60)
