"""Runs in the Python of an emulated phone: opens a folder as an Android app would, and computes.

    python phone.py FOLDER EXECUTORS TOKENS ID...     EXECUTORS: the folder with libmlcc_executor.so

Prints one line of JSON: the chosen library, the logits after the prompt, and the most likely
tokens, or the error. The standard library and mlcc's runtime only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.getandroidapilevel = lambda: 35  # type: ignore[attr-defined]  # what only Android's Python has

from mlcc.engine.scheduler.manual_steps import ManualSteps  # noqa: E402
from mlcc.errors import MlccError  # noqa: E402
from mlcc.util import executor_library as library  # noqa: E402


def computed(folder: str, executors: str, count: int, prompt: list[int]) -> dict[str, Any]:
    """The results to print. Raises MlccError."""
    from mlcc.artifact.folder import Artifact
    from mlcc.engine_args import EngineArgs
    from mlcc.loader import open_executor

    library.look_in(Path(executors))
    artifact = Artifact.open(folder)
    executor = open_executor(
        artifact, EngineArgs(threads=1, max_batch=1, context=256, memory_bytes=1 << 30)
    )
    steps = ManualSteps(executor.capacity)
    watched: Any = executor  # more than the port: logits
    (logits,) = watched.logits(steps.step({0: prompt})).tolist()
    tokens = [max(range(len(logits)), key=logits.__getitem__)]
    while len(tokens) < count:
        batch = steps.step({0: tokens[-1:]})
        tokens += executor.collect(executor.submit(batch)).tokens
    executor.close()
    return {"library": artifact.library_path.name, "logits": logits, "tokens": tokens}


if __name__ == "__main__":
    model, executors, count, *ids = sys.argv[1:]
    try:
        print(json.dumps(computed(model, executors, int(count), [*map(int, ids)])))
    except MlccError as error:
        print(json.dumps({"error": error.message}))
