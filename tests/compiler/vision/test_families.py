"""Models that see, end to end against `transformers`: compiled, opened, and asked about images in
an engine that shares steps, cuts prompts into chunks and finds images again.

f32, small random checkpoints, the oracle in float64.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from mlcc.engine.events import Finished, TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.loader import open_model
from mlcc.model.driver import Driver
from mlcc.model.model import Model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.vision.checkpoints import FAMILIES, IMAGE, OF_AREA
from tests.compiler.vision.inputs import given, pictures, tile, tokens_of

BOUND = 2e-4
"""Of log-probabilities; those of the oracle have a standard deviation near 2."""
NEW = 6
PROMPTS: list[list[int]] = [
    [5, 9, 11, -1, 7, -2, 20, 21, 22],
    [30, 31, 32, 33],
    [-1, 8],
    [5, 9, 11, -1, 7, -3, 41],
]
"""Of tokens, and of images -1, -2 and -3."""


def prompt_of(words: Sequence[int], seen: Any, family: str) -> list[int]:
    parts = [[word] if word >= 0 else tokens_of(seen[-1 - word], family) for word in words]
    return [token for part in parts for token in part]


def request_of(name: str, words: Sequence[int], seen: Any, family: str) -> Request:
    tiles, prompt = [], list[int]()
    for word in words:
        if word < 0:
            tiles.append(tile(seen[-1 - word], len(prompt), family))
        prompt += prompt_of([word], seen, family)
    sampling = SamplingParams(
        temperature=0, max_tokens=NEW, ignore_eos=True, suppress_tokens=(IMAGE,)
    )
    return Request(name, prompt, sampling, media=tuple(tiles))


def answers(model: Model, requests: Sequence[Request]) -> dict[str, list[tuple[int, float]]]:
    driver = Driver(model)
    found: dict[str, list[tuple[int, float]]] = {request.id: [] for request in requests}
    for request in requests:
        driver.engine.add(request)
    while driver.has_work:
        for event in driver.step():
            driver.engine.check_integrity()
            if isinstance(event, TextDelta):
                found[event.request_id] += zip(event.token_ids, event.logprobs, strict=True)
            if isinstance(event, Finished):
                assert event.error is None, event.error
    return found


def expected(family: str, oracle: Any, words: Sequence[int], seen: Any) -> list[tuple[int, float]]:
    ids = prompt_of(words, seen, family)
    shown = [seen[-1 - word] for word in words if word < 0]
    found = []
    for _ in range(NEW):
        tokens = torch.tensor([ids])
        with torch.no_grad():
            logits = oracle(input_ids=tokens, **given(family, tokens, shown)).logits[0, -1]
        logits[IMAGE] = -1e20  # transformers takes one in an answer for an image
        best = int(logits.argmax())
        found.append((best, float(torch.log_softmax(logits, -1)[best])))
        ids.append(best)
    return found


def opened(folder: Path, out: Path, target: str, **options: Any) -> Model:
    row = get_target(target, Choices(f16=False) if target == "vulkan" else Choices())
    wanted = Options(**{"quant": "f32", "max_batch": 4, "max_step_tokens": 24, **options})
    return open_model(compile_model(Checkpoint.open(folder), row, out, wanted, Progress()))


@dataclass(frozen=True)
class Known:
    """A family's checkpoint, its pictures, and what transformers answers to each of PROMPTS."""

    family: str
    folder: Path
    seen: Any
    wanted: list[list[tuple[int, float]]]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Known]:
    """By family; once for all targets."""

    @cache
    def made(family: str) -> Known:
        folder, seen = tmp_path_factory.mktemp(family), pictures(family)
        oracle = FAMILIES[family](folder)
        wanted = [expected(family, oracle, words, seen) for words in PROMPTS]
        return Known(family, folder, seen, wanted)

    return made


def check(known: Known, out: Path, target: str) -> None:
    model, family = opened(known.folder, out, target), known.family
    try:
        numbered = enumerate(PROMPTS)
        requests = [request_of(str(i), words, known.seen, family) for i, words in numbered]
        found = answers(model, requests)
    finally:
        model.close()
    for i, wanted in enumerate(known.wanted):
        assert [token for token, _ in found[str(i)]] == [token for token, _ in wanted]
        errors = [abs(a - b) for (_, a), (_, b) in zip(found[str(i)], wanted, strict=True)]
        assert max(errors) < BOUND


