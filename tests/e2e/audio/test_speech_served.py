"""A small random Whisper over HTTP: `mlcc serve`, asked by OpenAI's client. Transcripts and times
are those of transformers' `generate` on the same frames."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import wave
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import GenerationConfig, WhisperFeatureExtractor

from mlcc import Engine
from mlcc.api.openai.audio import clock
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.audio.checkpoints import BINS, END, IDS, SECONDS, START, whisper
from tests.e2e.audio.recordings import recording
from tests.runtime.artifact.small_artifact import rewrite

KEYS = {"alice": "sk-alice", "bob": "sk-bob"}
FIRST = IDS["<|0.00|>"]
LONGEST = 64
LANGUAGES = ("en", "de", "haw")


def samples_of(data: bytes) -> np.ndarray[Any, Any]:
    with wave.open(io.BytesIO(data)) as file:
        found = array("h", file.readframes(file.getnframes()))
    return np.array(found, np.float32) / 32768


def features_of(data: bytes) -> Any:
    """Frames by transformers."""
    samples = samples_of(data)
    is_long = len(samples) > 16000 * SECONDS
    extractor = WhisperFeatureExtractor(feature_size=BINS, chunk_length=SECONDS)
    return extractor(
        samples,
        sampling_rate=16000,
        return_tensors="pt",
        truncation=not is_long,
        padding="longest" if is_long else "max_length",
        return_attention_mask=True,
    )


@dataclass
class Served:
    url: str
    folder: Path
    model: Any
    tokenizer: Tokenizer

    def client(self, name: str = "alice") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEYS[name], max_retries=0)

    def post(self, path: str, name: str = "alice", **form: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {KEYS[name]}"}
        file = {"file": ("a.wav", form.pop("file", recording(1, 0)))}
        url = f"{self.url}/v1/audio/{path}"
        return httpx.post(url, files=file, data=form, headers=headers, timeout=120)

    def greedy(self, features: torch.Tensor, language: str, task: str) -> list[int]:
        """The text of one window without timestamps. (`generate` splits it at those that such a
        random model writes although it is asked for none.)"""
        start = ("<|startoftranscript|>", f"<|{language}|>", f"<|{task}|>", "<|notimestamps|>")
        ids = [IDS[name] for name in start]
        never = settings()["suppress_tokens"]
        while len(ids) < LONGEST:
            with torch.no_grad():
                made = self.model(input_features=features, decoder_input_ids=torch.tensor([ids]))
            logits = made.logits[0, -1]
            logits[[*never, *(settings()["begin_suppress_tokens"] if len(ids) == 4 else ())]] = -1e9
            ids.append(int(logits.argmax()))
            if ids[-1] == END:
                break
        return [t for t in ids[len(start) :] if t < FIRST and t != END]

    def segments(self, data: bytes, language: str | None, task: str, **more: Any) -> Any:
        """Segments by transformers."""
        made = features_of(data)
        with torch.no_grad():
            found = self.model.generate(
                made.input_features.double(),
                attention_mask=made.attention_mask,
                language=language,
                task=task,
                return_timestamps=True,
                return_segments=True,
                **more,
            )
        return found["segments"][0]

    def expected(
        self,
        data: bytes,
        timed: bool,
        language: str | None = "en",
        task: str = "transcribe",
        **more: Any,
    ) -> list[tuple[float, float, str]]:
        """Start, end and text of each segment, by transformers."""
        if not timed:
            made, seconds = features_of(data), len(samples_of(data)) / 16000
            ids = self.greedy(made.input_features.double(), language or "en", task)
            return [(0.0, seconds, self.tokenizer.decode(ids))]
        segments = self.segments(data, language, task, **more)
        texts = ([t for t in s["tokens"].tolist() if t < FIRST and t != END] for s in segments)
        return [
            (float(s["start"]), float(s["end"]), self.tokenizer.decode(ids))
            for s, ids in zip(segments, texts, strict=True)
            if ids
        ]

    def expected_words(self, data: bytes) -> list[tuple[float, float, str]]:
        """Start, end and text of each word, by transformers: here of each segment, as no token
        begins with a space."""
        found = list[tuple[float, float, str]]()
        more = {"return_token_timestamps": True}
        for segment in self.segments(data, "en", "transcribe", **more):
            times, ids = segment["token_timestamps"].tolist(), segment["tokens"].tolist()
            at = [i for i, token in enumerate(ids) if token < FIRST and token != END]
            if at:
                text = "".join(self.tokenizer.decode([ids[i]]) for i in at)
                found.append((times[at[0] - 1], times[at[-1]], text))
        return found


def settings() -> dict[str, Any]:
    return {
        "eos_token_id": END,
        "pad_token_id": END,
        "bos_token_id": END,
        "decoder_start_token_id": START,
        "is_multilingual": True,
        "no_timestamps_token_id": IDS["<|notimestamps|>"],
        "lang_to_id": {f"<|{code}|>": IDS[f"<|{code}|>"] for code in LANGUAGES},
        "task_to_id": {task: IDS[f"<|{task}|>"] for task in ("transcribe", "translate")},
        "prev_sot_token_id": IDS["<|startofprev|>"],
        "suppress_tokens": [1, 2, *range(START, IDS["<|notimestamps|>"])],
        "begin_suppress_tokens": [3, END],
        "max_initial_timestamp_index": 20,
        "max_length": LONGEST,
        "alignment_heads": [[0, 3], [1, 0], [1, 2]],
    }


def find_silence(model: Any, folder: Path) -> None:
    """Have the model find that the first window of recording 1 is silent, and that of 3 is not. No
    transcript has the token of silence, so nothing else changes."""
    extractor = WhisperFeatureExtractor(feature_size=BINS, chunk_length=SECONDS)
    states = []
    for seed in (1, 3):
        samples = samples_of(recording(SECONDS, seed))
        made = extractor(samples, sampling_rate=16000, return_tensors="pt").input_features.double()
        with torch.no_grad():
            found = model.model(input_features=made, decoder_input_ids=torch.tensor([[START]]))
        states.append(found.last_hidden_state[0, -1])
    difference = states[0] - states[1]
    row = 40 * difference / (difference @ difference)
    name, token = "model.decoder.embed_tokens.weight", IDS["<|nospeech|>"]
    model.model.decoder.embed_tokens.weight.data[token] = row
    tensors = load_file(folder / "model.safetensors")
    tensors[name][token] = row.float()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("whisper")
    model = whisper(folder)
    find_silence(model, folder)
    (folder / "generation_config.json").write_text(json.dumps(settings()))
    model.generation_config = GenerationConfig(**settings())
    out = folder / "compiled"
    wanted = Options(quant="f32", max_batch=4, max_step_tokens=64)
    target = get_target("reference", Choices())
    compile_model(Checkpoint.open(folder), target, out, wanted, Progress())
    keys = [{"name": name, "key": key} for name, key in KEYS.items()]
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))
    command = [sys.executable, "-m", "mlcc", "serve", str(out), "--port", "0", "--alias", "it"]
    process = subprocess.Popen(
        [*command, "--api-keys", str(folder / "keys.json")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        yield Served(found[0], out, model, tokenizer)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def joined(segments: list[tuple[float, float, str]]) -> str:
    return "".join(text for _, _, text in segments).strip()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_short_recording(served: Served, language: str) -> None:
    data = recording(1.5, 1)
    for task in ("transcribe", "translate"):
        wanted = joined(served.expected(data, False, language, task))
        path = {"transcribe": "transcriptions", "translate": "translations"}[task]
        response = served.post(path, file=data, language=language)
        assert response.status_code == 200, response.text
        assert response.json()["text"] == wanted
        assert response.json()["usage"] == {"type": "duration", "seconds": 2}


def test_the_language_is_found(served: Served) -> None:
    data = recording(1.5, 2)
    found = served.client().audio.transcriptions.create(
        model="it", file=("a.wav", data), response_format="verbose_json"
    )
    assert found.language in LANGUAGES
    wanted = served.expected(data, True, None)
    assert [segment.text for segment in found.segments or ()] == [text for _, _, text in wanted]


@pytest.mark.parametrize("seconds", [1.2, 5.0, 7.3])
def test_segments_and_their_times(served: Served, seconds: float) -> None:
    data = recording(seconds, 3)
    wanted = served.expected(data, True)
    found = served.post(
        "transcriptions", file=data, language="en", response_format="verbose_json"
    ).json()
    assert found["duration"] == pytest.approx(seconds)
    assert len(found["segments"]) == len(wanted)
    for segment, (start, end, text) in zip(found["segments"], wanted, strict=True):
        assert (segment["start"], segment["end"]) == pytest.approx((start, end), abs=1e-6)
        assert segment["text"] == text
    assert found["text"] == joined(wanted)


@pytest.mark.parametrize("seconds", [1.2, 7.3])
def test_words_and_their_times(served: Served, seconds: float) -> None:
    data = recording(seconds, 3)
    wanted = served.expected_words(data)
    found = served.client().audio.transcriptions.create(
        model="it",
        file=("a.wav", data),
        language="en",
        response_format="verbose_json",
        timestamp_granularities=["word"],
    )
    assert not found.segments
    assert [word.word for word in found.words or ()] == [text for *_, text in wanted]
    times = [(word.start, word.end) for word in found.words or ()]
    assert times == [pytest.approx((start, end), abs=1e-6) for start, end, _ in wanted]
    assert seconds < SECONDS or len(set(times)) > 3


@pytest.mark.parametrize("prompt", ["", "w9 w8 w7"])
def test_text_is_carried_over(served: Served, prompt: str) -> None:
    """Each window's prompt is the text before it with its times, cut to half of the context."""
    data, form = recording(7.3, 3), {"language": "en", "response_format": "verbose_json"}
    more: dict[str, Any] = {"condition_on_prev_tokens": True}
    if prompt:
        form["prompt"] = prompt
        ids = served.tokenizer.encode(" " + prompt, add_special_tokens=False).ids
        more["prompt_ids"] = torch.tensor([IDS["<|startofprev|>"], *ids])
    wanted = served.expected(data, True, **more)
    plain, carried = (
        served.post("transcriptions", file=data, condition_on_previous_text=flag, **form).json()
        for flag in ("false", "true")
    )
    assert len({segment["seek"] for segment in carried["segments"]}) > 2
    found = [(s["start"], s["end"], s["text"]) for s in carried["segments"]]
    assert [text for *_, text in found] == [text for *_, text in wanted]
    for (start, end, _), (begin, last, _) in zip(found, wanted, strict=True):
        assert (start, end) == pytest.approx((begin, last), abs=1e-6)
    assert carried["text"] != plain["text"]


