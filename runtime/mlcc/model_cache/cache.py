"""Cache of checkpoints that `chat`, `run` or `serve` compiled on demand.

The compiler runs in a child process: TVM's runtime mode is per process, and Ctrl-C stays clean. An
entry is a folder under the XDG cache with the compiled model (`model/`) and its origin
(`source.json`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mlcc.artifact.manifest import abi_hash
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.errors import ArtifactError, CapacityError, CheckpointError, MlccError, UnsupportedError
from mlcc.util import user_folders
from mlcc.util.extras import require
from mlcc.util.files import begins_with, real
from mlcc.util.progress import FIRST_NOTE
from mlcc.util.sizes import apart
from mlcc.version import TVM, TVM_FFI, __version__

SOURCE_NAME = "source.json"
TARGET = "cpu"
"""The default target."""
_HUB = "hf://"
_LOCK = ".lock"
_MORE_SPACE = "type `mlcc cache clean`, or set XDG_CACHE_HOME to another disk"
_FULL = re.compile(r"disk\b.*\b(is full|no file so large)")
"""Errors of the compiler for want of space (`mlcc.artifact.output_errors`, the linker's)."""
_NAME = 100
"""Longest part of a model's name in an entry's name; file systems allow 255 bytes."""


@dataclass(frozen=True)
class CompileOptions:
    """Options of the compiler; None = its default."""

    target: str | None = None
    quant: str | None = None
    context: int | None = None
    max_batch: int | None = None
    max_step_tokens: int | None = None
    max_rows: int | None = None
    kv: str | None = None
    mtp: bool = False
    """Whether the checkpoint's multi-token-prediction layer is compiled too."""
    draft_head: Path | None = None
    """An EAGLE-3 head that is compiled with the checkpoint."""
    device: tuple[str, ...] = ()
    """Extra command line flags for the device of this machine."""

    def arguments(self) -> list[str]:
        """The options as command line arguments of the compiler."""
        words = ["--target", self.target or TARGET]
        words += ["--quant", self.quant] if self.quant else []
        words += ["--kv", self.kv] if self.kv else []
        for name in ("context", "max_batch", "max_step_tokens", "max_rows"):
            value = getattr(self, name)
            words += [f"--{name.replace('_', '-')}", str(value)] if value else []
        words += [*self.device, *(["--mtp"] if self.mtp else [])]
        return [*words, *(["--draft-head", str(real(self.draft_head))] if self.draft_head else [])]


@dataclass(frozen=True)
class Entry:
    """One entry of the cache."""

    folder: Path
    source: dict[str, Any]

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def complete(self) -> bool:
        return (self.model / MANIFEST_NAME).is_file()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


def cache_folder() -> Path:
    """The folder of the cache."""
    return user_folders.cache() / "compiled"


def compiled(model: str, options: CompileOptions, say: Callable[[str], None]) -> Path:
    """The folder of the compiled model; a checkpoint is compiled unless it is cached. say: called
    with progress messages.

    Raises ArtifactError or CheckpointError if `model` is neither a compiled model nor a checkpoint,
    or if the compiler fails.
    """
    if is_compiled(model):
        _check_unused(model, options)
        return Path(model)
    source: dict[str, Any] = {"model": _absolute(model), "files": fingerprint(model)}
    source |= {"options": options.arguments(), "mlcc": __version__, "abi": _abi()}
    if options.draft_head is not None:
        source["draft_head"] = fingerprint(str(options.draft_head))
    source["compiler"] = sources_stamp(_edited_packages())
    key = hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rpartition("/")[2]) or "model"
    entry = Entry(cache_folder() / f"{name[:_NAME]}-{key}", source)
    with _usable():
        complete = entry.complete
    if not complete:
        _compile(model, options, entry, say)
    return entry.model


def check_exists(model: str) -> None:
    """Raises CheckpointError if `model` is neither a compiled model nor a checkpoint."""
    if not is_compiled(model):
        fingerprint(model)


