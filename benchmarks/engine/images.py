"""Images in one engine: a vision tower beside transformers', and the first token of a question.

    python -m benchmarks.engine.images [--quant q4] [--rounds 5] [--threads 2]

Compiles a random SmolVLM of the 256M's sizes (two layers of text) for this CPU. Then, in
alternating turns: one tile of 512 x 512 pixels by mlcc's tower (writing the patches, the step,
reading the rows) and by transformers' in float32 and bfloat16; the first token of a question about
four tiles that are new, that were seen before, and of text of the same length that was. Prints the
best and the median seconds of each, and a JSON line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from mlcc.engine.request import ImageTile, Request, SamplingParams
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.driver import Driver
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target

SIDE, PATCH, MERGE, IMAGE = 512, 16, 4, 511
ROWS = (SIDE // PATCH // MERGE) ** 2
TILES = 4
TEXT = {
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
}
TOWER = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": SIDE,
    "patch_size": PATCH,
    "hidden_act": "gelu_pytorch_tanh",
}


def make_checkpoint(folder: Path) -> Any:
    """A random checkpoint in `folder`, and its model."""
    config = transformers.SmolVLMConfig(
        text_config=TEXT, vision_config=TOWER, scale_factor=MERGE, image_token_id=IMAGE
    )
    torch.manual_seed(0)
    model = transformers.SmolVLMForConditionalGeneration(config).eval()
    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(IMAGE)} | {"<image>": IMAGE}
    Tokenizer(WordLevel(words, "w0")).save(str(folder / "tokenizer.json"))
    processor = {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": SIDE}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return model


def peers(model: Any, pixels: np.ndarray[Any, Any]) -> dict[str, Callable[[], object]]:
    """transformers' tower and connector, by dtype."""
    values = torch.tensor((pixels / 127.5 - 1).transpose(2, 0, 1)[None, None])
    found: dict[str, Callable[[], object]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        own = transformers.SmolVLMModel(model.config).to(dtype).eval()
        given = values.to(dtype)
        name = f"a tile, transformers {dtype}".replace("torch.", "")
        found[name] = partial(own.get_image_features, given)
    return found


def tile_of(pixels: np.ndarray[Any, Any], start: int) -> ImageTile:
    """A tile that stands for ROWS tokens from `start` on."""
    data = pixels.tobytes()
    return ImageTile(start, ROWS, sha256(data).digest(), data, SIDE, SIDE)


def questions(driver: Driver, rounds: int) -> dict[str, Callable[[], object]]:
    """First tokens: of four tiles that are new, of four seen before, of as much text seen before.
    Each ends with tokens of its own."""
    random = np.random.default_rng(1)
    sampling, count = SamplingParams(temperature=0, max_tokens=1), itertools.count()

    def pictures() -> tuple[ImageTile, ...]:
        made = random.integers(0, 256, (TILES, SIDE, SIDE, 3), np.uint8)
        return tuple(tile_of(picture, i * ROWS) for i, picture in enumerate(made))

    known, others = pictures(), itertools.cycle([pictures() for _ in range(rounds + 1)])

    def ask(images: tuple[ImageTile, ...]) -> None:
        number = next(count)
        tail = [1 + number % 500, 7, 9]
        prompt = [IMAGE if images else 5] * (TILES * ROWS) + tail
        driver.engine.add(Request(str(number), prompt, sampling, images=images))
        while driver.has_work:
            driver.step()

    names = ("of new images", "of images seen before", "of text seen before")
    asked = (lambda: ask(next(others)), lambda: ask(known), lambda: ask(()))
    return {f"first token {name}": run for name, run in zip(names, asked, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quant", default="q4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        model = make_checkpoint(Path(folder))
        out = Path(folder) / "compiled"
        compile_model(
            Checkpoint.open(folder), get_target("cpu", Choices()), out,
            Options(quant=given.quant, context=2048), Progress(),
        )  # fmt: skip
        opened = open_model(out, EngineArgs(threads=given.threads))
        assert opened.tower is not None
        tile = tile_of(pixels, 0)
        turns: dict[str, Callable[[], object]] = {
            f"a tile, mlcc {given.quant}": lambda: opened.tower and opened.tower.encode(tile),
            **peers(model, pixels),
            **questions(Driver(opened), given.rounds),
        }
        seconds: dict[str, list[float]] = {name: [] for name in turns}
        with torch.inference_mode():
            for turn in range(given.rounds + 1):
                for name, run in turns.items():
                    began = time.perf_counter()
                    run()
                    if turn:  # the first one warms up
                        seconds[name].append(time.perf_counter() - began)
        opened.close()
    for name, taken in seconds.items():
        print(f"{name:>32}: best {min(taken):.3f} s, median {statistics.median(taken):.3f} s")
    print(json.dumps({name: min(taken) for name, taken in seconds.items()}))


if __name__ == "__main__":
    main()
