"""Images in one engine: a vision tower beside transformers', and the first token of a question.

    python -m benchmarks.engine.images [--quant q4 ...] [--rounds 5] [--threads 2] [--mtmd]

Compiles a random SmolVLM of the 256M's sizes (two layers of text) for this CPU. Then, in
alternating turns: one tile of 512 x 512 pixels by mlcc's tower (writing the patches, the step,
reading the rows), by transformers' in float32 and bfloat16, and with --mtmd by llama.cpp's in F16,
BF16 and Q8_0, with and without flash attention (builds it first: 10 minutes); the first token of a
question about four tiles that are new, that were seen before, and of text of the same length that
was. Prints the best and the median seconds of each, and a JSON line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from benchmarks.peers import install
from mlcc.engine.request import ImageTile, Request, SamplingParams
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
from mlcc.model.driver import Driver
from mlcc.model.model import Model
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
    processor = {
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": {"longest_edge": 2048},
        "max_image_size": {"longest_edge": SIDE},
    }
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


class Mtmd:
    """llama.cpp's tower in a process of its own, which encodes a tile when called."""

    def __init__(self, program: Path, text: Path, tower: Path, threads: int, flash: bool) -> None:
        words = [program, text, tower, threads, int(flash), SIDE]
        self._process = subprocess.Popen(
            [*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self._into, self._out = self._process.stdin, self._process.stdout
        assert int(self._out.readline()) == ROWS

    def __call__(self) -> None:
        self._into.write("\n")
        self._into.flush()
        float(self._out.readline())

    def close(self) -> None:
        self._into.close()
        self._process.wait()


def mtmd(checkpoint: Path, threads: int) -> dict[str, Mtmd]:
    """llama.cpp's towers of the checkpoint, by format and attention."""
    program, source = install.mtmd()
    random, text = checkpoint / "135m", checkpoint / "text.gguf"
    for words in (("random_checkpoint", random, "--shape", "135m"), ("random_gguf", random, text)):
        command = [sys.executable, "-m", f"benchmarks.models.{words[0]}", *map(str, words[1:])]
        subprocess.run(command, check=True)
    found = {}
    for kind in ("f16", "bf16", "q8_0"):
        tower = checkpoint / f"tower-{kind}.gguf"
        script = [
            sys.executable,
            str(source / "convert_hf_to_gguf.py"),
            str(checkpoint),
            "--mmproj",
        ]
        environment = {**os.environ, "PYTHONPATH": str(source / "gguf-py")}
        subprocess.run(
            [*script, "--outtype", kind, "--outfile", str(tower)],
            check=True, env=environment, capture_output=True,
        )  # fmt: skip
        for flash in (False, True):
            name = f"a tile, llama.cpp {kind}{' flash' if flash else ''}"
            found[name] = Mtmd(program, text, tower, threads, flash)
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
        driver.engine.add(Request(str(number), prompt, sampling, media=images))
        while driver.has_work:
            driver.step()

    names = ("of new images", "of images seen before", "of text seen before")
    asked = (lambda: ask(next(others)), lambda: ask(known), lambda: ask(()))
    return {f"first token {name}": run for name, run in zip(names, asked, strict=True)}


def towers(folder: Path, quants: Sequence[str], threads: int) -> dict[str, Model]:
    """The checkpoint as mlcc compiles it for this CPU, by quantization."""
    opened = {}
    for quant in quants:
        out, options = folder / f"compiled-{quant}", Options(quant=quant, context=2048)
        compile_model(
            Checkpoint.open(folder), get_target("cpu", Choices()), out, options, Progress()
        )
        opened[quant] = open_model(out, EngineArgs(threads=threads))
    return opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quant", nargs="*", default=["q4"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--mtmd", action="store_true", help="llama.cpp's towers too")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        model = make_checkpoint(folder)
        opened = towers(folder, given.quant, given.threads)
        others = mtmd(folder, given.threads) if given.mtmd else {}
        tile = tile_of(pixels, 0)
        turns: dict[str, Callable[[], object]] = {
            **{f"a tile, mlcc {name}": _encoding(each, tile) for name, each in opened.items()},
            **peers(model, pixels),
            **others,
            **questions(Driver(next(iter(opened.values()))), given.rounds),
        }
        seconds: dict[str, list[float]] = {name: [] for name in turns}
        with torch.inference_mode():
            for turn in range(given.rounds + 1):
                for name, run in turns.items():
                    began = time.perf_counter()
                    run()
                    if turn:  # the first one warms up
                        seconds[name].append(time.perf_counter() - began)
        for each in (*opened.values(), *others.values()):
            each.close()
    for name, taken in seconds.items():
        print(f"{name:>32}: best {min(taken):.3f} s, median {statistics.median(taken):.3f} s")
    print(json.dumps({name: min(taken) for name, taken in seconds.items()}))


def _encoding(model: Model, tile: ImageTile) -> Callable[[], object]:
    assert model.tower is not None
    return partial(model.tower.encode, tile)


if __name__ == "__main__":
    main()