def test_a_higher_temperature_where_a_text_is_no_good(served: Served) -> None:
    """The first temperature whose text is likely and repeats itself little, else the last."""
    data, form = recording(1.5, 2), {"language": "en", "response_format": "verbose_json"}

    def temperature(**more: Any) -> float:
        found = served.post("transcriptions", file=data, **form, **more).json()["segments"]
        return float(found[0]["temperature"])

    (first, *_) = served.post("transcriptions", file=data, **form).json()["segments"]
    likely, ratio = first["avg_logprob"], first["compression_ratio"]
    assert first["temperature"] == 0
    asked: dict[str, Any] = {"temperature": "0,0.4,0.8", "logprob_threshold": likely - 0.01}
    bound = "compression_ratio_threshold"
    assert temperature(**asked, **{bound: 99}) == 0
    assert temperature(**{**asked, "logprob_threshold": 0}, **{bound: 99}) == 0.8
    assert temperature(**{**asked, "logprob_threshold": -99}, **{bound: ratio / 99}) == 0.8
    assert temperature(temperature=0, logprob_threshold=0) == 0


@pytest.mark.parametrize("seed", [1, 3])
def test_silence_is_left_out(served: Served, seed: int) -> None:
    """Windows whose tokens are unlikely, and of which the model finds that nothing is spoken."""
    data = recording(5.0, seed)
    bounds = {"no_speech_threshold": 0.6, "logprob_threshold": 0.0}
    wanted = served.expected(data, True, temperature=0.0, **bounds)
    form: dict[str, Any] = {"language": "en", "response_format": "verbose_json"}
    found = served.post("transcriptions", file=data, **form, **bounds).json()["segments"]
    assert [segment["text"] for segment in found] == [text for *_, text in wanted]
    starts = [segment["start"] for segment in found]
    assert starts == pytest.approx([start for start, *_ in wanted], abs=1e-6)
    everything = served.post("transcriptions", file=data, **form).json()["segments"]
    assert (everything[0]["start"] == found[0]["start"] if found else False) == (seed == 3)
    likely = {**bounds, "logprob_threshold": -99}
    again = served.post("transcriptions", file=data, **form, **likely).json()["segments"]
    assert [segment["text"] for segment in again] == [s["text"] for s in everything]


