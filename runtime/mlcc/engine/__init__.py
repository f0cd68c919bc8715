"""The sans-IO engine: it plans batches and commits results; it never touches a device or a clock.

Standard library only, so that the same files run in CPython, in Pyodide and inside a phone app.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_PLACES = {
    "Batch": "batch.batch",
    "Capacity": "batch.batch",
    "Result": "batch.batch",
    "Engine": "engine",
    "Event": "events",
    "Finished": "events",
    "Stats": "events",
    "TextDelta": "events",
    "FinishReason": "request",
    "Request": "request",
    "SamplingParams": "request",
    "Tokenizer": "text.tokenizer",
}


def __getattr__(name: str) -> Any:
    """A name of `__all__`, imported when asked for: most processes need a few modules of it."""
    if name not in _PLACES:
        raise AttributeError(f"module 'mlcc.engine' has no attribute {name!r}")
    return getattr(import_module(f"mlcc.engine.{_PLACES[name]}"), name)
