"""`hf://org/name[@revision]` to a local folder, through huggingface_hub's cache.

The library does the work: token (HF_TOKEN or `hf auth login`), HF_ENDPOINT, HF_HUB_OFFLINE, cache,
resume, progress. This turns a source into its call and its failures into one line.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from pathlib import Path

from mlcc.errors import CapacityError, CheckpointError, MlccError
from mlcc_compiler.checkpoint.hub_cancel import cancellable

PREFIX = "hf://"
WANTED = (
    "*.json",
    "*.safetensors",
    "*.jinja",
    "tokenizer.model",
    "LICENSE*",
    "LICENCE*",
)
UNWANTED = ("original/*", "onnx/*", "openvino/*", "coreml/*", "consolidated*.safetensors")
"""Copies of the weights in other layouts, which some models keep beside the real ones."""
_LOGIN = "`hf auth login` or set HF_TOKEN"


@dataclass(frozen=True)
class HubSource:
    """A model of the hub. `revision` is a branch, a tag or a commit."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}" + (f"@{self.revision}" if self.revision else "")


def parse_source(text: str) -> HubSource:
    """Raises CheckpointError unless it reads hf://org/name or hf://org/name@revision."""
    name = r"[A-Za-z0-9][\w.-]*"
    found = re.fullmatch(rf"hf://({name}/{name})(?:@([^@\s]+))?", text)
    if not found or ".." in text or text.endswith("/"):
        raise CheckpointError(f"{text!r} is no model; type hf://org/name or hf://org/name@revision")
    return HubSource(found.group(1), found.group(2))


def resolve(model: str) -> Path:
    """The local folder of MODEL: a path as it is, a hub source downloaded. Raises MlccError."""
    if not model.startswith(PREFIX):
        return Path(model)
    return download(parse_source(model))


def download(source: HubSource) -> Path:
    """The snapshot's folder; its name is the commit. Raises MlccError."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MlccError(
            'hf:// needs huggingface_hub; type `pip install "mlcc[compile]"`'
        ) from error
    try:
        with cancellable() as bar:
            folder = snapshot_download(
                source.repo,
                revision=source.revision,
                allow_patterns=list(WANTED),
                ignore_patterns=list(UNWANTED),
                library_name="mlcc",
                tqdm_class=bar,
            )
    except Exception as error:
        raise _explain(source, error) from error
    return Path(folder)


def _explain(source: HubSource, error: Exception) -> MlccError:
    from huggingface_hub import errors

    rows: tuple[tuple[type[Exception], str], ...] = (  # the most specific first
        (errors.GatedRepoError, "is gated: accept its terms on its page, then log in: " + _LOGIN),
        (errors.RepositoryNotFoundError, "was not found: check the name, or if private: " + _LOGIN),
        (errors.RevisionNotFoundError, f"has no revision {source.revision!r}: check its branches"),
        (errors.HFValidationError, "is no valid name: type hf://org/name"),
        (errors.LocalEntryNotFoundError, _not_cached()),
        (errors.HfHubHTTPError, f"the hub refused ({_first_line(error)}): try again later"),
    )
    if isinstance(error.__cause__, errors.HfHubHTTPError):
        return _explain(source, error.__cause__)  # the library says "not cached" for an answer too
    for kind, message in rows:
        if isinstance(error, kind):
            return CheckpointError(f"{source}: {message}")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return CapacityError(f"{source}: the disk is full; free some space or move HF_HOME")
    reason = f"{type(error).__name__}: {_first_line(error)}"
    return MlccError(f"{source}: the download failed ({reason}); type it again to go on with it")


def _not_cached() -> str:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "is not wholly in the cache and HF_HUB_OFFLINE is set: unset it to download"
    return "is not in the cache and the hub cannot be reached: check the network and HF_ENDPOINT"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given")
