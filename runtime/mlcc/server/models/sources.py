"""Model sources: compiled models that the server may load, with their names and memory needs. Reads
manifests; opens no library and no weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from mlcc.api.openai.models import ModelInfo
from mlcc.artifact.expert_weights import expert_bytes
from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME, TargetInfo
from mlcc.engine.batch.batch import Capacity
from mlcc.engine_args import EngineArgs
from mlcc.errors import ArtifactError, InvalidRequestError
from mlcc.loader import opener, tower_bytes
from mlcc.model.memory.expert_offload import fit_or_offload
from mlcc.model.memory.page_budget import MOST, with_pages
from mlcc.model.memory.planner import (
    fit,
    needed_bytes,
    plan_capacity,
)
from mlcc.model.text import model_about, open_text
from mlcc.server.prompts.prompt_worker import OpenText
from mlcc.util.memory import RESERVE_BYTES, DeviceMemory, available_bytes
from mlcc.worker.worker import OpenModel

NO_PARSERS: Mapping[str, str | None] = {}
MEMORY = "memory"
"""Device name of main memory, used by CPU models."""


@dataclass(frozen=True)
class Needs:
    """Bytes that one model needs, with its processes."""

    full: int
    """Bytes for a full batch."""
    spare: int
    """Upper bound: more memory is of no use to it."""


@dataclass(frozen=True)
class Source:
    """A model that can be loaded."""

    name: str
    context: int
    device: str
    """The device whose memory it uses."""
    needs: Needs
    fits: Callable[[int], None]
    """Raises CapacityError if this number of bytes is too small, even with fewer pages."""
    opener: Callable[[int | None], OpenModel]
    """Returns the function that opens it within a number of bytes; None = no limit is known."""
    open_text: OpenText
    room: Callable[[], int | None]
    """Returns the bytes that are free on its device now; None = unknown. May start a GPU driver:
    call it in another process."""
    streams: Callable[[int], None] | None = None
    """`fits` with experts offloaded to their file (`model/memory/expert_offload.py`); None = not
    possible."""
    info: ModelInfo = field(default_factory=ModelInfo)
    aliases: tuple[str, ...] = ()
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


def artifact_source(
    path: Path,
    args: EngineArgs,
    parse_special: bool = False,
    parsers: Mapping[str, str | None] = NO_PARSERS,
) -> Source:
    """Create the source of a compiled model. Raises ArtifactError, or CapacityError for sizes that
    it was not compiled for."""
    artifact = Artifact.open(path, verify=False)
    manifest = artifact.manifest
    capacity = plan_capacity(
        manifest,
        max_batch=args.max_batch,
        context=_clip_context(args.context, manifest.limits.context),
        max_step_tokens=args.max_step_tokens,
        max_rows=args.max_rows,
    )
    capacity = with_pages(capacity, args.kv_pages)
    tower = tower_bytes(artifact)
    full = needed_bytes(capacity, manifest) + tower + RESERVE_BYTES
    grows = args.prefix_cache and args.kv_pages is None
    caches = needed_bytes(capacity, manifest) - needed_bytes(_without_pages(capacity), manifest)
    return Source(
        name=manifest.model.name,
        context=capacity.context,
        device=_device(manifest.target, args.device),
        needs=Needs(full, full + (MOST - 1) * caches if grows else full),
        fits=partial(_fits, capacity, manifest, args.context is not None, tower),
        streams=_streams(capacity, manifest, args.context is not None),
        opener=partial(_opener, path, args, capacity.context),
        open_text=partial(open_text, path, parse_special=parse_special, **parsers),
        info=model_about(manifest, artifact.generation_config),
        room=partial(_room, manifest.target, args.device),
    )


def models_in_folder(folder: Path) -> list[Path]:
    """Return the compiled models in a folder, one level down. Raises ArtifactError if there are
    none."""
    try:
        found = sorted(path.parent for path in folder.glob(f"*/{MANIFEST_NAME}"))
    except OSError as error:
        raise ArtifactError(f"{folder}: cannot be read ({error.strerror})") from error
    if not found:
        raise ArtifactError(
            f"{folder}: holds no folder made by `mlcc compile`; give one that does, or the models "
            "themselves (`mlcc serve A B`)"
        )
    return found


def with_names(
    sources: Mapping[str, Source], aliases: Sequence[tuple[str, str | None]]
) -> list[Source]:
    """Apply aliases to sources: pairs (alias, model), where model None = the only model.

    Models of one name are named after their folders. Raises InvalidRequestError for a name that
    is unknown or ambiguous.
    """
    named = _distinct(sources)
    key_of = {known: key for key, source in named.items() for known in (source.name, key)}
    for alias, model in aliases:
        if model is None and len(named) > 1:
            names = ", ".join(source.name for source in named.values())
            raise InvalidRequestError(
                f"--alias {alias}: there are several models ({names}); type --alias {alias}=MODEL"
            )
        key = next(iter(named)) if model is None else key_of.get(model)
        if key is None:
            names = ", ".join(source.name for source in named.values())
            raise InvalidRequestError(f"--alias {alias}={model}: the models here are {names}")
        named[key] = replace(named[key], aliases=(*named[key].aliases, alias))
    taken: dict[str, str] = {}
    for source in named.values():
        for name in source.names:
            if name in taken:
                raise InvalidRequestError(
                    f"two models would answer to '{name}'; give another --alias, or one of them"
                )
            taken[name] = source.name
    return list(named.values())


def _distinct(sources: Mapping[str, Source]) -> dict[str, Source]:
    names = [source.name for source in sources.values()]
    folders = [Path(key).name for key in sources]
    return {
        key: replace(source, name=_folder_name(Path(key), folders))
        if names.count(source.name) > 1
        else source
        for key, source in sources.items()
    }


def _folder_name(path: Path, folders: Sequence[str]) -> str:
    """The name of a model's folder; of the folder around it if others have it too, as in the cache
    of compiled models (`mlcc list --json` has it as `id`)."""
    return path.name if folders.count(path.name) == 1 else path.parent.name or path.name


def _clip_context(context: int | None, most: int) -> int | None:
    """Clip --context to the model's limit: one option applies to several models."""
    return None if context is None else min(context, most)


