"""Reads the text files of a compiled model: generation config and chat templates.

The caller passes a function from path to text, so that a folder and a browser's downloads are read
the same way. tokenizer.json is read by the tokenizer library.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import FileEntry
from mlcc.errors import ArtifactError

TOKENIZER = "tokenizer.json"
GENERATION_CONFIG = "generation_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
CHAT_TEMPLATES = "additional_chat_templates"

Read = Callable[[str], str]
"""Returns the text of a file by its path in the manifest."""


def text_files(manifest: Manifest) -> tuple[FileEntry, ...]:
    """The files that a `ModelText` is read from."""
    named = (TOKENIZER, GENERATION_CONFIG)
    return tuple(e for e in manifest.files if e.path in named or _template_name(e.path))


def generation_config(manifest: Manifest, read: Read) -> dict[str, Any]:
    """The checkpoint's generation defaults (temperature, top_p, ...); {} if it has none."""
    if manifest.file(GENERATION_CONFIG) is None:
        return {}
    try:
        return dict(json.loads(read(GENERATION_CONFIG)))
    except (ValueError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{GENERATION_CONFIG} is damaged; compile the model again") from error


def chat_templates(manifest: Manifest, read: Read) -> dict[str, str]:
    """Jinja text by name: "default", perhaps "tool_use" and others. {} for a base model."""
    paths = [entry.path for entry in manifest.files]
    return {name: read(path) for path in paths if (name := _template_name(path))}


def _template_name(path: str) -> str:
    """ "" if the file is no chat template."""
    if path == CHAT_TEMPLATE:
        return "default"
    where = PurePosixPath(path)
    return where.stem if where.parent.as_posix() == CHAT_TEMPLATES else ""