PART = {
    "smolvlm": "smolvlm",
    "smolvlm-odd": "smolvlm",
    "gemma3": "gemma3-images",
    "gemma4": "gemma4-images",
    "gemma4-both-ways": "gemma4-images",
    "llama4": "llama4-images",
    "llava": "llava",
    "llava_onevision": "llava-onevision",
    "internvl": "internvl",
    "mistral3": "mistral3-images",
    "pixtral": "mistral3-images",
    "qwen2_vl": "qwen2-vl",
    "qwen2_5_vl": "qwen2.5-vl",
    "qwen3_vl": "qwen3-vl",
    "qwen3_vl_moe": "qwen3-vl-moe",
    "qwen3_5": "qwen3.5-images",
    "qwen3_5_moe": "qwen3.5-images",
}
"""In the table of features."""


OF_OTHERS = {
    (family, target)
    for family in ("qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "llava", "pixtral", *OF_AREA)
    for target in ("vulkan", "reference")
} | {("qwen2_vl", "vulkan"), ("smolvlm-odd", "vulkan"), ("llama4", "cpu"), ("llama4", "vulkan")}
"""With --long only: the tower is that of another family, or its operators have tests of their own,
as the text has. Qwen2.5-VL has Qwen2-VL's parts, and SmolVLM those of its odd sizes."""


def shown(target: str) -> Any:
    def row(family: str) -> Any:
        marks = [pytest.mark.feature(PART[family], target, "runs")]
        marks += [pytest.mark.long] if (family, target) in OF_OTHERS else []
        return pytest.param(family, marks=marks)

    return pytest.mark.parametrize("family", [row(family) for family in FAMILIES])


@shown("cpu")
def test_answers_on_cpu_equal_transformers(
    family: str, known: Callable[[str], Known], tmp_path: Path
) -> None:
    check(known(family), tmp_path / "compiled", "cpu")


@shown("reference")
def test_answers_on_reference_equal_transformers(
    family: str, known: Callable[[str], Known], tmp_path: Path
) -> None:
    check(known(family), tmp_path / "compiled", "reference")


@pytest.mark.usefixtures("vulkan")
@shown("vulkan")
def test_answers_on_vulkan_equal_transformers(
    family: str, known: Callable[[str], Known], tmp_path: Path
) -> None:
    check(known(family), tmp_path / "compiled", "vulkan")


ELSEWHERE = ("webgpu", "cuda", "metal", "android")
SHORT = {("qwen3_vl", "cuda"), ("qwen3_vl", "metal")}
"""Compiled in every run, the others with --long; SmolVLM runs in a tab (tests/e2e/web)."""


def compiles(family: str, target: str) -> Any:
    marks = [pytest.mark.feature(PART[family], target, "compiles")]
    marks += [] if (family, target) in SHORT else [pytest.mark.long]
    return pytest.param(family, target, marks=marks)


@pytest.mark.parametrize(
    ("family", "target"),
    [compiles(f, target) for f in FAMILIES if f != "smolvlm-odd" for target in ELSEWHERE],
)
def test_model_and_tower_compile_elsewhere(family: str, target: str, tmp_path: Path) -> None:
    FAMILIES[family](tmp_path)
    options = Options(quant="q4", max_batch=4, max_step_tokens=24)
    row = get_target(target, Choices(archs=("sm_90",) if target == "cuda" else ()))
    out = compile_model(Checkpoint.open(tmp_path), row, tmp_path / "compiled", options, Progress())
    whole, tower = (json.loads(path.read_text()) for path in (
        out / "mlcc.json", out / "vision" / "mlcc.json"
    ))  # fmt: skip
    assert whole["target"]["name"] == tower["target"]["name"] == target
    assert whole["vision"]["folder"] == "vision"
    assert whole["embeddings"]["width"] == tower["encoder"]["width"]
