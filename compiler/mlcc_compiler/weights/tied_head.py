"""Whether the head is the embedding's matrix: by the tensors, where the config contradicts them.

`tie_word_embeddings` is true in the config of many fine-tunes that have a head of their own. As in
transformers, the tensor counts: a head that differs from the embedding is used, and if only the
head is in the files, it is the embedding too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.safetensors import Tensors, supports_rows
from mlcc_compiler.models.registry import with_defaults
from mlcc_compiler.weights.names import checkpoint_names

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
TIED = "tie_word_embeddings"
_NAMES = (TIED, "tie_embedding")
"""The second is the older name in LFM2's configs, which overrules the first."""
_ROWS = 4096
"""Rows that are compared at once: 64 MB for 4,096 columns."""


def untied(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint, its config corrected if it ties a head that differs from the embedding."""
    if not with_defaults(checkpoint.config).get(TIED):
        return checkpoint
    tensors = checkpoint.tensors
    source = checkpoint_names([HEAD, TABLE], tensors.shapes).source
    head, table = source[HEAD], source[TABLE]
    if head not in tensors.shapes or table not in tensors.shapes or _equal(tensors, head, table):
        return checkpoint
    note = f"config.json ties the head to the embedding, but {head!r} differs: it is used"
    return replace(
        checkpoint,
        config={**checkpoint.config, **dict.fromkeys(_NAMES, False)},
        notes=(*checkpoint.notes, note),
    )


def embedding_of_head(source: dict[str, str], present: list[str]) -> dict[str, str]:
    """The tensors of a model with a tied head: the head's, if it alone is in the files."""
    head = checkpoint_names([HEAD], present).source[HEAD]
    if TABLE in source and source[TABLE] not in present and head in present:
        return {**source, TABLE: head}
    return source


def _equal(tensors: Tensors, head: str, table: str) -> bool:
    """Whether two matrices have the same numbers; the first difference ends the comparison."""
    shape = tensors.shapes[head]
    if shape != tensors.shapes[table]:
        return False
    if not supports_rows(tensors):
        return bool(np.array_equal(tensors.read(head), tensors.read(table)))
    parts = (slice(start, start + _ROWS) for start in range(0, shape[0], _ROWS))
    return all(
        np.array_equal(tensors.read_rows(head, rows), tensors.read_rows(table, rows))
        for rows in parts
    )
