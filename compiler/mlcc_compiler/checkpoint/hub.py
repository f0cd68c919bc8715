"""Downloads `hf://org/name[:QUANT][@revision]` through huggingface_hub's cache; QUANT selects one
of a repository's GGUF models. ONNX is fetched if there is nothing else.

The library handles token (HF_TOKEN or `hf auth login`), HF_ENDPOINT, HF_HUB_OFFLINE, cache, resume
and progress. This module maps a source to its call and its failures to one line.

Ctrl-C during a download: the hub's library would wait for its threads, possibly for gigabytes. So
the threads are stopped through the progress bar that they call; if a stalled connection prevents
that, the process ends after a grace period.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from mlcc.errors import CapacityError, CheckpointError, MlccError
from mlcc_compiler.checkpoint.gguf.files import MMPROJ, quantization_of, select_model

GRACE_SECONDS = 2.0


Report = Callable[[int, int], None]
"""Called with the bytes downloaded, and all that are known of."""


@contextmanager
def cancellable(report: Report | None = None) -> Iterator[type[Any]]:
    """Yields the `tqdm_class` for snapshot_download, which is to be called inside. With `report`,
    the library's own bars are not shown.

    Ctrl-C raises KeyboardInterrupt there as usual. If the block has not ended GRACE_SECONDS later,
    the process exits with 130: so hold nothing that needs cleaning up.
    """
    cancelled = threading.Event()
    killer = threading.Timer(GRACE_SECONDS, _exit)
    killer.daemon = True

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not cancelled.is_set():
            cancelled.set()
            killer.start()
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield _bar(cancelled, report)
    finally:
        killer.cancel()
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _bar(cancelled: threading.Event, report: Report | None) -> type[Any]:
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined, unused-ignore]

    of_files: list[Any] = []

    class Bar(tqdm):  # type: ignore[misc, unused-ignore]
        """The library's progress bar, which stops the calling thread after Ctrl-C. Those that count
        bytes are reported as one sum."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._bytes = options.get("unit") == "B"
            if report is not None:
                options |= {"file": io.StringIO(), "disable": False}
            super().__init__(*args, **options)  # type: ignore[no-untyped-call, unused-ignore]
            if self._bytes:
                of_files.append(self)

        def update(self, n: float | None = 1) -> Any:
            if cancelled.is_set():
                raise InterruptedError("cancelled")
            updated = super().update(n)
            if report is not None and self._bytes:
                sums = [(int(bar.n), int(bar.total or bar.n)) for bar in of_files]
                report(sum(done for done, _ in sums), sum(total for _, total in sums))
            return updated

    return Bar


def _exit() -> None:
    print("Aborted!", file=sys.stderr, flush=True)
    os._exit(130)


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
"""Copies of the weights in other layouts, which some repositories contain."""
_ONNX = ("model.onnx", "onnx/model.onnx")
_TOWERS = "*mmproj*[-._][fF]16.gguf"
"""Vision towers of GGUF models, of their several files the one in float16."""
_LISTED = 30
_LOGIN = "`hf auth login` or set HF_TOKEN"


@dataclass(frozen=True)
class HubSource:
    """A model of the hub. `revision` is a branch, a tag or a commit; `quantization` selects one of
    its GGUF files, as llama.cpp and Ollama spell it: Q4_K_M."""

    repo: str
    revision: str | None = None
    quantization: str | None = None

    def __str__(self) -> str:
        which = f":{self.quantization}" if self.quantization else ""
        return f"{PREFIX}{self.repo}{which}" + (f"@{self.revision}" if self.revision else "")

    @property
    def patterns(self) -> list[str]:
        """Patterns of the files to download."""
        if self.quantization is None:
            return list(WANTED)
        spelled = (self.quantization, self.quantization.upper(), self.quantization.lower())
        return [*(f"*{name}*.gguf" for name in dict.fromkeys(spelled)), _TOWERS]


def parse_source(text: str) -> HubSource:
    """Raises CheckpointError unless the text is hf://org/name, optionally with :QUANT and
    @revision."""
    name = r"[A-Za-z0-9][\w.-]*"
    found = re.fullmatch(rf"hf://({name}/{name})(?::({name}))?(?:@([^@\s]+))?", text)
    if not found or ".." in text or text.endswith("/"):
        raise CheckpointError(f"{text!r} is no model; type hf://org/name or hf://org/name@revision")
    return HubSource(found.group(1), found.group(3), found.group(2))


