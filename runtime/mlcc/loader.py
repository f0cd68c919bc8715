"""Opens a compiled model: its text side, and the executor of its device.

Only this module selects executors: `model/` knows the `Executor` protocol, and `device/` does not
know artifacts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mlcc.artifact.folder import Artifact
from mlcc.artifact.kv_format import check_kv, kv_identity
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import AudioInfo, AudioInputInfo, TargetInfo, VisionInfo
from mlcc.device.compiled_model import CompiledModel
from mlcc.device.device import DeviceHandle
from mlcc.device.threads import set_threads
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.batch.executor import Executor
from mlcc.engine.spec_decode.draft_model import shared_group
from mlcc.engine_args import EngineArgs
from mlcc.errors import ArtifactError, CapacityError, DeviceError, UnsupportedError
from mlcc.model.audio_tower import AudioTower, ClipTower, Towers
from mlcc.model.memory.expert_offload import fit_or_offload
from mlcc.model.memory.page_budget import grow_pools, memory_share, with_pages
from mlcc.model.memory.planner import needed_bytes, plan_capacity
from mlcc.model.model import Model, Tower
from mlcc.model.speculation import check_draft
from mlcc.model.text import text_of
from mlcc.model.tokenizer.tokenizer import TextTokenizer
from mlcc.model.vision_tower import VisionTower
from mlcc.util import executor_library
from mlcc.util.extras import is_here, require
from mlcc.util.memory import DeviceMemory, available_bytes

Progress = Callable[[int, int], None]
"""(bytes done, total bytes)"""


class LoadProgress:
    """Progress of two readings as one: the files' hashes, unless they were checked before, then the
    weights."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._hashed = 0

    def hashing(self, done: int, total: int) -> None:
        """The files are about as large as the weights, which follow."""
        self._hashed = total
        self._progress(done, 2 * total)

    def weights(self, done: int, total: int) -> None:
        self._progress(self._hashed + done, self._hashed + total)


DEFAULTS = EngineArgs()


def open_model(
    path: Path,
    args: EngineArgs = DEFAULTS,
    *,
    tokenizer: TextTokenizer | None = None,
    progress: Progress = lambda done, total: None,
) -> Model:
    """Open a compiled model on this machine. `path`: its folder; `args.model` is ignored.

    tokenizer: replaces the one that reads tokenizer.json. The number of threads (`args.threads`)
    must be set before tvm is imported, so open models before that. Raises ArtifactError,
    CapacityError, DeviceError, and UnsupportedError for speculation that the model cannot do.
    `progress` gets the bytes that have been read, hashed or placed, and all.
    """
    reading = LoadProgress(progress)
    artifact = Artifact.open(path, progress=reading.hashing)
    check_kv(artifact.manifest, args.kv)
    speculation, prefix_cache = args.speculation, args.prefix_cache
    if artifact.manifest.encoder is not None:
        if speculation is not None or args.draft is not None:
            raise UnsupportedError(
                f"{path}: is an encoder, which has no speculation; leave out "
                "--speculate and --draft"
            )
        prefix_cache = False
    is_model = args.draft is not None and args.draft_head is None  # a head is in the artifact
    draft = Artifact.open(args.draft) if args.draft is not None and is_model else None
    if draft is not None:
        check_draft(draft, artifact)
    notes = list(artifact.notes)
    # A draft model's pages take the memory that the prefix cache would fill.
    loaded = replace(args, prefix_cache=prefix_cache and draft is None)
    tower = _open_towers(artifact, args)  # first: its memory is not the prefix cache's
    beside = tower_bytes(artifact)
    executor = open_executor(
        artifact, loaded, note=notes.append, progress=reading.weights, beside=beside
    )
    if speculation is not None:
        speculation.check(executor.capacity)
    draft_executor = None
    if draft is not None:
        layout, capacity = draft.manifest.layout, executor.capacity
        group = shared_group(layout.groups, capacity.groups)
        alike = EngineArgs(threads=args.threads, device=args.device, prefix_cache=False)
        draft_executor = open_executor(draft, alike, pages=capacity.pools[group], note=notes.append)
    text = text_of(artifact, tokenizer)
    text = replace(text, notes=(*text.notes, *notes))
    adapters, identity = artifact.manifest.adapters, kv_identity(artifact.manifest)
    return Model(
        text, executor, prefix_cache, speculation, draft_executor, adapters, tower, identity
    )


def tower_bytes(artifact: Artifact) -> int:
    """What the model's towers take beside it: weights, workspace and caches; 0 = none."""
    folders = [artifact.folder / info.folder for info in tower_infos(artifact.manifest)]
    found = [Artifact.open(folder, verify=False).manifest for folder in folders]
    return sum(needed_bytes(plan_capacity(manifest), manifest) for manifest in found)


