"""One compile from end to end: a checkpoint folder in, an artifact folder out.

Reads from top to bottom: plan, check, generate code, convert weights, write. Each step's work is in
its own module; this one only puts them in order and says what it decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mlcc.errors import UnsupportedError
from mlcc.known import remember
from mlcc.manifest import Limits, WeightsInfo, interface_hash
from mlcc_compiler.checkpoint import Checkpoint
from mlcc_compiler.describe import kv_info, library_abi, manifest_of
from mlcc_compiler.graph_json import graph_to_json
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.models.config import DecoderConfig, long_factors
from mlcc_compiler.models.fields import require
from mlcc_compiler.models.layers import named_modules
from mlcc_compiler.models.registry import Architecture, build_model, with_defaults
from mlcc_compiler.package import ArtifactWriter
from mlcc_compiler.passes.auxiliary import add_interface
from mlcc_compiler.passes.lower import WeightPlan
from mlcc_compiler.passes.paged_kv import KvLayout
from mlcc_compiler.pipeline import Bounds, IrDump, Traced, build, lower, trace
from mlcc_compiler.preflight import check_ready
from mlcc_compiler.quantization import Recipe, recipe, scheme, with_head
from mlcc_compiler.quantization.apply import apply_recipe
from mlcc_compiler.reuse import take_weights
from mlcc_compiler.toolchain import missing
from mlcc_compiler.weights.check import check_layers, check_tensors
from mlcc_compiler.weights.convert import arrays_of, plain_layout, specs_of
from mlcc_compiler.weights.names import checkpoint_names
from mlcc_targets import Target

DEFAULT_CONTEXT = 4096
PAGE_SIZE = 16


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a compile may be told. `context` None = the model's own, at most DEFAULT_CONTEXT."""

    quant: str = "q4"
    head: str | None = None
    """A recipe whose head is used for output head and embedding instead of `quant`'s own."""
    context: int | None = None
    max_batch: int = 8
    max_step_tokens: int = 512
    dump_ir: Path | None = None
    reuse_weights: Path | None = None
    """An artifact of the same checkpoint whose weights are stored as this compile would."""

    @property
    def recipe(self) -> Recipe:
        return with_head(recipe(self.quant), self.head)


@dataclass
class Progress:
    """Where a compile tells how far it is; silent by default."""

    decided: Callable[[str, str], None] = lambda what, value: None
    phase: Callable[[str], None] = lambda name: None
    weights: Callable[[int, int], None] = lambda done, total: None


@dataclass(frozen=True)
class Plan:
    """Everything decided before work begins."""

    checkpoint: Checkpoint
    target: Target
    options: Options
    architecture: Architecture
    traced: Traced
    sources: dict[str, str]
    """Name of each of the model's tensors -> its name in the checkpoint."""
    limits: Limits
    kv: KvLayout

    @property
    def config(self) -> DecoderConfig:
        return self.architecture.config

    def on(self, target: Target) -> Plan:
        """The same for an alternative of the target, which says where its phases are dumped."""
        options, dump = self.options, self.options.dump_ir
        return replace(
            self,
            target=_with_name(target, self.checkpoint.name),
            options=replace(options, dump_ir=dump and dump / target.variant),
            kv=KvLayout.of(self.config, PAGE_SIZE, _kv_dtype(target, options)),
        )


@dataclass(frozen=True)
class Built:
    """A plan, whose library is written, and what its weights and its steps need."""

    plan: Plan
    weights: list[WeightPlan]
    workspace_bytes: int


def compile_model(
    checkpoint: Checkpoint, target: Target, out: Path, options: Options, progress: Progress
) -> Path:
    """Compile into `out`; returns it. Raises MlccError, and leaves nothing half-written."""
    plan = make_plan(checkpoint, target, options)
    check_ready(checkpoint, plan.config.vocab_size, plan.sources.values())
    report_plan(plan, progress)
    target.prepare(lambda text: progress.decided("first use", text))
    with ArtifactWriter(out, _weight_bytes(plan)) as writer:
        built = [_build(each, writer, progress) for each in _variants(plan)]
        _check_shared(built)
        weights = _weights(plan, built[0].weights, writer, progress)
        licence = writer.add_checkpoint(checkpoint)
        first, *others = (manifest_of(b.plan, weights, b.workspace_bytes, licence) for b in built)
        names = (f"mlcc.{other.variant}.json" for other in target.alternatives)
        writer.finish(first, dict(zip(names, others, strict=True)))
    remember(writer.out)
    return writer.out