def is_compiled(model: str) -> bool:
    """Whether `model` is the folder of a compiled model."""
    return not model.startswith(_HUB) and (Path(model) / MANIFEST_NAME).is_file()


def fingerprint(model: str) -> list[tuple[str, int, int]]:
    """Name, size and mtime of every file of a checkpoint, and of the vision towers beside a GGUF
    file; [] for one on the Hub.

    Raises CheckpointError if `model` is not a checkpoint.
    """
    path = Path(model)
    if model.startswith(_HUB):
        return []
    if files := gguf_files(path):
        beside = path.parent.glob("*.gguf") if path.is_file() else ()
        towers = sorted(file for file in beside if "mmproj" in file.name.lower())
        return [_stamp(file, file.name) for file in dict.fromkeys([*files, *towers])]
    if (path / "config.json").is_file():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return [_stamp(file, file.relative_to(path).as_posix()) for file in files]
    what = "has neither mlcc.json nor config.json" if path.exists() else "does not exist"
    raise CheckpointError(
        f"{model}: {what}; give a folder made by `mlcc compile`, a Hugging Face folder, a "
        "GGUF file or hf://org/name"
    )


def gguf_files(path: Path) -> list[Path]:
    """The GGUF files of a model: a file with its other parts, or all files of a folder that has no
    config.json; [] if it is neither. Does not read them."""
    if path.is_file() and (path.suffix == ".gguf" or begins_with(path, b"GGUF")):
        stem, split, count = path.stem.rpartition("-of-")
        first = re.fullmatch(r"(.*-)\d{5}", stem, re.DOTALL) if split else None
        if first is None:
            return [path]
        end = f"{count}.gguf"
        beside = (file for file in path.parent.iterdir() if file.name.endswith(end))
        return sorted(file for file in beside if file.name.startswith(first[1]))
    if not path.is_dir() or (path / "config.json").exists():
        return []
    return sorted(file for file in path.iterdir() if file.suffix == ".gguf" and file.is_file())


def sources_stamp(packages: Sequence[Path]) -> str:
    """A hash that changes with every edit of a file of these packages; "" for none."""
    files = [p for package in packages for p in package.rglob("*") if p.suffix != ".pyc"]
    stamps = sorted(_stamp(path, str(path)) for path in files if path.is_file())
    return hashlib.sha256(repr(stamps).encode()).hexdigest()[:16] if stamps else ""


def entries() -> Iterator[Entry]:
    """All entries, including incomplete ones."""
    folder = cache_folder()
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_dir():
            yield Entry(path, _read_source(path))


