"""The commands of a user with the demo model on targets that run here: serve and profile.

In separate processes, as a user starts them. `test_demo_server.py` has the server on cpu.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from openai import OpenAI

from tests.e2e.demo.conftest import Compiled

QUESTION, ANSWER = "How much is 21 + 21?", "21 + 21 = 42"
LENGTH = 32


def on(target: str, quant: str, part: str) -> Any:
    """A parameter (target, recipe) whose test shows that a part runs there."""
    return pytest.param(target, quant, marks=pytest.mark.feature(part, target, "runs"), id=target)


@pytest.mark.parametrize(
    ("target", "quant"),
    [on("vulkan", "q4", "server"), on("reference", "f32", "server")],
)
def test_the_server_answers(compiled: Compiled, target: str, quant: str) -> None:
    command = [sys.executable, "-m", "mlcc", "serve", str(compiled(quant, target)), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        client = OpenAI(base_url=found[0] + "/v1", api_key="unused", max_retries=0)
        messages: Any = [{"role": "user", "content": QUESTION}]
        answer = client.chat.completions.create(
            model="demo", messages=messages, temperature=0, max_tokens=40
        )
    finally:
        process.terminate()
        assert process.wait(timeout=60) in (0, -15, 143)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"


def profiled(compiled: Compiled, target: str, quant: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mlcc", "profile", str(compiled(quant, target)), "--json"]
    command += ["--length", str(LENGTH), "--batch", "2"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("target", "quant"), [on("cpu", "q8", "profile"), on("vulkan", "q4", "profile")]
)
def test_the_profile_names_kernels_and_their_times(
    compiled: Compiled, target: str, quant: str
) -> None:
    done = profiled(compiled, target, quant)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["copy_gb_s"] > 0
    assert [(p["name"], p["tokens"]) for p in report["phases"]] == [
        ("prefill", LENGTH),
        ("decode", 2),
    ]
    for phase in report["phases"]:
        kernels = phase["kernels"]
        times = [kernel["nanoseconds"] for kernel in kernels]
        assert times == sorted(times, reverse=True) and times[0] > 0
        assert sum(times) / 1e6 / phase["steps"] < 100 * phase["step_ms"]  # of one unit
        assert {"append", "linear", "sample"} <= {
            word for k in kernels for word in re.findall("append|linear|sample", k["name"])
        }
        assert all(k["calls"] % phase["steps"] == 0 and k["bytes"] > 0 for k in kernels)


@pytest.mark.feature("profile", "reference", "refused")
def test_numpy_has_no_kernels_to_profile(compiled: Compiled, record_property: Any) -> None:
    done = profiled(compiled, "reference", "f32")
    assert done.returncode == 2
    refusal = done.stderr.splitlines()[-1].removeprefix("error: ")
    record_property("refusal", refusal)
    assert "no kernels; use --target cpu" in refusal
