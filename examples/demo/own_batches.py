"""Batches of a model's own text (own_text.py), over and over, and the model that wrote it.

The file is read anew before each pass, so a training sees what was added since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from train import OTHER_TOKEN_SHARE, Batch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from mlcc_compiler.checkpoint.open import open_checkpoint


@dataclass(frozen=True)
class Row:
    """Token ids of a prompt and of the model's text after it."""

    prompt: list[int]
    text: list[int]


def read_rows(path: Path) -> list[Row]:
    """The rows that are complete; another process may be adding some."""
    lines = path.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [Row(row["prompt"], row["text"]) for row in rows if len(row["text"]) > 1]


class OwnBatches:
    """Passes over the rows, in batches of about `tokens` tokens; a batch is the same in each."""

    def __init__(self, path: Path, seed: int, tokens: int) -> None:
        self.path, self.tokens = path, tokens
        self.rng = np.random.default_rng(seed)
        self.batches: list[Batch] = []
        self.read = 0
        """Rows that are in batches."""

    def __iter__(self) -> Iterator[Batch]:
        while True:
            self._add(read_rows(self.path)[self.read :])
            for i in self.rng.permutation(len(self.batches)):
                yield self.batches[i]

    def _add(self, rows: list[Row]) -> None:
        """Batches of these rows, rows of like length together."""
        self.read += len(rows)
        group: list[Row] = []
        for row in sorted(rows, key=lambda row: len(row.prompt) + len(row.text)):
            if group and (len(group) + 1) * len(row.prompt + row.text) > self.tokens:
                self.batches.append(self._batch(group))
                group = []
            group.append(row)
        if group:
            self.batches.append(self._batch(group))

    def _batch(self, rows: list[Row]) -> Batch:
        """Padded at the end; predicted are the model's tokens and a share of the others."""
        ids = np.zeros((len(rows), max(len(row.prompt + row.text) for row in rows)), np.int64)
        wanted = np.zeros(ids.shape, bool)
        for i, row in enumerate(rows):
            begin, end = len(row.prompt), len(row.prompt + row.text)
            ids[i, :end] = row.prompt + row.text
            wanted[i, :begin] = self.rng.random(begin) < OTHER_TOKEN_SHARE
            wanted[i, begin:end] = True
        wanted[:, 0] = False
        positions = np.flatnonzero(wanted)
        return Batch(*map(torch.from_numpy, (ids, positions - 1, ids.flat[positions])))


def open_model(path: Path) -> PreTrainedModel:
    """A Hugging Face folder or a GGUF file in bfloat16, as it is: it does not learn."""
    checkpoint: Any = open_checkpoint(path)
    config = AutoConfig.for_model(**checkpoint.config)
    config._attn_implementation = "eager"
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    tensors = checkpoint.tensors
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(tensors.read(name)))
    return model.eval().requires_grad_(False)
