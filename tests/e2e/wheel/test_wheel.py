"""The wheels, installed in empty environments without the clone: one with all extras compiles and
answers; one with mlcc alone answers too, and is small.

No program of the system is on the path, so compiling needs the wheels and PyPI alone.
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

from mlcc.device.parallel.experimental import nccl
from mlcc.util import executor_library as library
from mlcc.util.machine import machine
from mlcc_targets.native import manylinux
from mlcc_targets.wasm import build as wasm

pytestmark = [
    pytest.mark.long,  # installs half a gigabyte
    pytest.mark.skipif(sys.platform != "linux", reason="builds a wheel for Linux"),
    pytest.mark.skipif(bool(library.why_absent()), reason=library.why_absent()),
]
ROOT = Path(__file__).parents[3]
LIBRARIES = {
    "cpu": "model.x86-64.so" if machine() == "x86_64" else "model.arm.so",
    "vulkan": "model.so",
    "metal": "model.dylib",
    "ios": "model.a",
    "android": "model.arm64-v8a-dotprod.so",
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

    def run(self, *words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=dict(self.environment),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both wheels, as `dev.py wheel` makes them."""
    wasm.bring()
    out = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", out, ROOT, ROOT / "web" / "wheel"], check=True)
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (made,) = dist.glob("mlcc-*.whl")
    return made


def install(folder: Path, dist: Path, what: str) -> Mapping[str, str]:
    """An environment with the installed packages `what`, and its variables."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv/bin/python"
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    pip = [python, "-m", "pip", "install", "-q", "--find-links", dist, what]
    subprocess.run(pip, check=True, cwd=folder, env=environment)
    places = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    return {"PATH": str(folder / "venv/bin"), **places}


@pytest.fixture(scope="module")
def installed(dist: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("machine")
    environment = install(folder, dist, f"{wheel}[compile,serve,vulkan,web]")
    model = folder / "demo"
    model.mkdir()
    for path in (ROOT / "examples" / "demo" / "model").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    return Installed(folder, environment)


@pytest.fixture(scope="module")
def bare(dist: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("bare")
    return Installed(folder, install(folder, dist, str(wheel)))


def test_what_was_built_is_inside_and_the_tag_is_its_libraries(dist: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    executor = library.LIBRARY
    built = {executor.name, f"nccl/{nccl.LIBRARY.name}"}
    assert {f"mlcc/device/lib/{name}" for name in built} <= {*names}
    assert not any("libmlcc_webgpu" in name for name in names)  # it is inside that
    assert {"mlcc/server/page/index.html", "mlcc/server/page/licences.txt"} <= {*names}
    needed = manylinux.needed_versions(executor)
    assert wheel.name.endswith(f"-py3-none-{manylinux.tag(needed, os.uname().machine)}.whl")
    (web,) = dist.glob("mlcc_web-*-py3-none-any.whl")
    for_browsers = {*zipfile.ZipFile(web).namelist()}
    assert {f"mlcc_web/wasm/{path.name}" for path in wasm.runtime()} <= for_browsers
    assert "mlcc_web/page/index.html" in for_browsers


def test_a_bare_install_is_small(bare: Installed) -> None:
    """Bytes of everything that `pip install mlcc` installs, with compiled bytecode."""
    (packages,) = (bare.folder / "venv/lib").glob("python3*/site-packages")
    sizes = {path: path.stat().st_size for path in packages.rglob("*") if path.is_file()}
    ours, all_in_all = 0, 0
    for path, size in sizes.items():
        name = path.relative_to(packages).parts[0]
        if name.startswith(("pip", "setuptools", "pkg_resources", "_distutils_hack")):
            continue  # the environment's own
        ours += size * name.startswith("mlcc")
        all_in_all += size
    assert ours < 16_000_000 and all_in_all < 64_000_000, (ours, all_in_all)


def test_a_bare_install_answers(bare: Installed, installed: Installed) -> None:
    installed.run("compile", "demo", "-o", "bare-cpu")
    answer = installed.run("run", "bare-cpu", PROMPT, "--temperature", 0).stdout
    model = installed.folder / "bare-cpu"
    assert bare.run("run", model, PROMPT, "--temperature", 0).stdout == answer and "5" in answer
    assert bare.run("chat", model, "--temperature", 0, stdin=f"{PROMPT}\n").stdout.strip() in answer
    texts = bare.folder / "texts.jsonl"
    texts.write_text(json.dumps({"text": "Hello! I am Pip."}), encoding="utf-8")
    assert "perplexity" in bare.run("eval", model, "--text", texts).stdout
    assert "GB/s" in bare.run("profile", model, "--length", 16).stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("compile", "demo"), "compile"),
        (("run", "demo", "hi"), "compile"),
        (("serve", "bare-cpu"), "serve"),
        (("run", "out-vulkan", "hi"), "vulkan"),
        (("run", "out-reference", "hi"), "reference"),
    ],
)
def test_a_bare_install_says_what_it_lacks(
    bare: Installed, installed: Installed, words: tuple[str, ...], extra: str
) -> None:
    command, model, *rest = words
    if model.startswith("out-"):
        target = model.removeprefix("out-")
        installed.run("compile", "demo", "--target", target, "-o", f"lacks-{target}")
        model = f"lacks-{target}"
    done = subprocess.run(
        bare.command(command, installed.folder / model, *rest),
        env=dict(bare.environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.count("\n") <= 2, done.stderr
    assert f'`pip install "mlcc[{extra}]"`' in done.stderr
    assert '(pip install "mlcc[compile]")' in " ".join(bare.run("--help").stdout.split())


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
    assert answers in installed.run("chat", "demo", "--temperature", 0, stdin=f"{PROMPT}\n").stdout


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
