"""Whisper end to end against `transformers`: compiled, opened, and given windows of sound in an
engine that shares steps and finds windows again.

f32, a small random checkpoint, the oracle in float64.
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter

from mlcc.artifact.folder import Artifact
from mlcc.device.tvm.executor import TvmExecutor
from mlcc.engine.events import Finished, TextDelta
from mlcc.engine.request import AudioWindow, Request, SamplingParams
from mlcc.errors import UnsupportedError
from mlcc.loader import open_model
from mlcc.model.driver import Driver
from mlcc.model.model import Model
from mlcc.multimodal.audio.frames import log_mel
from mlcc.util import executor_library
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, Target, get_target
from tests.compiler.audio.checkpoints import BINS, IDS, ROWS, SECONDS, START, whisper

BOUND = 2e-4
"""Of log-probabilities; those of the oracle have a standard deviation near 2."""
HALF_BOUND = 5e-3
"""Of those, and of shares of attention, where pages are float16."""
NEW = 12
PROMPTS = (
    ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"],
    ["<|startoftranscript|>", "<|de|>", "<|translate|>", "<|notimestamps|>"],
    ["<|startofprev|>", *[f"w{i}" for i in range(9, 40)], "<|startoftranscript|>", "<|en|>"],
)


def sounds() -> list[np.ndarray[Any, Any]]:
    """Three of float32 samples, of the model's window: noise, tones, and tones that end."""
    rng = np.random.default_rng(0)
    time = np.arange(SECONDS * 16000) / 16000
    tones = sum(np.sin(2 * np.pi * f * time * (1 + 0.1 * time)) for f in (220, 431, 1700))
    noise = rng.normal(0, 0.1, len(time))
    return [a.astype(np.float32) for a in (noise, 0.2 * tones, 0.1 * tones * (time < 1.1))]


def features_of(samples: np.ndarray[Any, Any]) -> bytes:
    return log_mel(array("f", samples.tobytes()), BINS)[0]


def window(samples: np.ndarray[Any, Any]) -> AudioWindow:
    features = features_of(samples)
    return AudioWindow(ROWS, sha256(features).digest(), features)


def ids_of(words: Sequence[str]) -> list[int]:
    return [IDS[word] if word in IDS else int(word[1:]) for word in words]


def words_of(request: Request) -> list[str]:
    names = {token: word for word, token in IDS.items()}
    return [names.get(token, f"w{token}") for token in request.prompt]


def request_of(name: str, words: Sequence[str], samples: Any) -> Request:
    sampling = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
    rows = ROWS - 7 * (len(words) % 5)
    return Request(name, ids_of(words), sampling, audio=window(samples), aligned_rows=rows)


class Aligned:
    """What an executor finds its tokens to attend to, and where each then begins."""

    def __init__(self, executor: Any) -> None:
        self.weights = dict[str, np.ndarray[Any, Any]]()
        self.rows = dict[str, tuple[int, ...]]()
        self._pending: list[np.ndarray[Any, Any]] = []
        self._run, executor.alignment = executor.alignment, self._note

    def _note(self, batch: Any, width: int) -> Any:
        made = self._run(batch, width)
        self._pending.append(np.array(made).reshape(len(made), -1, ROWS))
        return made

    def end(self, event: Finished) -> None:
        """The end of an answer, whose steps have run by now."""
        self.rows[event.request_id] = event.token_rows
        self.weights[event.request_id] = np.concatenate(self._pending)
        self._pending.clear()


def answers(
    model: Model, requests: Sequence[Request], aligned: Aligned | None = None
) -> dict[str, list[tuple[int, float]]]:
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
                if aligned is not None:
                    aligned.end(event)
    return found


def expected(oracle: Any, words: Sequence[str], samples: Any) -> list[tuple[int, float]]:
    frames = np.frombuffer(features_of(samples), np.float32).reshape(-1, BINS).T
    given = torch.tensor(frames[None], dtype=torch.float64)
    ids, found = ids_of(words), list[tuple[int, float]]()
    for _ in range(NEW):
        with torch.no_grad():
            made = oracle(input_features=given, decoder_input_ids=torch.tensor([ids]))
        logits = made.logits[0, -1]
        best = int(logits.argmax())
        found.append((best, float(torch.log_softmax(logits, -1)[best])))
        ids.append(best)
    return found


