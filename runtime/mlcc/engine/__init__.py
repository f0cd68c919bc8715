"""The sans-IO engine: it plans batches and commits results; it never touches a device or a clock.

Standard library only, so that the same files run in CPython, in Pyodide and inside a phone app.
"""

from mlcc.engine.batch.batch import Batch, Capacity, Result
from mlcc.engine.engine import Engine
from mlcc.engine.events import Event, Finished, Stats, TextDelta
from mlcc.engine.request import FinishReason, Request, SamplingParams
from mlcc.engine.text.tokenizer import Tokenizer

__all__ = [
    "Batch",
    "Capacity",
    "Engine",
    "Event",
    "FinishReason",
    "Finished",
    "Request",
    "Result",
    "SamplingParams",
    "Stats",
    "TextDelta",
    "Tokenizer",
]
