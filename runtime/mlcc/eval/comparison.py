"""Artifacts beside each other: bits a weight, size, speed and quality, a row each.

What is measured is measured here and now; what is stored is read from the manifest. How rows are
printed and drawn is the command's.
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
    """One artifact."""

    name: str
    bits: float | None
    """Of a weight of the linear layers, scales and all; None: the artifact does not say."""
    table_bits: float | None
    """The same of embedding and head."""
    weights_bytes: int
    prefill: float
    """Tokens a second."""
    decode: float
    perplexity: float | None
    """None: no text was given."""
    divergence: Divergence | None
    """None: nothing to compare with."""


def bits_of(quantization: QuantizationInfo) -> tuple[float | None, float | None]:
    """(of linears, of tables), as the compiler wrote them down."""
    linear, table = (quantization.options.get(n) for n in ("linear_bits", "table_bits"))
    return linear, table


def speed(model: Model) -> tuple[float, float]:
    """(prefill, decode) tokens a second of one sequence; medians of a few."""
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