def remove(entry: Entry) -> bool:
    """Delete an entry; returns False if it is being compiled."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(entry.folder / _LOCK, timeout=0):
            # No compile may begin in a deleted folder. Windows keeps the lock's open file.
            shutil.rmtree(entry.folder, ignore_errors=os.name == "nt")
    except Timeout:
        return False
    if os.name == "nt":
        shutil.rmtree(entry.folder)
    return True


def _compile(model: str, options: CompileOptions, entry: Entry, say: Callable[[str], None]) -> None:
    require("tvm", "compile", f"{model} is not compiled, and compiling it")
    from filelock import FileLock, Timeout

    lock = FileLock(entry.folder / _LOCK)
    with _usable():
        entry.folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say("another process compiles this model; waiting for it")
            lock.acquire()
    try:
        if entry.complete:
            return
        with _usable():
            entry.folder.mkdir(exist_ok=True)  # `remove` may have held the lock
            _check_disk(entry)
            text = json.dumps(entry.source, indent=1)
            (entry.folder / SOURCE_NAME).write_text(text, encoding="utf-8")
        _run_compiler(model, options, entry)
    finally:
        failed = not entry.complete
        if failed:
            _discard(entry)
        lock.release()
        if failed and os.name == "nt":  # which keeps the lock's open file
            _discard(entry)


def _discard(entry: Entry) -> None:
    """Remove the remains of a failed compile."""
    shutil.rmtree(entry.folder, ignore_errors=True)


def _run_compiler(model: str, options: CompileOptions, entry: Entry) -> None:
    from mlcc.model_cache.child_process import call

    command = [sys.executable, "-m", "mlcc_compiler", "compile", model, *options.arguments()]
    command += ["-o", str(entry.model)]
    if (options.target or TARGET) == "cpu":  # for this machine's alone: the folder stays here
        command += ["--cpu", "host"]
    # The runtime's mode of TVM has no compiler. It writes to our stderr; stdout is for the answer.
    environment = {key: os.environ[key] for key in os.environ if key != "TVM_USE_RUNTIME_LIB"}
    with tempfile.TemporaryDirectory() as folder:
        reason = Path(folder) / "error"
        note = f"{model} is not compiled yet: compiling it once into {entry.folder}"
        code = call(command, {**environment, "MLCC_ERROR_FILE": str(reason), FIRST_NOTE: note})
        if code == MlccError.exit_code and reason.exists():
            text = reason.read_text(encoding="utf-8")
            if _FULL.search(text):
                raise CapacityError(f"{text}; the cache is {cache_folder()}: {_MORE_SPACE}")
            raise ArtifactError(text)
    if code != 0 or not entry.complete:
        raise ArtifactError(
            f"compiling {model} ended with exit code {code} before it was done; try "
            f"`mlcc compile {model} --verbose`, which shows how far it comes"
        )


def _check_unused(model: str, options: CompileOptions) -> None:
    """Raises UnsupportedError for compile options of an already compiled model."""
    given = {"--target": options.target, "--quant": options.quant}
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise UnsupportedError(
            f"{model} is compiled already, so {' and '.join(names)} cannot be obeyed; leave it out "
            "or give the checkpoint"
        )
    check_head_unused(model, options.draft_head)


def check_head_unused(model: str, head: Path | None) -> None:
    """Raises UnsupportedError if a head is given for an already compiled model."""
    if head is not None:
        raise UnsupportedError(
            f"{model} is compiled already, and --draft {head} is an EAGLE-3 head, which reads the "
            f"model's hidden states and is compiled with it: give the checkpoint, or type "
            f"`mlcc compile {head} --for CHECKPOINT`, and serve that folder with --speculate mtp"
        )


def _check_disk(entry: Entry) -> None:
    """Raises CapacityError if the disk has less space than the checkpoint's size."""
    needed = sum(size for _, size, _ in entry.source["files"])
    free = shutil.disk_usage(entry.folder).free
    if free < needed:
        needs, has = apart(needed, free)
        raise CapacityError(
            f"{entry.folder} may need {needs} and the disk has {has} free; {_MORE_SPACE}"
        )


@contextmanager
def _usable() -> Iterator[None]:
    """Turn errors of the operating system in the cache folder into one line."""
    try:
        yield
    except OSError as error:
        raise MlccError(
            f"{cache_folder()} cannot be used as the cache ({error.strerror or error}); set "
            "XDG_CACHE_HOME to a folder that you may write to"
        ) from error


def _stamp(path: Path, name: str) -> tuple[str, int, int]:
    status = path.stat()
    return (name, status.st_size, status.st_mtime_ns)


def _abi() -> str:
    """The ABI hash of this installation."""
    return abi_hash(TVM, TVM_FFI)


def _edited_packages() -> list[Path]:
    """The compiler's packages if they run from a source tree, where the version does not change."""
    import sysconfig  # imported late: not needed for compiled models

    specs = [find_spec(name) for name in ("mlcc_compiler", "mlcc_targets")]
    folders = [Path(spec.origin).parent for spec in specs if spec and spec.origin]
    installed = Path(sysconfig.get_path("purelib"))
    return [folder for folder in folders if not folder.is_relative_to(installed)]


def _absolute(model: str) -> str:
    return model if model.startswith(_HUB) else str(real(Path(model)))


def _read_source(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / SOURCE_NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
