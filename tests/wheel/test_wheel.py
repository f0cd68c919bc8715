"""The wheel, installed in an empty environment without the clone: compiles and answers.

No program of the system is on the path, so what compiles needs the wheel and PyPI alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlcc_targets import native
from mlcc_targets.native import manylinux
from mlcc_targets.wasm import build as wasm

pytestmark = [
    pytest.mark.long,  # installs half a gigabyte
    pytest.mark.skipif(sys.platform != "linux", reason="builds a wheel for Linux"),
    pytest.mark.skipif(bool(native.why_absent()), reason=f"no plugin: {native.why_absent()}"),
]
ROOT = Path(__file__).parents[2]
LIBRARIES = {
    "cpu": "model.so",
    "vulkan": "model.so",
    "metal": "model.dylib",
    "ios": "model.a",
    "android": "model.so",
    "webgpu": "model.wasm",
    "reference": "graph.json",
}
PROMPT = "What is 2 + 3?"


@dataclass(frozen=True)
class Installed:
    """A machine that has the wheel, the demo's checkpoint and nothing else of mlcc's."""

    folder: Path
    environment: Mapping[str, str]

    def command(self, *words: object) -> list[str]:
        return [str(self.folder / "venv/bin/mlcc"), *map(str, words)]

    def run(self, *words: object, said: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=dict(self.environment),
            input=said,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wasm.bring()
    out = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", out, ROOT], check=True)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("machine")
    venv.create(folder / "venv", with_pip=True)
    pip = [folder / "venv/bin/python", "-m", "pip", "install", "-q", f"{wheel}[compile,serve]"]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run(pip, check=True, cwd=folder, env=environment)
    model = folder / "demo"
    model.mkdir()
    for path in (ROOT / "examples" / "demo" / "model").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    places = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    return Installed(folder, {"PATH": str(folder / "venv/bin"), **places})


def test_what_was_built_is_inside_and_the_tag_is_the_plugins(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    plugin = native.library()
    assert plugin and f"mlcc_targets/native/lib/{plugin.name}" in names
    assert {f"mlcc_targets/wasm/lib/{path.name}" for path in wasm.runtime()} <= {*names}
    tag = manylinux.tag(manylinux.needed_versions(plugin), os.uname().machine)
    assert wheel.name.endswith(f"-py3-none-{tag}.whl")


@pytest.mark.parametrize("target", LIBRARIES)
def test_it_compiles_for_every_target(installed: Installed, target: str) -> None:
    done = installed.run("compile", "demo", "--target", target, "-o", f"out-{target}")
    assert (installed.folder / f"out-{target}" / LIBRARIES[target]).stat().st_size > 1000
    assert "compiling the wasm runtime" not in done.stderr


def test_it_lists_its_targets(installed: Installed) -> None:
    rows = json.loads(installed.run("targets", "--json").stdout)
    rows = {row["name"]: row for row in rows} if isinstance(rows, list) else rows
    assert {name for name in LIBRARIES if rows[name]["compile"]} == set()
    assert "plugin" not in rows["vulkan"]["run"]


def test_it_answers_and_chats(installed: Installed) -> None:
    answers = installed.run("run", "demo", PROMPT, "--temperature", 0).stdout.strip()
    assert "5" in answers
    assert answers in installed.run("chat", "demo", "--temperature", 0, said=f"{PROMPT}\n").stdout


def test_it_serves_a_request(installed: Installed) -> None:
    process = subprocess.Popen(
        installed.command("serve", "demo", "--port", 0),
        cwd=installed.folder,
        env=dict(installed.environment),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        url = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        body = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0}
        request = urllib.request.Request(
            f"{url.rstrip('/').removesuffix('/v1')}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            assert "5" in json.load(answer)["choices"][0]["message"]["content"]
    finally:
        process.terminate()
        process.communicate(timeout=60)
