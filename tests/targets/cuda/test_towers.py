"""Encoders and vision towers compiled for CUDA, on the emulated device: libraries that sample
nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.models.test_encoders import check
from tests.compiler.vision.checkpoints import FAMILIES
from tests.compiler.vision.inputs import pictures
from tests.compiler.vision.test_families import PROMPTS, answers, opened, request_of
from tests.targets.cuda import emulation

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("emulated")]
BOUND = 2e-2
"""Pages and matrix tiles are float16."""


@pytest.mark.parametrize("case", ["bert", "modernbert"])
def test_rows_equal_transformers(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulation.replace_nvcc(monkeypatch)
    before = emulation.device().emulated_launches()
    assert check(case, "cuda", tmp_path) < BOUND
    assert emulation.device().emulated_launches() > before


def test_answers_about_images_are_the_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulation.replace_nvcc(monkeypatch)
    FAMILIES["smolvlm"](tmp_path)
    found = []
    for target in ("cuda", "reference"):
        model, seen = opened(tmp_path, tmp_path / target, target), pictures("smolvlm")
        requests = [request_of(str(i), words, seen, "smolvlm") for i, words in enumerate(PROMPTS)]
        found.append(answers(model, requests))
        model.close()
    for name, wanted in found[1].items():
        got = found[0][name]
        assert [token for token, _ in got] == [token for token, _ in wanted]
        assert max(abs(a - b) for (_, a), (_, b) in zip(got, wanted, strict=True)) < BOUND