def _variants(plan: Plan) -> list[Plan]:
    """The plan, and those of the libraries that are put beside it."""
    return [plan, *(plan.on(target) for target in plan.target.alternatives)]


def _build(plan: Plan, writer: ArtifactWriter, progress: Progress) -> Built:
    library = writer.path(plan.target.library)
    for name in plan.target.extra_files:
        writer.path(name)
    if plan.target.device == "numpy":
        return Built(plan, _reference_library(plan, library), 0)
    return Built(plan, *_native_library(plan, library, progress))


def _check_shared(built: list[Built]) -> None:
    """Libraries of one artifact read the same weights. Raises UnsupportedError."""
    first, *others = (specs_of(each.weights) for each in built)
    for specs, other in zip(others, built[1:], strict=True):
        if specs != first:
            raise UnsupportedError(
                f"{built[0].plan.target.library} and {other.plan.target.library} would read "
                "different weights; compile them apart, with --f16 and with --no-f16"
            )


def _weights(
    plan: Plan, plans: list[WeightPlan], writer: ArtifactWriter, progress: Progress
) -> WeightsInfo:
    tensors = plan.checkpoint.tensors
    if plan.options.reuse_weights is not None:
        earlier = plan.options.reuse_weights
        return take_weights(writer, earlier, plans, plan.checkpoint, plan.sources)
    arrays = arrays_of(plans, tensors, plan.sources, progress.weights)
    return writer.add_weights(specs_of(plans), arrays)


