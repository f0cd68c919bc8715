"""mlcc on Windows as far as wine shows it: one answer, a server that is asked and stopped, and what
the system is asked for."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from mlcc.util.machine import cpu_features, machine
from tests.e2e.windows.conftest import run, started
from tools.windows_python import windows_path

pytestmark = [
    pytest.mark.needs("wine"),
    pytest.mark.usefixtures("windows_packages"),
    pytest.mark.skipif(machine() != "x86_64", reason="wine runs this machine's programs alone"),
]
QUESTION = "What is 17 + 25?"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def ask(url: str, **body: object) -> str:
    """The whole body of an answer."""
    given = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, **body}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(given).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        text: str = response.read().decode()
        return text


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server is not ready")


def test_one_answer(windows_demo: Path) -> None:
    assert run("-m", "mlcc", "run", windows_path(windows_demo), QUESTION).endswith(
        "17 + 25 = 42\r\n"
    )


def test_the_system_is_asked() -> None:
    program = """\
import json, os, sys
from mlcc.util import machine, memory, windows
print(json.dumps([sorted(machine.cpu_features()), machine.cpu_vendor(), memory.available_bytes(),
                  windows.runs(os.getpid()), windows.runs(0x7FFFFFFC)]))
"""
    features, vendor, free, runs, other = json.loads(run("-c", program))
    kept = {f for f in cpu_features() if not f.startswith("avx512")}  # wine saves none of these
    assert {"avx2", "fma", "f16c"} & kept == {"avx2", "fma", "f16c"} & set(features)
    assert set(features) <= cpu_features()
    assert vendor in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    assert free > 1 << 28 and runs and not other


def test_a_server_is_asked_listed_and_stopped(windows_demo: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = ("-m", "mlcc", "serve", windows_path(windows_demo), "--port", str(port))
    with started(*serve) as process:
        wait_until_ready(url, process)
        answer = json.loads(ask(url))
        assert answer["choices"][0]["message"]["content"] == "17 + 25 = 42"
        events = ask(url, stream=True).split("\n\n")
        assert events[-2] == "data: [DONE]" and len(events) > 5
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        held = json.loads(ask(url, response_format=form))["choices"][0]["message"]["content"]
        assert isinstance(json.loads(held)["n"], int)
        assert f"{url}  " in run("-m", "mlcc", "ps")
        assert f"the server at {url} ends" in run("-m", "mlcc", "stop", "--all")
        text = process.communicate(timeout=60)[0].decode()
    assert "bug in mlcc" not in text
    assert "no server runs here" in run("-m", "mlcc", "ps")