def _fits(capacity: Capacity, manifest: Manifest, fixed: bool, tower: int, room: int) -> None:
    fit(capacity, manifest, DeviceMemory(room - tower), fixed=fixed)


def _streams(capacity: Capacity, manifest: Manifest, fixed: bool) -> Callable[[int], None] | None:
    """Return the check for expert offload; None if experts are not memory-mapped."""
    if manifest.target.device != "cpu" or not expert_bytes(manifest.weights.tensors)[0]:
        return None

    def check(room: int) -> None:
        fit_or_offload(capacity, manifest, DeviceMemory(room, mapped=True), fixed=fixed)

    return check


def _opener(path: Path, args: EngineArgs, context: int, memory: int | None) -> OpenModel:
    """Within `memory` bytes. The share of the free memory, `args.memory`, is the budget's."""
    given = replace(
        args,
        context=None if args.context is None else context,
        memory=None,
        memory_bytes=None if memory is None else memory - RESERVE_BYTES,
    )
    return opener(path, given)


def _device(target: TargetInfo, number: int | None) -> str:
    if target.device in ("cpu", "numpy"):
        return MEMORY
    return f"{target.device}:{number or 0}"


def _without_pages(capacity: Capacity) -> Capacity:
    return replace(capacity, pools=(0,) * len(capacity.pools))


def _room(target: TargetInfo, number: int | None) -> int | None:
    if _device(target, number) == MEMORY:
        return available_bytes()
    from mlcc.device.select import select_device

    return select_device(target, number).memory.free_bytes
