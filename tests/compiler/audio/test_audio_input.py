"""Language models that hear, end to end against `transformers`: compiled, opened, and asked about
sounds in an engine that shares steps, cuts prompts into chunks and finds sounds again.

f32, small random checkpoints, the oracle in float64.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen2AudioProcessor

from mlcc.artifact.folder import Artifact
from mlcc.engine.request import AudioClip, Request, SamplingParams
from mlcc.model.model import Model
from mlcc.multimodal.audio.clips import AudioProcessor
from mlcc.multimodal.prompt import with_rows
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.towers.audio_input import audio_input_of
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.audio.input_checkpoints import (
    AUDIO,
    FAMILIES,
    SECONDS,
    Samples,
    array_of,
    extractor,
    given,
    ids_of,
    sounds,
)
from tests.compiler.audio.test_whisper import answers
from tests.compiler.vision.test_families import opened

BOUND = 2e-4
"""Of log-probabilities; those of the oracle have a standard deviation near 2."""
NEW = 5
PART = {family: family.replace("_", "-").replace("2-5", "2.5") for family in FAMILIES}
PART |= {"gemma3n": "gemma3n-sound", "gemma4": "gemma4-sound"}  # beside their text
"""The part of the feature matrix that each proves."""
PROMPTS: list[list[int]] = [
    [5, 9, 11, -1, 7, -2, 20, 21, 22],
    [30, 31, 32, 33],
    [-3, 8],
    [5, 9, 11, -1, 7, -3, 41],
]
"""Of tokens, and of sounds -1, -2 and -3."""


def request_of(name: str, words: Sequence[int], heard: Sequence[Any]) -> Request:
    """heard: the clips of each sound."""
    prompt, placed = list[int](), []
    for word in words:
        if word >= 0:
            prompt.append(word)
            continue
        for clip in heard[-1 - word]:
            placed.append(
                AudioClip(len(prompt), clip.rows, clip.key, clip.features, clip.encoder_rows)
            )
            prompt += [AUDIO] * clip.rows
    sampling = SamplingParams(
        temperature=0, max_tokens=NEW, ignore_eos=True, suppress_tokens=(AUDIO,)
    )
    return Request(name, prompt, sampling, media=tuple(placed))


def expected(
    family: str, oracle: Any, request: Request, shown: Sequence[Samples]
) -> list[tuple[int, float]]:
    ids, found = ids_of(family, request), list[tuple[int, float]]()
    for _ in range(NEW):
        tokens = torch.tensor([ids])
        with torch.no_grad():
            logits = oracle(input_ids=tokens, **given(family, tokens, shown)).logits[0, -1]
        logits[AUDIO] = -1e20  # transformers takes one in an answer for a sound
        best = int(logits.argmax())
        found.append((best, float(torch.log_softmax(logits, -1)[best])))
        ids.append(best)
    return found


@dataclass(frozen=True)
class Known:
    """A family's checkpoint, its requests, and what transformers answers to each."""

    folder: Path
    requests: list[Request]
    wanted: list[list[tuple[int, float]]]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Known]:
    """By family; once for all targets."""

    @cache
    def made(family: str) -> Known:
        folder = tmp_path_factory.mktemp(family)
        oracle, heard = FAMILIES[family](folder), sounds(family)
        tower = audio_input_of(Checkpoint.open(folder))
        assert tower is not None
        processor = AudioProcessor(tower.info)
        clips = [processor.clips(array_of(each), "audio") for each in heard]
        requests = [request_of(str(i), words, clips) for i, words in enumerate(PROMPTS)]
        wanted = [
            expected(family, oracle, request, [heard[-1 - word] for word in words if word < 0])
            for request, words in zip(requests, PROMPTS, strict=True)
        ]
        return Known(folder, requests, wanted)

    return made


