"""Whether a compiled model may guess for another: the same tokens under the same numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mlcc.errors import ArtifactError, UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

    from mlcc.artifact.folder import Artifact


def check_draft(draft: Artifact, target: Artifact) -> None:
    """Raises UnsupportedError for a draft of other tokens, ArtifactError for one without any."""
    mine, its = target.manifest.model, draft.manifest.model
    if mine.vocab_size != its.vocab_size:
        raise UnsupportedError(
            f"--draft {draft.folder}: {its.name} has a vocabulary of {its.vocab_size} tokens and "
            f"{mine.name} one of {mine.vocab_size}; choose a smaller model of the same family"
        )
    if _words(draft.tokenizer_path) != _words(target.tokenizer_path):
        raise UnsupportedError(
            f"--draft {draft.folder}: {its.name} has another tokenizer than {mine.name}; choose a "
            "smaller model of the same family"
        )


def _words(path: Path) -> tuple[Any, Any]:
    """What each id is: how text is cut may differ, for the larger model's tokens alone count."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        added = {entry["id"]: entry["content"] for entry in found.get("added_tokens") or ()}
        return found["model"].get("vocab"), added
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"{path}: is no tokenizer ({error})") from error