def make_plan(checkpoint: Checkpoint, target: Target, options: Options) -> Plan:
    """Decide sizes, build and quantize the model, and check every tensor's name and shape."""
    if reason := missing(target):
        raise UnsupportedError(f"target '{target.name}': {reason}")
    target = _with_name(target, checkpoint.name)
    context = _context(checkpoint, options)
    layers = require(with_defaults(checkpoint.config), "num_hidden_layers")
    check_layers(layers, len(checkpoint.tensors.shapes))
    architecture = build_model(checkpoint.config, context)
    apply_recipe(architecture.model, options.recipe)
    traced = trace(architecture.model)
    names = checkpoint_names(traced.names, checkpoint.tensors.shapes)
    found = {name: checkpoint.tensors.shapes[name] for name in names.present}
    expected = {names.source[n]: s for n, s in zip(traced.names, traced.shapes, strict=True)}
    ignored = ("lm_head.weight",) if architecture.config.tie_embeddings else ()
    check_tensors(expected, found, ignored)
    config = architecture.config
    pages = -(-context // PAGE_SIZE) * options.max_batch
    limits = Limits(
        context=context,
        max_batch=options.max_batch,
        max_step_tokens=max(options.max_step_tokens, options.max_batch),
        max_step_pages=pages,
        window=config.window,
    )
    kv = KvLayout.of(config, PAGE_SIZE, _kv_dtype(target, options))
    return Plan(checkpoint, target, options, architecture, traced, names.source, limits, kv)


def _with_name(target: Target, model: str) -> Target:
    """A static library's symbols carry the model's name: an app may link several models."""
    if not target.symbol_prefix:
        return target
    name = re.sub(r"[^a-z0-9]+", "_", model.rpartition("/")[2].lower())
    return replace(target, symbol_prefix=f"{target.symbol_prefix}{name}_")


def report_plan(plan: Plan, progress: Progress) -> None:
    """Say what was decided, defaults included."""
    config, limits, kv = plan.config, plan.limits, plan.kv
    parameters = sum(int(np.prod(shape)) for shape in plan.traced.shapes)
    pool = limits.max_step_pages * PAGE_SIZE * kv.bytes_per_token
    progress.decided(
        "model", f"{plan.checkpoint.name}: {config.architecture}, {parameters:,} weights"
    )
    progress.decided("target", f"{plan.target.name} ({_in_words(plan.target)})")
    for other in plan.target.alternatives:
        progress.decided("beside it", f"{other.library} ({_in_words(other)})")
    how = plan.options.recipe
    head = f" (head {how.head})" if how.head != how.linear else ""
    progress.decided("quantization", f"{how.name}: {how.linear}{head}")
    progress.decided("context", f"{limits.context} tokens, {limits.max_batch} sequences at once")
    if long_factors(with_defaults(plan.checkpoint.config), limits.context):
        progress.decided("rope", "LongRoPE's long factors, for short prompts too")
    progress.decided("KV cache", f"{pool / 1e6:.1f} MB of {kv.dtype} for all of them")


def _in_words(target: Target) -> str:
    """What of a row a user would check."""
    if target.generator:
        precision = "float16" if target.f16 else "float32"
        return ", ".join([f"{target.generator} kernels in {precision}", *target.archs])
    if not target.cpu:
        return "numpy"
    return f"{target.cpu}: {' '.join(target.features) or 'no special features'}"


def _context(checkpoint: Checkpoint, options: Options) -> int:
    longest = require(with_defaults(checkpoint.config), "max_position_embeddings")
    context = options.context or min(longest, DEFAULT_CONTEXT)
    if context > longest:
        raise UnsupportedError(
            f"--context {context} is more than the model's {longest}; use --context {longest}"
        )
    return context


def _kv_dtype(target: Target, options: Options) -> str:
    """float16 pages where weights are rounded already; exact runs keep float32."""
    return "float16" if target.f16 and options.quant != "f32" else "float32"


# -- the library -------------------------------------------------------------------------------


def _native_library(plan: Plan, library: Path, progress: Progress) -> tuple[list[WeightPlan], int]:
    limits = plan.limits
    bounds = Bounds(limits.max_step_tokens, limits.max_batch, limits.max_step_pages)
    lowered = lower(
        plan.traced,
        kernel_set_for(plan.target),
        plan.kv,
        bounds,
        plan.config.vocab_size,
        plan.target,
        IrDump(plan.options.dump_ir),
        progress.phase,
    )
    info = kv_info(plan.kv, limits)
    interface = interface_hash(info, limits, plan.config.vocab_size, specs_of(lowered.plans))
    lowered = replace(lowered, module=add_interface(lowered.module, interface))
    progress.phase("code")
    build(lowered, plan.target, library, plan.options.dump_ir)
    plan.target.mark(library, library_abi())
    return lowered.plans, lowered.workspace_bytes


def _reference_library(plan: Plan, library: Path) -> list[WeightPlan]:
    """The graph itself; its weights are f32, rounded through their scheme."""
    IrDump(plan.options.dump_ir)("traced", plan.traced.module)
    library.write_text(graph_to_json(plan.traced), encoding="utf-8")
    schemes = _schemes(plan)
    return [
        WeightPlan((name,), shape, "", schemes[name], plain_layout(shape, schemes[name]))
        for name, shape in zip(plan.traced.names, plan.traced.shapes, strict=True)
    ]


def _schemes(plan: Plan) -> dict[str, str]:
    """The scheme of each of the model's tensors; vectors are f32."""
    modules = named_modules(plan.architecture.model)
    schemes = dict.fromkeys(plan.traced.names, "f32")
    return schemes | {f"{name}.weight": m.scheme for name, m in modules if hasattr(m, "scheme")}


def _weight_bytes(plan: Plan) -> int:
    """What the weights will take on disk, before padding: for the check of the disk."""
    schemes, exact = _schemes(plan), plan.target.device == "numpy"
    bits = 0.0
    for name, shape in zip(plan.traced.names, plan.traced.shapes, strict=True):
        each = 32 if exact else scheme(schemes[name]).bits_per_weight(shape[-1])
        bits += int(np.prod(shape)) * each
    return int(bits / 8)