def resolve(model: str, report: Report | None = None) -> Path:
    """The local path of MODEL: a path unchanged, a hub source downloaded. report: called with the
    bytes downloaded, in place of the hub's own progress bars. Raises MlccError."""
    if not model.startswith(PREFIX):
        return Path(model)
    source = parse_source(model)
    folder = download(source, report=report)
    if source.quantization is not None:
        return _quantized(source, folder, source.quantization)
    has_config = (folder / "config.json").exists()
    if has_config and not any(folder.glob("*.safetensors")):
        _fetch_onnx(source, folder, report)
    if not has_config and (names := _quantizations(source)):
        raise CheckpointError(
            f"{source}: has GGUF files alone; say which: {source.repo}:{names[0]} (there "
            f"are {', '.join(names[:_LISTED])})"
        )
    return folder


def _quantized(source: HubSource, folder: Path, quantization: str) -> Path:
    """The GGUF file that a source selects. Raises CheckpointError, which lists those there are."""
    with contextlib.suppress(CheckpointError):
        if folder.is_dir():  # not made where nothing was downloaded
            return select_model(folder, quantization)
    names = _quantizations(source)
    there_are = f"there are {', '.join(names[:_LISTED])}" if names else "it has no GGUF files"
    without = f"{PREFIX}{source.repo}"
    hint = f"type {without}:{names[0]}" if names else f"type {without} for its own weights"
    raise CheckpointError(f"{source}: has no {quantization}; {there_are}; {hint}")


def _quantizations(source: HubSource) -> list[str]:
    """Those of a repository's GGUF files; [] if it has none, or the hub cannot be reached."""
    files = [name for name in _files(source, ".gguf") if not MMPROJ.search(name)]
    return list(dict.fromkeys(quantization_of(name.rpartition("/")[2]) for name in files))


def _fetch_onnx(source: HubSource, folder: Path, report: Report | None) -> None:
    """The float ONNX export of an encoder, if a repository has no other weights."""
    if any((folder / name).exists() for name in _ONNX):
        return
    found = _files(source, ".onnx")
    name = next((name for name in _ONNX if name in found), None)
    if name is not None:
        download(source, [name, f"{name}_data*", f"{name}.data"], (), report)


def _files(source: HubSource, suffix: str) -> list[str]:
    """Names of a repository's files with a suffix; [] if the hub cannot be reached."""
    from huggingface_hub import HfApi

    with contextlib.suppress(Exception):  # the folder's own error is reported then
        files = HfApi(library_name="mlcc").list_repo_files(source.repo, revision=source.revision)
        return sorted(name for name in files if name.endswith(suffix))
    return []


def download(
    source: HubSource,
    patterns: Sequence[str] | None = None,
    excluded: Sequence[str] = UNWANTED,
    report: Report | None = None,
) -> Path:
    """The snapshot's folder; its name is the commit. patterns: the source's by default. Raises
    MlccError."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MlccError(
            'hf:// needs huggingface_hub; type `pip install "mlcc[compile]"`'
        ) from error
    # "No files matched allow_patterns=[...]": the error that follows is for people
    logging.getLogger("huggingface_hub._snapshot_download").setLevel(logging.ERROR)
    try:
        with cancellable(report) as bar:
            folder = snapshot_download(
                source.repo,
                revision=source.revision,
                allow_patterns=source.patterns if patterns is None else list(patterns),
                ignore_patterns=list(excluded),
                library_name="mlcc",
                tqdm_class=bar,
            )
    except Exception as error:
        raise _explain(source, error) from error
    return Path(folder)


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a write says for want of space."""


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
    if isinstance(error, OSError) and error.errno in FULL:
        return CapacityError(
            f"{source}: the disk is full, or `ulimit -f` allows no file so large; free some space "
            "or move HF_HOME, and type it again to go on with it"
        )
    reason = f"{type(error).__name__}: {_first_line(error)}"
    return MlccError(f"{source}: the download failed ({reason}); type it again to go on with it")


def _not_cached() -> str:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "is not wholly in the cache and HF_HUB_OFFLINE is set: unset it to download"
    return "is not in the cache and the hub cannot be reached: check the network and HF_ENDPOINT"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given")