def opened(folder: Path, target: str, **options: Any) -> Model:
    row = get_target(target, Choices(f16=False) if target == "vulkan" else Choices())
    bounds = {"max_batch": 3, "max_step_tokens": 24, "max_rows": 5}
    wanted = Options(**{"quant": "f32", **bounds, **options})
    out = folder / "compiled"
    return open_model(compile_model(Checkpoint.open(folder), row, out, wanted, Progress()))


def check_alignment(oracle: Any, request: Request, samples: Any, aligned: Aligned) -> None:
    """The attention of the upper half's heads, and where tokens begin by transformers' rules."""
    frames = np.frombuffer(features_of(samples), np.float32).reshape(-1, BINS).T
    given = torch.tensor(frames[None], dtype=torch.float64)
    answered = [token for token, _ in expected(oracle, words_of(request), samples)]
    ids = torch.tensor([[*request.prompt, *answered]])
    with torch.no_grad():
        made = oracle(input_features=given, decoder_input_ids=ids, output_attentions=True)
    begin = len(request.prompt)
    heads = torch.cat(made.cross_attentions[1:], 1)[0, :, begin : begin + NEW - 1]
    found = aligned.weights[request.id]
    assert found.shape == (NEW - 1, 8, ROWS)
    assert np.abs(found.transpose(1, 0, 2) - heads.numpy()).max() < 1e-5 * heads.max()
    weights = torch.tensor(found)[..., : request.aligned_rows].permute(1, 0, 2)
    spread, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    matrix = _median_filter(((weights - mean) / spread)[None], 7)[0].mean(0)
    tokens, rows = _dynamic_time_warping(-matrix.double().numpy())
    assert list(aligned.rows[request.id]) == rows[np.diff(tokens, prepend=-1) > 0].tolist()


def check(folder: Path, target: str) -> None:
    """Nine requests, of which three run at once: each window with each beginning."""
    oracle, heard = whisper(folder), sounds()
    model = opened(folder, target)
    aligned = Aligned(model.executor)
    cases = [(i, j) for i in range(len(PROMPTS)) for j in range(len(heard))]
    try:
        requests = [request_of(f"{i} {j}", PROMPTS[i], heard[j]) for i, j in cases]
        found = answers(model, requests, aligned)
    finally:
        model.close()
    different = set()
    for (i, j), request in zip(cases, requests, strict=True):
        check_alignment(oracle, request, heard[j], aligned)
        wanted, got = expected(oracle, PROMPTS[i], heard[j]), found[f"{i} {j}"]
        assert [token for token, _ in got] == [token for token, _ in wanted]
        assert max(abs(a - b) for (_, a), (_, b) in zip(got, wanted, strict=True)) < BOUND
        different.add(tuple(token for token, _ in got))
    assert len(different) == len(cases), "the sound or the beginning changes nothing"


@pytest.mark.feature("whisper", "cpu", "runs")
@pytest.mark.feature("word-times", "cpu", "runs")
def test_transcripts_on_cpu_equal_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By TVM's package too, which opens model and tower on CUDA and Metal."""
    check(tmp_path, "cpu")
    requests = [request_of(str(i), PROMPTS[i], sounds()[i]) for i in range(2)]
    found = []
    for name in ("compiled", "copy"):  # a process loads a file once
        if name == "copy":
            shutil.copytree(tmp_path / "compiled", tmp_path / name)
            monkeypatch.setattr(executor_library, "why_absent", lambda: "not built")
        model = open_model(tmp_path / name)
        aligned = Aligned(model.executor)
        found.append((answers(model, requests, aligned), aligned.rows))
        assert isinstance(model.executor, TvmExecutor) == (name == "copy")
        model.close()
    assert found[0][1] == found[1][1]
    for id, wanted in found[0][0].items():
        assert [token for token, _ in wanted] == [token for token, _ in found[1][0][id]]


@pytest.mark.feature("whisper", "reference", "runs")
@pytest.mark.feature("word-times", "reference", "runs")
def test_transcripts_on_reference_equal_transformers(tmp_path: Path) -> None:
    check(tmp_path, "reference")


@pytest.mark.usefixtures("vulkan")
@pytest.mark.feature("whisper", "vulkan", "runs")
@pytest.mark.feature("word-times", "vulkan", "runs")
def test_transcripts_on_vulkan_equal_transformers(tmp_path: Path) -> None:
    check(tmp_path, "vulkan")


