"""What the demo model answers, greedily, by the numpy reference: JSON on standard output.

Prompts as token ids, `LENGTH` tokens after each, and their log-probabilities. An end token ends
nothing here: only numbers are compared.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from mlcc.engine.batch import Batch
from mlcc.model import Model, open_model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.plan import Options
from mlcc_targets import Choices, get_target

DEMO = Path(__file__).parents[2] / "examples" / "demo" / "model"
LENGTH = 14
QUESTIONS = (
    "How much is 21 + 21?",
    "Hello! Who are you?",
    "Tell me what the capital of France is, and then count from one to five, please.",
)


def batch_of(ids: list[int], start: int, page_size: int) -> Batch:
    """One sequence on the pages 0, 1, ...: `ids` from position `start` on, greedy."""
    batch, end = Batch(), start + len(ids)
    batch.token_ids.extend(ids)
    batch.positions.extend(range(start, end))
    batch.token_slots.extend(range(start, end))
    batch.page_indices.extend(range(-(-end // page_size)))
    batch.qo_indptr.append(len(ids))
    batch.page_indptr.append(len(batch.page_indices))
    batch.last_page_len.append((end - 1) % page_size + 1)
    batch.logit_rows.append(len(ids) - 1)
    for values, value in ((batch.temperature, 0.0), (batch.top_p, 1.0), (batch.min_p, 0.0)):
        values.append(value)
    batch.top_k.append(0)
    batch.uniforms.append(0.5)
    return batch


def answer(model: Model, prompt: list[int]) -> tuple[list[int], list[float]]:
    """The tokens after a prompt and their log-probabilities."""
    tokens: list[int] = []
    logprobs: list[float] = []
    ids, start = prompt, 0
    while len(tokens) < LENGTH:
        batch = batch_of(ids, start, model.capacity.page_size)
        result = model.executor.collect(model.executor.submit(batch))
        start += len(ids)
        ids = [int(result.tokens[0])]
        tokens += ids
        logprobs.append(float(result.logprobs[0]))
    return tokens, logprobs


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "reference"
        options = Options(quant="q4", context=256)
        row = get_target("reference", Choices())
        model = open_model(compile_model(Checkpoint.open(DEMO), row, out, options, Progress()))
        prompts = [
            model.text.encode_chat([{"role": "user", "content": question}])
            for question in QUESTIONS
        ]
        answers = [answer(model, prompt) for prompt in prompts]
    told = {
        "prompts": prompts,
        "tokens": [tokens for tokens, _ in answers],
        "logprobs": [logprobs for _, logprobs in answers],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
