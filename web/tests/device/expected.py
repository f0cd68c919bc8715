"""A model's greedy answers by the numpy reference: JSON on standard output.

The demo model, or another with its tokenizer that `MLCC_DEMO_SOURCE` names.

Prompts as token ids, `LENGTH` tokens after each, and their log-probabilities. End tokens do not end
an answer here: only numbers are compared.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcc.engine.batch.batch import BatchWriter
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.loader import open_model
from mlcc.model.model import Model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target

WHOLE = Path(__file__).parents[3] / "examples" / "demo" / "model"
DEMO = Path(os.environ.get("MLCC_DEMO_SOURCE", WHOLE))
LENGTH = 14
QUESTIONS = (
    "How much is 21 + 21?",
    "Hello! Who are you?",
    "Tell me what the capital of France is, and then count from one to five, please.",
)


def answer(model: Model, prompt: list[int]) -> tuple[list[int], list[float]]:
    """The tokens after a prompt and their log-probabilities, greedily."""
    tokens: list[int] = []
    logprobs: list[float] = []
    pools = CacheManager(model.capacity)
    caches = pools.empty()
    ids, start = prompt, 0
    while len(tokens) < LENGTH:
        pools.slide(caches, start)
        pools.grow(caches, start + len(ids))
        writer = BatchWriter(model.capacity.layout)
        writer.row(writer.sequence(ids, start, caches) + len(ids) - 1)
        result = model.executor.collect(model.executor.submit(writer.finish()))
        pools.advance(caches)
        start += len(ids)
        ids = [int(result.tokens[0])]
        tokens += ids
        logprobs.append(float(result.logprobs[0]))
    return tokens, logprobs


@contextmanager
def reference() -> Iterator[Model]:
    """The demo model in numpy, as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "reference"
        options = Options(quant="q4", context=256)
        row = get_target("reference", Choices())
        yield open_model(compile_model(Checkpoint.open(DEMO), row, out, options, Progress()))


def prompts_of(model: Model) -> list[list[int]]:
    """The questions as the model is asked them."""
    asked = ([{"role": "user", "content": question}] for question in QUESTIONS)
    return [list(model.text.encode_chat(messages)) for messages in asked]


def main() -> None:
    with reference() as model:
        prompts = prompts_of(model)
        answers = [answer(model, prompt) for prompt in prompts]
    expected = {
        "prompts": prompts,
        "tokens": [tokens for tokens, _ in answers],
        "logprobs": [logprobs for _, logprobs in answers],
    }
    print(json.dumps(expected))


if __name__ == "__main__":
    main()
