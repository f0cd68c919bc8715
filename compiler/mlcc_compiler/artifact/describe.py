"""Builds the manifest of an artifact from the plan of its compile."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import TypeVar

from mlcc.artifact.manifest import Manifest, abi_hash
from mlcc.artifact.schema import (
    AdaptersInfo,
    AdapterSite,
    AudioInfo,
    AudioInputInfo,
    LibraryInfo,
    MemoryPlan,
    ModelInfo,
    QuantizationInfo,
    RanksInfo,
    TargetInfo,
    ToolVersions,
    VisionInfo,
    WeightsInfo,
    tables_of,
)
from mlcc.version import __version__
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.plan import Plan
from mlcc_targets import Target

Info = TypeVar("Info", VisionInfo, AudioInfo, AudioInputInfo)


@dataclass(frozen=True)
class BuiltLibrary:
    """A plan whose library is written or being written, its weights' layouts and a step's
    memory."""

    plan: Plan
    weights: list[WeightPlan]
    functions: tuple[str, ...]
    workspace_bytes: int
    largest_array: int
    """Bytes of the largest array that a step makes for its kernels."""
    sites: tuple[AdapterSite, ...] = ()


def library_abi() -> str:
    """The runtime interface that a library compiled here requires."""
    return abi_hash(version("apache-tvm"), version("apache-tvm-ffi"))


def manifest_of(
    built: BuiltLibrary, weights: WeightsInfo, licence: str | None, ranks: RanksInfo | None = None
) -> Manifest:
    """The manifest of one library, except its list of files."""
    plan, checkpoint, target = built.plan, built.plan.checkpoint, built.plan.target
    caches = plan.caches.infos(plan.pools, target.page_form)
    adapters = plan.adapters(built.sites)
    return Manifest(
        abi=library_abi(),
        model=ModelInfo(
            name=checkpoint.name,
            architecture=plan.config.architecture,
            config=checkpoint.config,
            vocab_size=plan.vocab_size,
            eos_token_ids=checkpoint.eos_token_ids,
            special_tokens=checkpoint.special_tokens,
            licence=licence,
            parameters=plan.parameters,
        ),
        quantization=quantization_info(plan),
        target=target_info(
            target,
            _largest_argument(built, weights, adapters),
            plan.static_row,
            packed_dot=target.packed_dot and plan.activation_bits == 8,
        ),
        library=LibraryInfo(path=target.library, kind=target.library.rpartition(".")[2]),
        functions=built.functions,
        caches=caches,
        limits=plan.limits,
        tables=tables_of(plan.layout),
        adapters=adapters,
        encoder=plan.encoder,
        ranks=ranks,
        embeddings=plan.embeddings,
        token_columns=plan.token_columns,
        vision=_tower_info(plan, VisionInfo),
        audio=_tower_info(plan, AudioInfo),
        audio_input=_tower_info(plan, AudioInputInfo),
        activation_dtype=plan.config.activation_dtype,
        weights=weights,
        memory=MemoryPlan(
            weights_bytes=sum(tensor.nbytes for tensor in weights.tensors),
            cache_bytes=sum(cache.pool * cache.bytes_per_page for cache in caches),
            workspace_bytes=built.workspace_bytes
            + (plan.embeddings.nbytes if plan.embeddings else 0),
        ),
        tools=ToolVersions(
            mlcc=__version__,
            tvm=version("apache-tvm"),
            tvm_ffi=version("apache-tvm-ffi"),
            python=platform.python_version(),
        ),
    )


def _tower_info(plan: Plan, kind: type[Info]) -> Info | None:
    """The record of the model's tower of this kind; None = it has none."""
    return next((tower.info for tower in plan.towers if isinstance(tower.info, kind)), None)


def quantization_info(plan: Plan) -> QuantizationInfo:
    """The recipe, the bits it comes to for this model, and the calibration."""
    options = {
        **asdict(plan.options.recipe),
        "linear_bits": plan.bits(tables=False),
        "table_bits": plan.bits(tables=True),
    }
    if plan.options.recipe.keeps:  # the checkpoint's schemes, not those of the recipe for the rest
        head = plan.used_schemes(tables=True)
        options |= {"linear": plan.used_schemes(tables=False), "embedding": head, "head": head}
    if (bits := plan.activation_bits) is not None:
        options["activation_bits"] = bits
    if plan.options.bits is not None:
        options["bits"] = plan.options.bits
    if plan.options.calibrate is not None:
        options["calibrated"] = Path(plan.options.calibrate).name
    return QuantizationInfo(name=plan.options.quant, options=options)


def _largest_argument(
    built: BuiltLibrary, weights: WeightsInfo, adapters: AdaptersInfo | None
) -> int:
    """Bytes of the largest argument of a kernel but for pages, which fit the device when opened."""
    slots = (4 * prod(shape) for shape in adapters.shapes) if adapters else ()
    return max((built.largest_array, *(tensor.nbytes for tensor in weights.tensors), *slots))


def target_info(
    target: Target,
    largest_argument: int,
    static: Target | None = None,
    packed_dot: bool = False,
) -> TargetInfo:
    """The row as a manifest holds it. largest_argument: bytes that a device must bind at least;
    static: the row of a static library beside it; packed_dot: whether kernels use it."""
    limits = dict(target.limits)
    if "storage_binding_bytes" in limits:
        limits["storage_binding_bytes"] = largest_argument
    return TargetInfo(
        name=target.name,
        device=target.device,
        arch=target.arch,
        triple=target.triple
        or (f"{target.arch}-{platform.system().lower()}" if target.arch else ""),
        cpu=target.cpu,
        features=target.features,
        options={
            "vector_bits": target.vector_bits,
            "f16": target.f16,
            **limits,
            **({"packed_dot": True} if packed_dot else {}),
            **({"archs": list(target.archs)} if target.archs else {}),
            **({"symbol_prefix": target.symbol_prefix} if target.symbol_prefix else {}),
            **_static_options(target, static),
        },
    )


def _static_options(target: Target, static: Target | None) -> dict[str, str]:
    """Name and symbol prefix of the library that programs link: the static one beside the target's,
    or the target's own where that is static."""
    if static is None and target.symbol_prefix and target.kernels == "cpu":
        static = target
    if static is None:
        return {}
    return {"static_library": static.library, "linked_prefix": static.symbol_prefix}
