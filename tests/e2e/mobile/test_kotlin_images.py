"""Images through Kotlin, in a JVM with the JARs alone: the program decodes them, mlcc resizes. The
answers are those of transformers."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.helpers.mobile.c_bridge import bridge
from tests.helpers.mobile.kotlin_package import Package
from tests.helpers.mobile.seeing import QUESTIONS, answer, compiled, request


@pytest.mark.needs("maven")
@pytest.mark.feature("kotlin-images", "cpu", "runs")
def test_answers_are_those_of_transformers(kotlin_package: Package, tmp_path: Path) -> None:
    out, oracle = compiled(tmp_path)
    with bridge(kotlin_package.relay(tmp_path / "cache"), out) as url:
        for text, files in QUESTIONS:
            body = request(text, files)
            found = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
            assert found.status_code == 200, found.text
            content = found.json()["choices"][0]["message"]["content"]
            assert content == answer(oracle, text, files)
