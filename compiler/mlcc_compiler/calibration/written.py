"""Rows that the model writes itself, to round its weights on: what it knows, in the proportions in
which it knows it, and nobody's text (data-free calibration: Liu et al., LLM-QAT, 2023).

The model writes by this project's own engine, from a copy compiled for this machine. Each row has a
seed of its own and is sampled at temperature 1, so it is the same whenever kernels round alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlcc.engine.events import TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.model.driver import Driver
from mlcc.opening import open_model

AT_ONCE = 32
"""Rows."""


def written(
    artifact: Path, beginnings: Sequence[Sequence[int]], progress: Callable[[int, int], None]
) -> list[list[int]]:
    """Each beginning, gone on with by a compiled model as far as its context goes, beyond the ends
    of texts. progress: tokens, of all.

    Raises CapacityError, DeviceError and UnsupportedError where the model does not run here.
    """
    rows = {str(i): list(begin) for i, begin in enumerate(beginnings)}
    model = open_model(artifact, prefix_cache=False)
    try:
        driver, length = Driver(model, text_later=True), model.executor.capacity.context
        for seed, (name, begin) in enumerate(rows.items()):
            sampling = SamplingParams(seed=seed, max_tokens=length - len(begin), ignore_eos=True)
            driver.engine.add(Request(name, begin, sampling))
        while driver.has_work:
            for event in driver.step():
                if isinstance(event, TextDelta):
                    rows[event.request_id] += event.token_ids
            progress(sum(map(len, rows.values())), length * len(rows))
    finally:
        model.close()
    return list(rows.values())
