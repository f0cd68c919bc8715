"""Engine arguments: which model, how it is compiled if it is a checkpoint, how it is loaded.

One record for all ways in: the command line and its config file, `Engine` in Python, and mlcc.h.
It holds what was asked for; `mlcc.loader` opens a model with it, `mlcc.model_cache` compiles.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlcc.util.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from mlcc.model.speculation import Speculation


@fast_dataclass(frozen=True)
class EngineArgs:
    """None = the default: what the artifact, the machine and the free memory allow."""

    model: str = ""
    """A compiled model's folder, or a checkpoint: a folder, a GGUF file or hf://org/name."""
    target: str | None = None
    """Target to compile for if `model` is a checkpoint."""
    quant: str | None = None
    """Quantization to compile with if `model` is a checkpoint."""
    threads: int | None = None
    context: int | None = None
    """Longest sequence in tokens."""
    max_batch: int | None = None
    max_step_tokens: int | None = None
    max_rows: int | None = None
    device: int | None = None
    """Index of the GPU."""
    devices: tuple[int, ...] = ()
    """GPUs that each get the whole model, if there are several; `device` is the first of them."""
    memory: float | None = None
    """Share of the free memory for weights and KV pages, above 0 and at most 1."""
    memory_bytes: int | None = None
    """Bytes for weights, caches and workspace, where the system does not tell what is free."""
    kv_pages: int | None = None
    """Pages of the cache groups that keep all tokens."""
    kv: str | None = None
    """dtype of keys and values: compiled with it, or required of a compiled model."""
    prefix_cache: bool = True
    speculate: str | None = None
    """How answers are drafted: lookup, mtp, draft or off, with :N for at most N draft tokens."""
    draft: Path | None = None
    """The compiled draft model's folder, or an EAGLE-3 head for a checkpoint."""

    def __post_init__(self) -> None:
        """Raises InvalidRequestError for a wrong `speculate`, before a model is compiled."""
        if self.speculate is not None:
            self.speculation  # noqa: B018

    @property
    def draft_head(self) -> Path | None:
        """`draft` if it is an EAGLE-3 head as published, which is compiled with the checkpoint."""
        if self.draft is None:
            return None
        from mlcc.model.speculation import is_draft_head

        return self.draft if is_draft_head(self.draft) else None

    @property
    def speculation(self) -> Speculation | None:
        """`speculate` and `draft`, parsed; None = no speculation."""
        if self.speculate is None and self.draft is None:
            return None
        from mlcc.model.speculation import Speculation

        return Speculation.read(self.speculate, self.draft)
