"""Chat templates of a Hugging Face folder, from all places where HF has stored them.

Precedence, highest first, as in transformers: chat_template.jinja and
additional_chat_templates/NAME.jinja; tokenizer_config.json's `chat_template` (a string, or a list
of {name, template}); chat_template.json (processors). Beside chat_template.jinja the others are
not read, whatever their names. Reads text; renders nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.files import read

DEFAULT = "default"
MAX_TEMPLATE_BYTES = 1 << 20


def read_chat_templates(
    folder: Path, tokenizer_config: Mapping[str, Any], processor: Mapping[str, Any]
) -> dict[str, str]:
    """Templates by name; {} for a base model. `processor` is chat_template.json's object."""
    named = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    paths = {path.stem: f"additional_chat_templates/{path.name}" for path in named}
    paths[DEFAULT] = "chat_template.jinja"
    texts = {name: _read(folder, path) for name, path in paths.items()}
    files = {name: text for name, text in texts.items() if text is not None}
    if DEFAULT in files:
        return files
    found = _from_config(folder / "chat_template.json", processor.get("chat_template"))
    found |= _from_config(folder / "tokenizer_config.json", tokenizer_config.get("chat_template"))
    found |= files
    if DEFAULT not in found and len(found) == 1:  # transformers asks for a name; there is one only
        found[DEFAULT] = next(iter(found.values()))
    return found


def _from_config(path: Path, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    try:
        rows = (
            value.items()
            if isinstance(value, dict)
            else ((r["name"], r["template"]) for r in value)
        )
        found = dict(rows)
    except (TypeError, KeyError) as error:
        raise _malformed(path) from error
    if not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise _malformed(path)
    return found


def _malformed(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: chat_template must be a string or a list of {{name, template}}; "
        "fetch the file again"
    )


def _read(folder: Path, name: str) -> str | None:
    data = read(folder, name, MAX_TEMPLATE_BYTES)
    try:
        return None if data is None else data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{folder / name}: cannot be read ({error}); fetch the file again"
        ) from error