def test_recordings_at_once_do_not_disturb_each_other(served: Served) -> None:
    files = [recording(1 + i % 3, i) for i in range(6)]

    def ask(data: bytes) -> Any:
        return served.post("transcriptions", file=data, language="en").json()["text"]

    with ThreadPoolExecutor(6) as threads:
        found = [*threads.map(ask, files)]
    assert found == [ask(data) for data in files]
    assert len(set(found)) > 1


def test_subtitles(served: Served) -> None:
    data = recording(5.0, 3)
    first = served.expected(data, True)[0]
    srt = served.post("transcriptions", file=data, language="en", response_format="srt")
    assert srt.headers["content-type"].startswith("text/plain")
    times = rf"00:00:0{first[0]:.3f} --> 00:00:0{first[1]:.3f}".replace(".", ",")
    assert srt.text.startswith(f"1\n{times}\n{first[2].strip()}\n\n")
    vtt = served.post("transcriptions", file=data, language="en", response_format="vtt")
    assert vtt.text.startswith("WEBVTT\n\n00:00:0")


def test_a_stream(served: Served) -> None:
    data = recording(5.0, 3)
    whole = served.post("transcriptions", file=data, language="en").json()
    events = [
        *served.client().audio.transcriptions.create(
            model="it", file=("a.wav", data), language="en", stream=True
        )
    ]
    assert [e.type for e in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1)
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == whole["text"]
    assert "".join(e.delta for e in events[:-1]).strip() == whole["text"]