def tower_infos(manifest: Manifest) -> list[VisionInfo | AudioInfo | AudioInputInfo]:
    """The records of the model's towers."""
    found = (manifest.vision, manifest.audio, manifest.audio_input)
    return [info for info in found if info is not None]


def _open_towers(artifact: Artifact, args: EngineArgs) -> Tower | None:
    """The model's towers on the same device; None = it reads text only."""
    found = [_open_tower(artifact, info, args) for info in tower_infos(artifact.manifest)]
    return Towers(found) if len(found) > 1 else next(iter(found), None)


def _open_tower(
    artifact: Artifact, info: VisionInfo | AudioInfo | AudioInputInfo, args: EngineArgs
) -> VisionTower | AudioTower | ClipTower:
    tower = Artifact.open(artifact.folder / info.folder)
    if tower.manifest.encoder is None:
        raise ArtifactError(f"{tower.folder}: is no tower; compile the model again")
    own = EngineArgs(
        threads=args.threads,
        device=args.device,
        prefix_cache=False,
        memory=args.memory,
        memory_bytes=args.memory_bytes,
    )
    executor = open_executor(tower, own)
    width = tower.manifest.encoder.width
    if isinstance(info, AudioInfo):
        return AudioTower(executor, info, width)
    if isinstance(info, AudioInputInfo):
        return ClipTower(executor, info, width)
    return VisionTower(executor, info, width)


def opener(path: Path, args: EngineArgs) -> Callable[..., Model]:
    """A picklable function that opens the model at `path` with `args`, in this process or another.
    It takes `device`, which replaces that of `args`, and `progress`."""
    return partial(_open_on, path, args)


def _open_on(path: Path, args: EngineArgs, device: int | None = None, **given: Any) -> Model:
    return open_model(path, args if device is None else replace(args, device=device), **given)


def open_executor(
    artifact: Artifact,
    args: EngineArgs = DEFAULTS,
    *,
    pages: int | None = None,
    note: Callable[[str], None] = lambda text: None,
    progress: Progress = lambda done, total: None,
    beside: int = 0,
) -> Executor:
    """Load library and weights. `note` receives a message if less than requested fits in memory,
    `progress` the number of bytes of weights on the device. pages: exact number of pages of each
    cache group, for a draft model, which needs as many as its target model. beside: bytes of the
    same memory that a vision tower takes as it runs.

    Raises ArtifactError, CapacityError, DeviceError, UnsupportedError.
    """
    manifest = artifact.manifest
    if manifest.target.device == "numpy":
        require("numpy", "reference", f"target '{manifest.target.name}'")
        _refuse_for_numpy(artifact, threads=args.threads, device=args.device)
    capacity = plan_capacity(
        manifest,
        max_batch=args.max_batch,
        context=args.context,
        max_step_tokens=args.max_step_tokens,
        max_rows=args.max_rows,
    )
    capacity = with_pages(capacity, args.kv_pages)
    if pages is not None:
        capacity = replace(capacity, pools=(pages,) * len(capacity.pools))

    streamed = False
    ranks = manifest.ranks.count if manifest.ranks else 1
    on_cpu = manifest.target.device == "cpu"

    def fitted(found: DeviceMemory) -> Capacity:
        """The capacity that fits; notes it if it is less than requested."""
        nonlocal streamed
        offered = memory_share(_memory_of(found, args.memory_bytes), args.memory)
        offered = offered.per_rank(ranks if on_cpu else 1)
        if manifest.target.device in ("cpu", "numpy") or args.memory_bytes is not None:
            # Else the device's free memory was measured with the tower on it.
            offered = replace(offered, reserve_bytes=offered.reserve_bytes + beside)
        plan = fit_or_offload(capacity, manifest, offered, fixed=args.context is not None)
        if pages is not None and plan.capacity.pools != capacity.pools:
            raise CapacityError(
                f"the draft model's {pages} pages, as many as the model has, do not fit beside it; "
                "lower --kv-pages or --max-batch, or leave out --draft"
            )
        if plan.note:
            note(plan.note)
        streamed = plan.streamed
        if not args.prefix_cache or args.kv_pages is not None:
            return plan.capacity
        return grow_pools(plan.capacity, manifest, offered, args.memory)

    if manifest.target.device == "numpy":
        return _reference(artifact, fitted(DeviceMemory(available_bytes())))
    count = set_threads(args.threads)
    if ranks > 1 and not on_cpu:
        handles = [
            device_handle(manifest.target, (args.device or 0) + rank) for rank in range(ranks)
        ]
        least = min(
            (handle.memory for handle in handles), key=lambda memory: memory.free_bytes or 0
        )
        return _gpu_ranks(artifact, fitted(least), handles, progress)
    handle = device_handle(manifest.target, args.device)
    if handle.note:
        note(handle.note)
    planned = fitted(handle.memory)
    if ranks > 1:
        return _ranked(artifact, planned, count, progress)
    model = compiled_model(artifact, streamed=streamed)
    return executor_of(model, planned, handle, count if handle.kind == "cpu" else 1, progress)


