"""A step with adjustments and top logprobs, and the numpy reference's results: JSON on standard
output, for `adjusted.test.ts`.

The step's rows are of the sequences in `ORDER`. The first two continue tokens in flight of the step
before; adjustments are laid out for the model in `MLCC_DEMO_WEBGPU`.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from expected import prompts_of, reference

from mlcc.artifact.manifest import Manifest
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter, Penalties, mask_of
from mlcc.engine.batch.batch import Batch, Result
from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS, StepLayout
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.model.model import Model

ORDER = (1, 2, 0)


def adjustments(layout: StepLayout, best: list[int], flying: int, vocab: int) -> Adjustments:
    """Each row's likeliest token is made another. Row 1's token in flight would be it, by its bias,
    if the penalties forgot that token."""
    writer = AdjustmentWriter(AdjustLayout.of(layout, vocab))
    mask = writer.mask(mask_of(set(range(vocab)) - {best[2]}, vocab))
    writer.row(0, bias={best[0]: -100.0, 5: 1.0})
    biased, history = {flying: 1000.0}, {best[1]: 1}
    writer.row(1, Penalties(1.1, 2000.0, 0.5), history=history, in_flight=1, bias=biased)
    writer.row(2, Penalties(1.5), history={best[2]: 0}, mask=mask)
    return writer.finish()


def run(model: Model, batch: Batch, adjusted: Adjustments | None = None) -> Result:
    return model.executor.collect(model.executor.submit(batch, adjusted))


def main() -> None:
    folder = Path(os.environ["MLCC_DEMO_WEBGPU"])
    manifest = Manifest.from_bytes((folder / "mlcc.json").read_bytes())
    with reference() as model:
        prompts, vocab = prompts_of(model), model.capacity.vocab_size
        steps = ManualSteps(model.capacity, len(prompts))
        first = list(run(model, steps.step({0: prompts[0]})).tokens)
        flying = list(run(model, steps.step({1: prompts[1], 2: prompts[2]})).tokens)
        tokens = {1: [-1], 2: [-2], 0: first}
        assert tuple(tokens) == ORDER
        batch = steps.step(tokens, top_logprobs=MOST_TOP_LOGPROBS)
        best = model.executor.logits(batch).argmax(axis=1).tolist()  # type: ignore[attr-defined]
        arguments = best, flying[1], vocab
        result = run(model, batch, adjustments(model.capacity.layout, *arguments))
    words = adjustments(manifest.layout, *arguments)
    assert result.top_logprobs is not None
    answer: dict[str, Any] = {
        "prompts": prompts,
        "known": first[0],
        "adjustments": base64.b64encode(words.words[: words.used_words]).decode(),
        "plain": best,
        "tokens": list(map(int, result.tokens)),
        "logprobs": list(map(float, result.logprobs)),
        "top": [[(int(t), float(p)) for t, p in row] for row in result.top_logprobs],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
