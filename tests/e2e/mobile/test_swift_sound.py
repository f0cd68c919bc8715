"""Sound through Swift. The answers are those of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.mobile.c_host import Host
from tests.helpers.mobile.hearing import SOUNDS, answer, compiled, request
from tests.helpers.mobile.swift_package import Package

EVENTS = 1


@pytest.mark.needs("swift")
@pytest.mark.feature("swift-sound", "cpu", "runs")
def test_answers_are_those_of_transformers(swift_package: Package, tmp_path: Path) -> None:
    out, oracle = compiled(tmp_path)
    with Host(swift_package.program("mlcc-relay", folders=[tmp_path])) as host:
        assert host.start(path="").c == 0
        engine = host.create(EVENTS, model=str(out))
        host.ready()
        for sounds in SOUNDS.values():
            body, headers = (
                request([file for _, file in sounds]),
                {"content-type": "application/json"},
            )
            call = host.ask(engine, "/v1/chat/completions", body, headers=headers)
            status, found = call.answer()
            assert status == 200, found
            content = json.loads(found)["choices"][0]["message"]["content"]
            assert content == answer(oracle, [pitch for pitch, _ in sounds])
