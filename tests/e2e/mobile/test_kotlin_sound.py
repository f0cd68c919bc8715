"""Sound through Kotlin, in a JVM with the JARs alone. The answers are those of transformers."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.helpers.mobile.c_bridge import bridge
from tests.helpers.mobile.hearing import SOUNDS, answer, compiled, request
from tests.helpers.mobile.kotlin_package import Package


@pytest.mark.needs("maven")
@pytest.mark.feature("kotlin-sound", "cpu", "runs")
def test_answers_are_those_of_transformers(kotlin_package: Package, tmp_path: Path) -> None:
    out, oracle = compiled(tmp_path)
    with bridge(kotlin_package.relay(tmp_path / "cache"), out) as url:
        for sounds in SOUNDS.values():
            body = request([file for _, file in sounds])
            found = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
            assert found.status_code == 200, found.text
            content = found.json()["choices"][0]["message"]["content"]
            assert content == answer(oracle, [pitch for pitch, _ in sounds])
