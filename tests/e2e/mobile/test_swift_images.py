"""Images through Swift: a decoder of the program's, which asks the test. The answers are those of
transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.mobile.c_host import Host
from tests.helpers.mobile.seeing import QUESTIONS, answer, compiled, decoded, request
from tests.helpers.mobile.swift_package import Package

EVENTS, IMAGES = 1, 8


@pytest.mark.needs("swift")
@pytest.mark.feature("swift-images", "cpu", "runs")
def test_answers_are_those_of_transformers(swift_package: Package, tmp_path: Path) -> None:
    out, oracle = compiled(tmp_path)
    with Host(swift_package.program("mlcc-relay", folders=[tmp_path]), decoded) as host:
        assert host.start(path="").c == 0
        engine = host.create(EVENTS | IMAGES, model=str(out))
        host.ready()
        for text, files in QUESTIONS:
            body, headers = request(text, files), {"content-type": "application/json"}
            call = host.ask(engine, "/v1/chat/completions", body, headers=headers)
            status, found = call.answer()
            assert status == 200, found
            content = json.loads(found)["choices"][0]["message"]["content"]
            assert content == answer(oracle, text, files)
