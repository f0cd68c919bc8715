"""The LoRA adapters of a service, and the folders from which requests may load more. `mlcc.lora`
reads the files.
"""

from __future__ import annotations

import os
import time
from dataclasses import field
from pathlib import Path

from mlcc.api.ollama.request import LATEST
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.util.fast_dataclass import fast_dataclass

LONGEST_NAME = 200
_FILES = ("adapter_config.json", "adapter_model.safetensors")


@fast_dataclass(frozen=True)
class AdapterEntry:
    """An adapter that is loaded or being loaded."""

    name: str
    """The model name for requests."""
    folder: Path
    created: int = field(default_factory=lambda: int(time.time()))
    """Unix time of its creation here."""


@fast_dataclass(frozen=True)
class AdapterFolders:
    """`root`: the folder from which requests may load adapters; None = disabled."""

    root: Path | None = None
    refusal: str = (
        "this server loads no adapters by request; start `mlcc serve` with --lora-dir DIR, or with "
        "--lora NAME=FOLDER for one"
    )
    """Error message if loading is disabled."""

    def find(self, path: str) -> Path:
        """The folder that a request names, relative to `root` or absolute. Raises UnsupportedError,
        and InvalidRequestError for a folder outside of it."""
        if self.root is None:
            raise UnsupportedError(self.refusal, param="lora_path", code="adapters_not_allowed")
        found = self.root / path  # an absolute path is unchanged
        places = (found, *(found / name for name in _FILES))
        try:
            is_inside = "\0" not in path and all(self._holds(place) for place in places)
            is_folder = is_inside and found.is_dir()
        except OSError as error:  # such as a name that is too long for the file system
            raise _not_found(path, f" ({error.strerror})") from None
        if not is_inside:
            raise InvalidRequestError(
                "lora_path leads out of the folder of --lora-dir; only adapters inside it are "
                "loaded",
                param="lora_path",
                code="path_not_allowed",
            )
        if not is_folder:
            raise _not_found(path)
        return found

    def _holds(self, path: Path) -> bool:
        """Whether a path, with links resolved, lies in the folder."""
        root = os.path.realpath(str(self.root))
        return Path(os.path.realpath(path)).is_relative_to(root)


def _not_found(path: str, why: str = "") -> InvalidRequestError:
    return InvalidRequestError(
        f"there is no folder {path[:200]!a} in that of --lora-dir{why}",
        param="lora_path",
        code="path_not_found",
    )


def check_name(name: str, taken: tuple[str, ...], spelled: str = "lora_name") -> str:
    """Check an adapter's name. Raises InvalidRequestError if it is malformed, a model's name, or a
    name with Ollama's tag, which its clients could not distinguish from one without."""
    if not name or len(name) > LONGEST_NAME or name != name.strip() or not name.isprintable():
        raise InvalidRequestError(
            f"{spelled} {name[:80]!r} is no name: up to {LONGEST_NAME} printable characters",
            param=spelled,
        )
    if name.endswith(LATEST):
        raise InvalidRequestError(
            f"{spelled} '{name}' ends with '{LATEST}', which Ollama's clients append to every "
            "name; leave that out",
            param=spelled,
            code="bad_adapter_name",
        )
    if name in taken:
        raise InvalidRequestError(
            f"{spelled} '{name}' is the model's own name; choose another",
            param=spelled,
            code="adapter_exists",
        )
    return name
