"""Reads the tokens of a tokenizer.json that are parts of characters, for a host program whose own
tokenizer returns only texts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from mlcc.engine.text.tokenizer import bytes_of
from mlcc.errors import ArtifactError
from mlcc.model.tokenizer.tokenizer import MAX_TOKENIZER_BYTES
from mlcc.util.files import read_regular


def parts_of_characters(path: Path) -> dict[int, str]:
    """The tokens that are no whole characters by id, as the vocabulary spells them; only these few
    are kept in memory. Raises ArtifactError."""
    try:
        vocabulary = json.loads(read_regular(path, MAX_TOKENIZER_BYTES))["model"]["vocab"]
        pairs: Iterable[tuple[str, int]]
        if isinstance(vocabulary, dict):
            pairs = vocabulary.items()
        else:  # of SentencePiece's unigrams: [piece, score]
            pairs = ((entry[0], i) for i, entry in enumerate(vocabulary))
        return {token: piece for piece, token in pairs if _is_part(piece)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}; compile the model again") from error


def _is_part(piece: str) -> bool:
    try:
        (bytes_of(piece) or b"").decode()
    except UnicodeDecodeError:
        return True
    return False
