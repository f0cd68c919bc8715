"""Compares artifacts: bits per weight, size, speed and quality, one row each.

Speed and quality are measured here; the rest is read from the manifest. The command prints and
draws the rows.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from mlcc.artifact.schema import QuantizationInfo
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.eval.divergence import Divergence
from mlcc.model.model import Model

PROMPT_TOKENS = 128
DECODED_TOKENS = 32


@dataclass(frozen=True)
class Compared:
    """The row of one artifact."""

    name: str
    bits: float | None
    """Bits per weight of the linear layers, scales included; None = not in the manifest."""
    table_bits: float | None
    """Bits per weight of embedding and head."""
    weights_bytes: int
    prefill: float
    """Tokens per second."""
    decode: float
    perplexity: float | None
    """None = no text was given."""
    divergence: Divergence | None
    """None = no reference was given."""


def bits_of(quantization: QuantizationInfo) -> tuple[float | None, float | None]:
    """Bits per weight of (linear layers, tables), from the manifest."""
    linear, table = (quantization.options.get(n) for n in ("linear_bits", "table_bits"))
    return linear, table


def speed(model: Model) -> tuple[float, float]:
    """(prefill, decode) speed of one sequence in tokens per second; medians of a few runs."""
    executor, capacity = model.executor, model.capacity
    prompt = min(PROMPT_TOKENS, capacity.max_step_tokens, capacity.context // 2)
    count = min(DECODED_TOKENS, capacity.context - prompt - 1)
    ids = [(7 * i) % (capacity.vocab_size - 1) + 1 for i in range(prompt)]
    prefills, decodes = [], []
    for _ in range(3):
        steps = ManualSteps(capacity)
        began = time.perf_counter()
        token = executor.collect(executor.submit(steps.step({0: ids}))).tokens[0]
        prefills.append(time.perf_counter() - began)
        for _ in range(count):
            began = time.perf_counter()
            token = executor.collect(executor.submit(steps.step({0: [token]}))).tokens[0]
            decodes.append(time.perf_counter() - began)
    return prompt / statistics.median(prefills), 1 / statistics.median(decodes)
