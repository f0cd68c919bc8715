"""mlcc on Windows as far as wine shows it: `tools/desktop_check.py`, which people run there, a GPU
through wine's Vulkan, and with --long what else a user does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mlcc.util.machine import cpu_features, machine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.encoder_checkpoints import CASES, make_encoder
from tests.e2e.windows.conftest import ROOT, run, screen, served
from tests.helpers import demo_model
from tests.helpers.demo_model import DEMO
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
    checks = ("system", "run", "server", "Ctrl-C", "kill")
    assert found == dict.fromkeys(checks, "ok"), text


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


@pytest.mark.feature("desktop-gpu", "windows", "runs")
@pytest.mark.needs("lavapipe", "xvfb")
def test_a_gpu_answers(tmp_path: Path) -> None:
    """wgpu-native's DLL, by wine's Vulkan on Mesa's. wine's Direct3D 12 compiles no kernels."""
    row = get_target("vulkan", Choices(systems=("windows",), webgpu_limits=True))
    options = Options(quant="q4", context=128)
    folder = compile_model(
        Checkpoint.open(DEMO / "model"), row, tmp_path / "Gerät", options, Progress()
    )
    with screen() as display:
        code = "from mlcc.device.compiled.webgpu import devices as f; import json; "
        code += "print(json.dumps([(d.name, d.backend, d.type) for d in f()[0]]))"
        found = json.loads(run("-c", code, display=display))
        index = [backend for _, backend, _ in found].index("vulkan")
        assert "llvmpipe" in found[index][0], found
        words = ("run", windows_path(folder), "What is 17 + 25?", "--device", str(index))
        answer = run("-m", "mlcc", *words, "--temperature", "0", display=display)
    assert "17 + 25 = 42" in answer.splitlines(), answer


OPENAI = """\
import json, sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", timeout=60)
messages = [{"role": "user", "content": "What is 17 + 25?"}]
(model,) = client.models.list().data
common = {"model": model.id, "messages": messages, "temperature": 0}
chunks = client.chat.completions.create(stream=True, **common)
print("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
answer = client.chat.completions.create(response_format=form, **common)
print(type(json.loads(answer.choices[0].message.content)["n"]).__name__)
"""


@pytest.mark.long
def test_openais_client_for_windows(windows_demo: Path) -> None:
    with served(windows_demo) as (url, _):
        assert run("-c", OPENAI, url).splitlines() == ["17 + 25 = 42", "int"]


@pytest.mark.long  # 17 libraries
def test_one_folder_answers_here_and_on_windows() -> None:
    """And under qemu: tests/e2e/wheel/test_arm64.py."""
    folder = demo_model.for_all_desktops()
    here = [sys.executable, "-m", "mlcc", "run", str(folder), "What is 17 + 25?"]
    assert subprocess.check_output(here, text=True).splitlines()[-1] == "17 + 25 = 42"
    there = run("-m", "mlcc", "run", windows_path(folder), "What is 17 + 25?")
    assert "17 + 25 = 42" in there.splitlines(), there


@pytest.mark.long
def test_a_chat(windows_demo: Path) -> None:
    words = ("chat", windows_path(windows_demo), "--temperature", "0")
    text = run("-m", "mlcc", *words, stdin="What is 17 + 25?\n")  # all of it is one question
    assert "17 + 25 = 42" in text.splitlines(), text


@pytest.mark.long
def test_a_server_that_is_stopped_finishes_its_answers(windows_demo: Path) -> None:
    body = {"messages": [{"role": "user", "content": "Count."}], "stream": True, "seed": 1}
    body |= {"max_tokens": 150, "min_tokens": 150, "n": 8, "temperature": 2.0}

    def answer() -> str:
        data, kind = json.dumps(body).encode(), {"content-type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", data, kind)
        with urllib.request.urlopen(request, timeout=120) as response:
            first: bytes = response.readline()
            started.set()
            return str((first + response.read()).decode())

    with served(windows_demo) as (url, process), ThreadPoolExecutor(8) as pool:
        started = threading.Event()
        answers = [pool.submit(answer) for _ in range(8)]
        assert started.wait(60)
        run("-m", "mlcc", "stop", "--url", url)
        stopped = [future.done() for future in answers]
        assert not all(stopped), "the answers were too short to be under way"
        texts = [future.result() for future in answers]
        assert all(text.rstrip().endswith("data: [DONE]") for text in texts), texts[0][-500:]
        output = process.communicate(timeout=60)[0].decode(errors="replace")
        assert "bug in mlcc" not in output, output


ENGINE = """\
import json, sys
from mlcc import Engine
with Engine(sys.argv[1]) as engine:
    print(json.dumps([row.embedding for row in engine.embeddings.create(input=sys.argv[2:]).data]))
"""


@pytest.mark.long
@pytest.mark.feature("embeddings", "windows", "runs")
def test_embeddings_are_those_of_linux(tmp_path: Path) -> None:
    """`from mlcc import Engine`, with one folder that serves both systems."""
    source = tmp_path / "encoder"
    source.mkdir()
    make_encoder(CASES["bert"], source)
    row = get_target("cpu", Choices(cpu="avx2", systems=("linux", "windows")))
    options = Options(quant="f32")
    folder = compile_model(Checkpoint.open(source), row, tmp_path / "both", options, Progress())
    texts = ["a cat.", "two dogs, hello world!"]
    here = subprocess.check_output([sys.executable, "-c", ENGINE, str(folder), *texts])
    there = run("-c", ENGINE, windows_path(folder), *texts)
    assert np.abs(np.array(json.loads(here)) - np.array(json.loads(there))).max() < 1e-6
