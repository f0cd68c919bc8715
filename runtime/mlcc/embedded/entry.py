"""The interface for JavaScript through Pyodide: JSON in, JSON out.

An mlcc error is returned as {"error": {"type", "message", "code", "param", "http_status"}}; any
exception thrown is a bug. `EmbeddedModel` is a class; its constructor throws the errors that the
functions return.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mlcc.artifact.manifest import Manifest
from mlcc.embedded.bridge import failed, to_bytes
from mlcc.embedded.planning import halve, make_plan
from mlcc.errors import MlccError


def plan(manifest: Any, adapter: str, options: str) -> str:
    """Return what of a model fits, from the bytes of its manifest and the limits of the GPU
    adapter.

    adapter: {"f16", "packed_dot", "subgroup_matrices", "tensor_bytes", "memory_bytes" or null};
    options: {"max_batch", "max_step_tokens", "context"}, each null for the default. Returns a plan,
    or {"instead": paths of other manifests}.
    """

    def made() -> dict[str, Any]:
        return make_plan(_read(manifest), json.loads(adapter), json.loads(options))

    return _answer(made)


def shrink(manifest: Any, plan: str) -> str:
    """Return the plan with about half the pages, after the GPU failed to allocate them."""
    return _answer(lambda: halve(_read(manifest), json.loads(plan)))


def check(manifest: Any, texts: Any, tokenizer: Any) -> str:
    """Return {"notes": messages to the user about the text files}, or the error that the model
    would throw for them."""
    from mlcc.embedded.model import read_texts

    return _answer(lambda: {"notes": read_texts(manifest, texts, tokenizer).notes})


def __getattr__(name: str) -> Any:
    """Import `EmbeddedModel` on first use: a plan comes earlier and needs far fewer modules."""
    if name != "EmbeddedModel":
        raise AttributeError(name)
    from mlcc.embedded.model import EmbeddedModel

    return EmbeddedModel


def _read(manifest: Any) -> Manifest:
    return Manifest.from_bytes(to_bytes(manifest))


def _answer(made: Callable[[], dict[str, Any]]) -> str:
    try:
        return json.dumps(made())
    except MlccError as error:
        return failed(error)
