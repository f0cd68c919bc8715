"""An executor that checks steps and cannot run them: its library lacks the functions, so a step
that passes the checks fails by another error than one that is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlcc.artifact.folder import Artifact
from mlcc.artifact.schema import CacheInfo
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.compiled_model import CompiledModel
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.engine.batch.tables import TOKEN_COLUMNS, CacheGroup
from mlcc.errors import UnsupportedError

GROUPS = (CacheGroup("paged", 4), CacheGroup("window", 2, 5), CacheGroup("state"))
_TEXT = Capacity.of(
    GROUPS, [40, 24, 6], vocab_size=300, context=48, max_batch=4, max_step_tokens=16, max_rows=8
)
CAPACITY = replace(_TEXT, layout=replace(_TEXT.layout, token_columns=TOKEN_COLUMNS))


class Unloaded:
    """Whether steps of a capacity are accepted."""

    def __init__(self, folder: Path, capacity: Capacity = CAPACITY) -> None:
        library = Artifact.open(folder).library_path
        caches = [
            CacheInfo(
                kind=group.kind,
                page_size=group.page_size,
                window=group.window,
                pool=pool,
                layers=(),
                tensors=(),
            )
            for group, pool in zip(capacity.groups, capacity.pools, strict=True)
        ]
        self.executor = CompiledExecutor(CompiledModel(library, [], caches, ("adjust",)), capacity)

    def check(self, batch: Batch, adjustments: Adjustments | None = None) -> None:
        """Raises BadBatchError for a step that is refused."""
        try:
            self.executor.submit(batch, adjustments)
        except UnsupportedError as error:
            assert "has no 'forward'" in error.message
        else:
            raise AssertionError("a step ran without a function")