def compiled_model(artifact: Artifact, rank: int = 0, *, streamed: bool = False) -> CompiledModel:
    """The artifact's library and the weights of a rank, as executors open them. Raises
    ArtifactError."""
    manifest = artifact.manifest
    return CompiledModel(
        artifact.library_path,
        list(artifact.weights(rank).values()),
        manifest.caches,
        tuple(manifest.functions),
        manifest.interface,
        manifest.adapters,
        str(manifest.target.options.get("linked_prefix", "")),
        manifest.embeddings,
        streamed,
    )


def device_handle(target: TargetInfo, wanted: int | None) -> DeviceHandle:
    """The device for a target's libraries. Raises DeviceError."""
    if target.device != "cpu":
        from mlcc.device.select import select_device

        return select_device(target, wanted)
    if wanted is not None:
        raise DeviceError(f"target '{target.name}' runs on the CPU; leave out --device")
    return DeviceHandle("cpu", 0, DeviceMemory(available_bytes(), mapped=True))


def _memory_of(found: DeviceMemory, given: int | None) -> DeviceMemory:
    """The memory limit set by the host program, or the system's."""
    if given is None:
        return found
    why = "the program gives it {}"
    return DeviceMemory(given, found.tensor_bytes, why, reserve_bytes=0, mapped=found.mapped)


def _refuse_for_numpy(artifact: Artifact, **options: int | None) -> None:
    for name, value in options.items():
        if value is not None:
            raise UnsupportedError(
                f"{artifact.folder}: compiled for '{artifact.manifest.target.name}', which numpy "
                f"computes, so --{name} cannot be obeyed; leave it out"
            )


def executor_of(
    model: CompiledModel,
    capacity: Capacity,
    handle: DeviceHandle,
    threads: int = 1,
    progress: Progress = lambda done, total: None,
) -> Executor:
    """The executor of a compiled library on its device: libmlcc_executor. CUDA and Metal use TVM's
    package; so do CPU libraries where libmlcc_executor was not built (a source install without a
    C++ compiler).

    Raises ArtifactError, CapacityError, DeviceError.
    """
    absent = executor_library.why_absent()
    if handle.kind in executor_library.DEVICES and not absent:
        from mlcc.device.compiled.executor import CompiledExecutor

        return CompiledExecutor(model, capacity, handle, threads, progress)
    if handle.kind == "cpu" and not is_here("tvm"):
        raise DeviceError(absent)
    from mlcc.device.tvm.executor import TvmExecutor

    return TvmExecutor(model, capacity, handle, progress)


def _ranked(artifact: Artifact, capacity: Capacity, threads: int, progress: Progress) -> Executor:
    """The executor of a model computed by several processes. Raises ArtifactError, CapacityError,
    DeviceError."""
    if absent := executor_library.why_absent():
        raise DeviceError(absent)
    from mlcc.device.parallel.cpu_executor import RankedExecutor

    return RankedExecutor(_models_of_ranks(artifact), capacity, threads, progress)


def _gpu_ranks(
    artifact: Artifact, capacity: Capacity, handles: Sequence[DeviceHandle], progress: Progress
) -> Executor:
    """The executor of a model computed by several GPUs. Raises ArtifactError, CapacityError,
    DeviceError."""
    from mlcc.device.parallel.experimental.gpu_executor import RankedGpuExecutor

    return RankedGpuExecutor(_models_of_ranks(artifact), capacity, handles, progress)


def _models_of_ranks(artifact: Artifact) -> list[CompiledModel]:
    ranks = artifact.manifest.ranks
    assert ranks is not None
    return [
        replace(compiled_model(artifact, rank), adapters=None, linked="")  # ranks have neither
        for rank in range(ranks.count)
    ]


def _reference(artifact: Artifact, capacity: Capacity) -> Executor:
    from mlcc.artifact.arrays import mapped
    from mlcc.device.reference.executor import ReferenceExecutor

    weights, manifest = mapped(artifact.weights()), artifact.manifest
    try:
        graph = json.loads(artifact.library_path.read_text(encoding="utf-8"))
        return ReferenceExecutor(
            graph,
            weights,
            capacity,
            manifest.caches,
            manifest.activation_dtype,
            manifest.adapters,
            manifest.embeddings,
            manifest.audio.first_timestamp if manifest.audio else 0,
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(
            f"{artifact.library_path}: is no graph of a model ({error}); compile the model again"
        ) from error