def check(model: Model, known: Known) -> None:
    try:
        found = answers(model, known.requests)
    finally:
        model.close()
    for request, wanted in zip(known.requests, known.wanted, strict=True):
        got = found[request.id]
        assert [token for token, _ in got] == [token for token, _ in wanted]
        assert max(abs(a - b) for (_, a), (_, b) in zip(got, wanted, strict=True)) < BOUND
    assert len({tuple(got) for got in found.values()}) == len(PROMPTS)


LONG = {(family, target) for family in ("gemma3n", "gemma4") for target in ("cpu", "vulkan")}
"""With --long: kernels are compared with their twins, and a Gemma 4 with two towers runs on the
CPU (`tests/e2e/audio/test_sees_and_hears.py`)."""


def shown(target: str) -> Any:
    def row(family: str) -> Any:
        marks = [pytest.mark.feature(PART[family], target, "runs")]
        marks += [pytest.mark.long] if (family, target) in LONG else []
        return pytest.param(family, marks=marks)

    return pytest.mark.parametrize("family", [row(family) for family in FAMILIES])


@shown("cpu")
def test_answers_on_cpu_equal_transformers(
    family: str, known: Callable[[str], Known], tmp_path: Path
) -> None:
    case = known(family)
    check(opened(case.folder, tmp_path / "out", "cpu", max_batch=3), case)


@shown("reference")
def test_answers_on_reference_equal_transformers(
    family: str, known: Callable[[str], Known], tmp_path: Path
) -> None:
    case = known(family)
    check(opened(case.folder, tmp_path / "out", "reference", max_batch=3), case)


@pytest.mark.usefixtures("vulkan")
@shown("vulkan")
def test_answers_on_vulkan_equal_transformers(
    family: str, known: Callable[[str], Known], tmp_path: Path
) -> None:
    case = known(family)
    check(opened(case.folder, tmp_path / "out", "vulkan", max_batch=3), case)


ELSEWHERE = ("webgpu", "cuda", "metal", "android")
SHORT = {("qwen2_audio", "metal")}
"""Compiled in every run, the others with --long."""


def compiles(family: str, target: str) -> Any:
    marks = [pytest.mark.feature(PART[family], target, "compiles")]
    marks += [] if (family, target) in SHORT else [pytest.mark.long]
    return pytest.param(family, target, marks=marks)


@pytest.mark.parametrize(
    ("family", "target"), [compiles(family, t) for family in FAMILIES for t in ELSEWHERE]
)
def test_model_and_tower_compile_elsewhere(family: str, target: str, tmp_path: Path) -> None:
    FAMILIES[family](tmp_path)
    row = get_target(target, Choices(archs=("sm_90",) if target == "cuda" else ()))
    options = Options(quant="q4", max_batch=2)
    out = compile_model(Checkpoint.open(tmp_path), row, tmp_path / "compiled", options, Progress())
    whole, tower = (Artifact.open(path, host=False).manifest for path in (out, out / "audio"))
    assert whole.target.name == tower.target.name == target
    assert whole.embeddings and tower.encoder and whole.audio_input
    assert whole.embeddings.width == tower.encoder.width


def test_token_ids_equal_those_of_the_processor_of_transformers(
    known: Callable[[str], Known],
) -> None:
    folder = known("qwen2_audio").folder
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="w0"
    )
    theirs = Qwen2AudioProcessor(extractor(SECONDS), tokenizer)
    sound = "<|audio_bos|><|AUDIO|><|audio_eos|>"
    text, heard = f"{sound}{sound}{sound}", sounds("qwen2_audio")
    wanted = theirs(text=text, audio=heard, sampling_rate=16000)["input_ids"][0]
    tower = audio_input_of(Checkpoint.open(folder))
    assert tower is not None
    processor = AudioProcessor(tower.info)
    clips = [clip for each in heard for clip in processor.clips(array_of(each), "audio")]
    ids, placed = with_rows(array("i", tokenizer(text)["input_ids"]), [AUDIO], clips)
    assert list(ids) == list(wanted)
    assert [clip.rows for clip in placed] == [clip.rows for clip in clips]
