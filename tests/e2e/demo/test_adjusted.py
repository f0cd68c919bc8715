"""Adjustments and top logprobs in a compiled model's steps, against numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc.device.check_batch import BadBatchError
from mlcc.device.reference.logits import adjust, top_logprobs
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter, Penalties, mask_of
from mlcc.engine.batch.batch import Batch, pairs_of
from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.loader import open_model
from tests.e2e.demo.conftest import Compiled, Opened

PROMPTS = ("How much is", "The cat and the", "1 + 1 = 2, 2 + 2 =", "a a a a")
TOP = 7
BOUND = 1e-4
"""Bound of log-probabilities: sums of a row in float32."""


def second_step(model: Any) -> tuple[Batch, list[int], ManualSteps]:
    """A step with tokens in flight, those tokens, and the next ones."""
    steps = ManualSteps(model.capacity, len(PROMPTS))
    prompts = {s: model.text.encode_prompt(text) for s, text in enumerate(PROMPTS)}
    executor = model.executor
    result = executor.collect(executor.submit(steps.step(prompts)))
    assert result.top_logprobs is None
    batch = steps.step({s: [-1 - s] for s in prompts}, top_logprobs=TOP)
    return batch, list(result.tokens), steps


def writer_for(model: Any) -> AdjustmentWriter:
    layout = AdjustLayout.of(model.capacity.layout, model.capacity.vocab_size)
    return AdjustmentWriter(layout, model.executor.adjustments_buffer())


def against(model: Any, logits: Any, flying: list[int]) -> Adjustments:
    """Each row's likeliest token is made another, by other means; row 1 is left alone."""
    best, vocab = logits.argmax(axis=1).tolist(), logits.shape[1]
    writer = writer_for(model)
    allowed = set(range(vocab)) - {best[2]}
    mask = writer.mask(mask_of(allowed, vocab))
    writer.row(0, bias={best[0]: -100.0, 5: 1.0})
    writer.row(2, Penalties(1.5), history={best[2]: 0}, mask=mask)
    history = {best[3]: 3, flying[3]: 1}
    writer.row(3, Penalties(1.1, 9.0, 2.0), history=history, in_flight=3)
    return writer.finish()


def on(target: str, name: str) -> Any:
    return pytest.param(target, marks=pytest.mark.feature("logprobs", name, "runs"))


@pytest.mark.parametrize(
    "target", [on("cpu", "cpu"), on("vulkan-f32", "vulkan"), on("reference", "reference")]
)
def test_what_is_sampled_is_what_numpy_says(opened: Opened, target: str) -> None:
    model = opened("f32", target)
    batch, flying, _ = second_step(model)
    plain = np.asarray(model.executor.logits(batch), np.float32)
    adjustments = against(model, plain, flying)
    logits = adjust(plain.copy(), adjustments, np.array(flying))
    result = model.executor.collect(model.executor.submit(batch, adjustments))
    changed = logits.argmax(axis=1) != plain.argmax(axis=1)
    assert changed.tolist() == [True, False, True, True]
    assert list(result.tokens) == logits.argmax(axis=1).tolist()
    ids, logprobs = top_logprobs(logits, np.full(len(logits), TOP), MOST_TOP_LOGPROBS)
    expected = pairs_of(ids.ravel().tolist(), logprobs.ravel().tolist())
    assert result.top_logprobs is not None
    for found, want, token, logprob in zip(
        result.top_logprobs, expected, result.tokens, result.logprobs, strict=True
    ):
        assert [t for t, _ in found] == [t for t, _ in want]
        np.testing.assert_allclose([p for _, p in found], [p for _, p in want], atol=BOUND)
        assert len(found) == TOP and found[0][0] == token
        assert abs(found[0][1] - logprob) < BOUND


def test_a_plain_step_calls_nothing_more(compiled: Compiled) -> None:
    """Each of the two functions is called once where it is needed, and never elsewhere."""
    model: Any = open_model(compiled("f32", "cpu"))
    after_logits = ("adjust_rows", "top_logprobs_rows", "sample_rows")

    def called() -> dict[str, int]:
        calls = {k.name: k.calls for k in model.executor.kernels()}
        return {name: calls[name] for name in after_logits if name in calls}

    batch, flying, steps = second_step(model)
    adjustments = against(model, np.asarray(model.executor.logits(batch)), flying)
    model.executor.watch()
    model.executor.collect(model.executor.submit(batch, adjustments))
    assert called() == dict.fromkeys(after_logits, 1)
    model.executor.watch()
    plain = steps.step({s: [-1 - s] for s in range(len(PROMPTS))})
    assert model.executor.collect(model.executor.submit(plain)).top_logprobs is None
    assert called() == {"sample_rows": 1}
    model.close()


def test_adjustments_of_another_model_are_refused(opened: Opened) -> None:
    for target in ("cpu", "reference"):
        model = opened("f32", target)
        batch, _, _ = second_step(model)
        layout = writer_for(model).layout
        other = AdjustmentWriter(replace(layout, vocab_size=layout.vocab_size - 1)).finish()
        with pytest.raises(BadBatchError, match="another layout"):
            model.executor.submit(batch, other)
