"""From an opened artifact to the executor of its device. The only place that chooses one."""

from __future__ import annotations

import json
from collections.abc import Callable

from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.device import executor_library
from mlcc.device.executor import Executor
from mlcc.engine.batch import Capacity
from mlcc.errors import ArtifactError, DeviceError, UnsupportedError
from mlcc.model.memory import Room, available_bytes, fit, plan_capacity

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)"""


def open_executor(
    artifact: Artifact,
    *,
    threads: int | None,
    max_batch: int | None,
    context: int | None,
    max_step_tokens: int | None = None,
    max_rows: int | None = None,
    device: int | None = None,
    note: Callable[[str], None] = lambda text: None,
    progress: Progress = lambda done, total: None,
) -> Executor:
    """Load the library and the weights. `note` hears if less than asked for fits in memory,
    `progress` how many bytes of weights are on the device.

    Raises ArtifactError, CapacityError, DeviceError, UnsupportedError.
    """
    manifest = artifact.manifest
    if manifest.target.device == "numpy":
        _refuse_for_numpy(artifact, threads=threads, device=device)
    capacity = plan_capacity(
        manifest,
        max_batch=max_batch,
        context=context,
        max_step_tokens=max_step_tokens,
        max_rows=max_rows,
    )
    if manifest.target.device == "numpy":
        room = Room(available_bytes())
        return _reference(artifact, _fitted(capacity, manifest, room, context, note))
    if manifest.target.device == "cpu" and not executor_library.why_absent():
        if device is not None:
            raise DeviceError("target 'cpu' runs on the CPU; leave out --device")
        room = Room(available_bytes())
        return _cpu(artifact, _fitted(capacity, manifest, room, context, note), threads)
    from mlcc.artifact.arrays import mapped
    from mlcc.device.choose import place_for
    from mlcc.device.native import NativeExecutor
    from mlcc.device.tvm_runtime import set_threads

    set_threads(threads)
    place = place_for(manifest.target, device)
    if place.note:
        note(place.note)
    return NativeExecutor(
        artifact.library_path,
        list(mapped(artifact.weights()).values()),
        manifest.caches,
        _fitted(capacity, manifest, place.room, context, note),
        manifest.functions,
        place,
        progress,
        manifest.interface,
    )


def _fitted(
    capacity: Capacity,
    manifest: Manifest,
    room: Room,
    context: int | None,
    note: Callable[[str], None],
) -> Capacity:
    """What fits; says so if it is less than asked for."""
    plan = fit(capacity, manifest, room, fixed=context is not None)
    if plan.note:
        note(plan.note)
    return plan.capacity


def _refuse_for_numpy(artifact: Artifact, **options: int | None) -> None:
    for name, value in options.items():
        if value is not None:
            raise UnsupportedError(
                f"{artifact.folder}: compiled for '{artifact.manifest.target.name}', which numpy "
                f"computes, so --{name} cannot be obeyed; leave it out"
            )


def _cpu(artifact: Artifact, capacity: Capacity, threads: int | None) -> Executor:
    from mlcc.device.cpu import CpuExecutor
    from mlcc.device.threads import kernel_threads

    manifest = artifact.manifest
    return CpuExecutor(
        artifact.library_path,
        list(artifact.weights().values()),
        manifest.caches,
        capacity,
        manifest.functions,
        kernel_threads(threads),
        manifest.interface,
    )


def _reference(artifact: Artifact, capacity: Capacity) -> Executor:
    from mlcc.artifact.arrays import mapped
    from mlcc.device.reference import ReferenceExecutor

    weights, manifest = mapped(artifact.weights()), artifact.manifest
    try:
        graph = json.loads(artifact.library_path.read_text(encoding="utf-8"))
        return ReferenceExecutor(
            graph, weights, capacity, manifest.caches, manifest.activation_dtype
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(
            f"{artifact.library_path}: is no graph of a model ({error}); compile the model again"
        ) from error
