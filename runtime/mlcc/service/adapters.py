"""The LoRA adapters of a service, and the folders from which more may be loaded. Files are read by
`mlcc.lora`, not here.
"""

from __future__ import annotations

import os
import time
from dataclasses import field
from pathlib import Path

from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.util.fast_dataclass import fast_dataclass

LONGEST_NAME = 200
_FILES = ("adapter_config.json", "adapter_model.safetensors")


@fast_dataclass(frozen=True)
class AdapterEntry:
    """One that is loaded, or is to be."""

    name: str
    """What requests say as their model."""
    folder: Path
    created: int = field(default_factory=lambda: int(time.time()))
    """Unix time since when it has been here."""


@fast_dataclass(frozen=True)
class AdapterFolders:
    """`root`: the folder in which adapters may be loaded by request; None = none may."""

    root: Path | None = None
    refusal: str = (
        "this server loads no adapters by request; start `mlcc serve` with --lora-dir DIR, or with "
        "--lora NAME=FOLDER for one"
    )
    """What is said where none may."""

    def find(self, path: str) -> Path:
        """A folder that a request names, from `root` on or whole. Raises UnsupportedError, and
        InvalidRequestError for one that is elsewhere or leads there."""
        if self.root is None:
            raise UnsupportedError(self.refusal, param="lora_path", code="adapters_not_allowed")
        found = self.root / path  # a whole path stays as it is
        places = (found, *(found / name for name in _FILES))
        if "\0" in path or not all(self._holds(place) for place in places):
            raise InvalidRequestError(
                "lora_path leads out of the folder of --lora-dir; only adapters inside it are "
                "loaded",
                param="lora_path",
                code="path_not_allowed",
            )
        if not found.is_dir():
            raise InvalidRequestError(
                f"there is no folder '{path[:200]}' in that of --lora-dir",
                param="lora_path",
                code="path_not_found",
            )
        return found

    def _holds(self, path: Path) -> bool:
        """Whether a path, its links followed, lies in the folder."""
        root = os.path.realpath(str(self.root))
        return Path(os.path.realpath(path)).is_relative_to(root)


def check_name(name: str, taken: tuple[str, ...], spelled: str = "lora_name") -> str:
    """A name for an adapter. Raises InvalidRequestError if it is none, or a model's."""
    if not name or len(name) > LONGEST_NAME or name != name.strip() or not name.isprintable():
        raise InvalidRequestError(
            f"{spelled} {name[:80]!r} is no name: up to {LONGEST_NAME} printable characters",
            param=spelled,
        )
    if name in taken:
        raise InvalidRequestError(
            f"{spelled} '{name}' is the model's own name; choose another",
            param=spelled,
            code="adapter_exists",
        )
    return name
