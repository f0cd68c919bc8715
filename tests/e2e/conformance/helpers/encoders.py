"""The encoders of `vectors/encoders`: one for each topic, small, with weights of a formula, so that
the vectors hold on every machine.

    python -m tests.e2e.conformance.helpers.encoders TOPIC FOLDER

writes one, to compile and serve by hand.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tests.compiler.models.helpers.encoder_checkpoints import CASES, RERANKERS, Case, make_encoder

PROMPTS = {"query": "find it: ", "document": ""}
TOPICS: dict[str, Case] = {
    "embeddings": replace(CASES["bert"], prompts=PROMPTS),
    "rerank": RERANKERS["bert-reranker"],
}
"""Topic -> its encoder."""


def make(topic: str, folder: Path) -> Path:
    """Write the checkpoint of a topic; its folder, whose name is the model's."""
    out = folder / topic
    out.mkdir()
    model = make_encoder(TOPICS[topic], out).to(torch.float32)
    for number, (name, parameter) in enumerate(sorted(model.named_parameters())):
        norm = "LayerNorm.weight" in name
        drawn = _drawn(parameter.numel(), number).reshape(parameter.shape)
        parameter.data = torch.from_numpy(drawn * (0.3 if norm else 0.25) + norm)
    model.save_pretrained(out)
    return out


def _drawn(count: int, number: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Evenly from -1 to 1: a multiplicative hash, in integers alone."""
    index = np.arange(count, dtype=np.uint64) + np.uint64(number * 1_000_003 + 1)
    mixed = index * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    high = (mixed >> np.uint64(40)).astype(np.float32)
    return (high / np.float32(1 << 23) - 1).astype(np.float32)


if __name__ == "__main__":
    print(make(sys.argv[1], Path(sys.argv[2])))