@pytest.mark.parametrize(
    ("form", "status", "words"),
    [
        ({"file": b"no sound at all, but text"}, 400, "is no WAV"),
        ({"language": "xx"}, 400, "the model's are de, en, haw"),
        ({"response_format": "doc"}, 400, "must be one of json"),
        ({"timestamp_granularities[]": "word"}, 400, "add response_format=verbose_json"),
        ({"timestamp_granularities[]": "line"}, 400, "must be 'segment' or 'word'"),
        ({"temperature": "2"}, 400, "a number from 0 to 1"),
        ({"temperature": "0,x"}, 400, "'temperature' must be a number"),
        ({"temperature": ",".join("0" * 9)}, 400, "at most 8 numbers"),
        ({"logprob_threshold": "nan"}, 400, "'logprob_threshold' must be a number"),
        ({"no_speech_threshold": "0.2"}, 400, "a number from 0.5 to 1"),
        ({"condition_on_previous_text": "maybe"}, 400, "must be true or false"),
        ({"colour": "red"}, 400, "'colour' is no field"),
        ({"model": "other"}, 404, "the model here is"),
        ({"file": bytes((25 << 20) + 1)}, 413, "larger than 25 MB"),
    ],
)
def test_what_is_refused(served: Served, form: dict[str, Any], status: int, words: str) -> None:
    response = served.post("transcriptions", **form)
    assert response.status_code == status, response.text
    assert words in response.json()["error"]["message"]


def test_a_key_is_needed(served: Served) -> None:
    response = httpx.post(f"{served.url}/v1/audio/transcriptions", files={"file": b"a"})
    assert response.status_code == 401


def test_a_chat_is_refused_by_what_to_type(served: Served) -> None:
    with pytest.raises(openai.BadRequestError, match="transcribes sound"):
        served.client().completions.create(model="it", prompt="w1 w2", max_tokens=2)


def test_in_python_and_on_the_command_line(served: Served, tmp_path: Path) -> None:
    data = recording(1.5, 1)
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    wanted = joined(served.expected(data, False, "de"))
    with Engine(served.folder) as engine:
        assert engine.audio.transcriptions.create(file=path, language="de").text == wanted
        text = engine.audio.translations.create(file=data, language="de", response_format="text")
        assert text.strip() == joined(served.expected(data, False, "de", "translate"))
        with pytest.raises(InvalidRequestError, match="is no WAV"):
            engine.audio.transcriptions.create(file=b"text")
        more: dict[str, Any] = {"response_format": "srt", "language": "en"}
        more |= {"timestamp_granularities": ["word"]}
        titles = engine.audio.transcriptions.create(file=recording(7.3, 3), **more)
        (start, end, word), *_ = served.expected_words(recording(7.3, 3))
        begin, end = clock(start, ","), clock(end, ",")
        assert titles.startswith(f"1\n{begin} --> {end}\n{word}\n\n2\n")
    without = shutil.copytree(served.folder, tmp_path / "without")
    rewrite(without, lambda m: replace(m, audio=replace(m.audio, alignment_heads=0)))
    with Engine(without) as engine, pytest.raises(UnsupportedError, match="compile it again"):
        engine.audio.transcriptions.create(file=path, **more)
    command = [sys.executable, "-m", "mlcc", "transcribe", str(served.folder), str(path)]
    more = ["--language", "de", "--temperature", "0", "--condition-on-previous-text"]
    run = subprocess.run([*command, *more], capture_output=True, text=True)
    assert run.stdout.strip() == wanted, run.stderr
