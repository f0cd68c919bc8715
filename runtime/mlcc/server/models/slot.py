"""The place of one model in a server that has several: whether it is loaded, who holds it, and what
of the memory is its. Decides nothing; see `pool.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mlcc.server.models.loaded_model import LoadedModel
from mlcc.server.models.sources import Source
from mlcc.service.model_port import ModelEntry


@dataclass(eq=False)
class ModelSlot:
    """One model: whether it is there, who holds it, and what of the memory is its."""

    source: Source
    hosted: LoadedModel | None = None
    loading: asyncio.Task[None] | None = None
    waiting: int = 0
    """Who wait for it to be loaded."""
    leases: int = 0
    granted: int | None = None
    """Bytes, from before it is loaded until after it is gone; None = it has none."""
    used: float = 0.0
    ending: asyncio.Task[None] | None = None
    """While its processes end."""

    @property
    def live(self) -> int:
        """Requests that its engine has."""
        return self.hosted.core.engine.live if self.hosted else 0

    @property
    def idle(self) -> bool:
        """Loaded, and nobody would miss it now."""
        return self.hosted is not None and not self.leases and not self.waiting and not self.live

    @property
    def entry(self) -> ModelEntry:
        """As lists of models tell it."""
        source, context = self.source, self.source.context
        if self.hosted:
            context = self.hosted.core.engine.capacity.context
        return ModelEntry(
            source.name,
            source.created,
            "loaded" if self.hosted else "loading" if self.loading else "unloaded",
            context,
            source.aliases,
            self.granted if self.hosted else None,
            self.live,
            source.about,
        )