def check_close(folder: Path, row: Target) -> None:
    """Three requests on a device whose pages are float16, beside the reference."""
    whisper(folder)
    requests = [request_of(str(i), PROMPTS[i], sounds()[i]) for i in range(len(PROMPTS))]
    found, attention = [], []
    for each in (row, get_target("reference")):
        wanted = Options(quant="f32", max_batch=3, max_step_tokens=24, max_rows=5)
        out = folder / each.name
        model = open_model(compile_model(Checkpoint.open(folder), each, out, wanted, Progress()))
        aligned = Aligned(model.executor)
        found.append(answers(model, requests, aligned))
        attention.append(aligned)
        model.close()
    for id, wanted_tokens in found[1].items():
        got = found[0][id]
        assert [token for token, _ in got] == [token for token, _ in wanted_tokens]
        pairs = zip(got, wanted_tokens, strict=True)
        assert max(abs(a - b) for (_, a), (_, b) in pairs) < HALF_BOUND
        one, other = (each.weights[id] for each in attention)
        assert np.abs(one - other).max() < HALF_BOUND * other.max()
        rows = zip(*(each.rows[id] for each in attention), strict=True)
        assert all(abs(a - b) <= 1 for a, b in rows)


ELSEWHERE = ("webgpu", "cuda", "metal", "android")
SHORT = ("metal",)
"""Compiled in every run, the others with --long."""


def compiles(target: str) -> Any:
    names = ("whisper", "word-times")
    marks = [pytest.mark.feature(name, target, "compiles") for name in names]
    return pytest.param(target, marks=marks if target in SHORT else [*marks, pytest.mark.long])


@pytest.mark.parametrize("target", map(compiles, ELSEWHERE))
def test_model_and_tower_compile_elsewhere(target: str, tmp_path: Path) -> None:
    whisper(tmp_path)
    row, options = get_target(target, Choices()), Options(quant="q8", max_batch=2)
    out = compile_model(Checkpoint.open(tmp_path), row, tmp_path / "compiled", options, Progress())
    whole, tower = (Artifact.open(path, host=False).manifest for path in (out, out / "audio"))
    assert whole.target.name == tower.target.name == target
    assert whole.embeddings and tower.encoder
    assert whole.embeddings.width == tower.encoder.width
    assert whole.embeddings.slots == 2 * ROWS


def test_a_text_to_calibrate_on_is_refused(tmp_path: Path) -> None:
    whisper(tmp_path)
    options = Options(quant="q4", calibrate="default")
    with pytest.raises(UnsupportedError, match="not calibrated on a text"):
        compile_model(
            Checkpoint.open(tmp_path), get_target("cpu", Choices()), tmp_path / "out", options,
            Progress(),
        )  # fmt: skip


def test_a_prompt_without_sound_is_refused(tmp_path: Path) -> None:
    whisper(tmp_path)
    model = opened(tmp_path, "cpu")
    with pytest.raises(UnsupportedError, match=r"transcribes sound.*mlcc transcribe"):
        Driver(model).engine.add(Request("1", [START]))
    model.close()


def test_an_answer_that_waits_to_be_aligned(tmp_path: Path) -> None:
    """May be cancelled; it fails alone, and is aligned before requests move to another engine."""
    whisper(tmp_path)
    model = opened(tmp_path, "reference")
    driver, executor = Driver(model), cast(Any, model.executor)
    aligned = executor.alignment
    given = request_of("0", PROMPTS[0], sounds()[0])

    def ended(name: str) -> Finished:
        """Runs one request until it waits."""
        driver.engine.add(replace(given, id=name))
        while not driver.engine.alignments:
            assert not [event for event in driver.step() if isinstance(event, Finished)]
        assert driver.has_work
        return Finished(name, "length", len(PROMPTS[0]), NEW)

    end = ended("1")
    assert driver.engine.cancel("1") == [end._replace(reason="cancelled")]
    assert not driver.has_work
    ended("2")
    (done,) = driver.drain()
    assert isinstance(done, Finished) and len(done.token_rows) == NEW - 1
    executor.alignment = lambda batch, width: 1 // 0
    ended("3")
    (done,) = driver.step()
    assert isinstance(done, Finished) and done.reason == "error" and not done.token_rows
    executor.alignment = aligned
    ended("4")
    (done,) = driver.engine.fail()
    assert isinstance(done, Finished) and (done.request_id, done.reason) == ("4", "error")
    model.close()


def test_frames_equal_the_feature_extractors() -> None:
    extractor = WhisperFeatureExtractor(feature_size=BINS, chunk_length=SECONDS)
    for samples in sounds():
        wanted = extractor._np_extract_fbank_features(samples[None], "cpu")[0].T
        found = np.frombuffer(features_of(samples), np.float32).reshape(-1, BINS)
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() < 1e-5
