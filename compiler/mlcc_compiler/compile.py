"""One compile from end to end: a checkpoint folder in, an artifact folder out.

Reads from top to bottom: plan, check, generate code and convert weights in parallel, write. Each
step's work is in its own module; this one orders the steps and reports the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mlcc.artifact.checks.trust import trust
from mlcc.artifact.generation_config import unused
from mlcc.artifact.kv_format import kv_dtype
from mlcc.artifact.schema import EncoderInfo, RanksInfo, WeightsInfo
from mlcc_compiler.artifact.describe import manifest_of
from mlcc_compiler.artifact.package import ArtifactWriter
from mlcc_compiler.artifact.rank_weights import RankWeights
from mlcc_compiler.artifact.reuse import link_rank_weights, link_weights
from mlcc_compiler.calibration.activation_stats import activation_statistics
from mlcc_compiler.calibration.bit_allocation import allocate_bits
from mlcc_compiler.calibration.calibrate import CalibratedTensors, calibrate
from mlcc_compiler.calibration.dataset import calibration_rows, resolve_calibration
from mlcc_compiler.calibration.pipelined import pipelined_packing
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.towers.tower import TowerCheckpoint
from mlcc_compiler.driver.checks import check_ready
from mlcc_compiler.driver.libraries import Libraries, build_libraries
from mlcc_compiler.driver.vision_plan import describe_tower, tower_options
from mlcc_compiler.ir.graph import Traced
from mlcc_compiler.models.config import long_factors, rope_note
from mlcc_compiler.models.registry import max_context, with_defaults
from mlcc_compiler.options import RANDOM, Options
from mlcc_compiler.plan import Plan, make_plan
from mlcc_compiler.quantization import scheme
from mlcc_compiler.weights.convert import arrays_of, pack_stream, specs_of
from mlcc_targets import Target


@dataclass
class Progress:
    """Progress callbacks of a compile; silent by default."""

    decided: Callable[[str, str], None] = lambda what, value: None
    phase: Callable[[str], None] = lambda name: None
    weights: Callable[[int, int], None] = lambda done, total: None
    sensitivity: Callable[[int, int], None] = lambda done, total: None
    """Graph nodes done, of the total, while measuring sensitivity."""
    calibration: Callable[[int, int], None] = lambda done, total: None
    """Graph nodes done, of the total, while calibrating."""
    kernels: Callable[[int, int], None] = lambda done, total: None
    """Kernels compiled, of the total, while nothing else is left to do."""


def compile_model(
    checkpoint: Checkpoint, target: Target, out: Path, options: Options, progress: Progress
) -> Path:
    """Compile into `out`; returns it. Raises MlccError, and leaves nothing half-written."""
    plan = resolve_calibration(make_plan(checkpoint, target, options))
    checkpoint = plan.checkpoint  # with what belongs to it
    check_ready(checkpoint, plan.config.vocab_size, plan.read_names)
    rows = calibration_rows(plan)
    if rows:
        progress.decided("calibration", _describe_calibration(plan, rows))
    with _calibrated_tensors(plan, rows) as calibrated:
        if calibrated is not None:
            plan = allocate_bits(plan, rows, calibrated, progress.sensitivity)
        report_plan(plan, progress)
        target.prepare(lambda text: progress.decided("first use", text))
        return _write_artifact(plan, rows, calibrated, out, progress)


@contextmanager
def _calibrated_tensors(plan: Plan, rows: list[list[int]]) -> Iterator[CalibratedTensors | None]:
    """Temporary storage for matrices rounded on a text; None without a text."""
    if not rows or plan.options.calibrate == RANDOM:
        yield None
        return
    with TemporaryDirectory(prefix="mlcc-calibration-") as folder:
        yield CalibratedTensors(plan.checkpoint.tensors, Path(folder))


def _write_artifact(
    plan: Plan,
    rows: list[list[int]],
    calibrated: CalibratedTensors | None,
    out: Path,
    progress: Progress,
) -> Path:
    """Generate code, convert weights in parallel, and write both."""
    with ArtifactWriter(out, _weight_bytes(plan)) as writer:
        for tower in plan.towers:
            _write_tower(plan, tower, writer, progress)
        with build_libraries(_variants(plan), writer, progress.phase) as found:
            weights, ranks = _convert_weights(plan, found, rows, calibrated, writer, progress)
            licence = writer.add_checkpoint(plan.checkpoint)
            found.wait(progress.phase, progress.kernels)
        first, *others = (manifest_of(built, weights, licence, ranks) for built in found.built)
        names = (f"mlcc.{other.variant}.json" for other in plan.target.alternatives)
        writer.finish(first, dict(zip(names, others, strict=True)))
    trust(writer.out)
    return writer.out


def _write_tower(
    plan: Plan, tower: TowerCheckpoint, writer: ArtifactWriter, progress: Progress
) -> None:
    """Compile the tower into a folder of the artifact, which is an artifact of its own."""
    folder = tower.info.folder
    own = resolve_calibration(make_plan(tower, plan.target, tower_options(plan.options, folder)))
    tower.tensors.check_dtypes(own.read_names)
    progress.decided(f"{tower.sense} tower", describe_tower(own))
    with ArtifactWriter(writer.folder / folder, _weight_bytes(own)) as inner:
        with build_libraries(_variants(own), inner, progress.phase) as found:
            weights, _ = _convert_weights(own, found, [], None, inner, progress)
            found.wait(progress.phase, progress.kernels)
        first, *others = (manifest_of(built, weights, None) for built in found.built)
        names = (f"mlcc.{other.variant}.json" for other in own.target.alternatives)
        inner.finish(first, dict(zip(names, others, strict=True)))
    writer.add_folder(folder)


def _variants(plan: Plan) -> list[Plan]:
    """The plan, and those of the target's alternative libraries."""
    return [plan, *(plan.for_target(target) for target in plan.target.alternatives)]


def _describe_calibration(plan: Plan, rows: list[list[int]]) -> str:
    text = f"{plan.options.calibrate}, {sum(map(len, rows)):,} tokens"
    if plan.options.calibrate == RANDOM:
        text += ", which show how large inputs are; --calibrate default rounds better, in minutes"
    return text


def _convert_weights(
    plan: Plan,
    beside: Libraries,
    rows: list[list[int]],
    calibrated: CalibratedTensors | None,
    writer: ArtifactWriter,
    progress: Progress,
) -> tuple[WeightsInfo, RanksInfo | None]:
    plans, source = beside.built[0].weights, plan.options.calibrate
    earlier = plan.options.reuse_weights
    if plan.split is not None:
        of_ranks = RankWeights(plan, plan.split, plans)
        if earlier is not None:
            link_rank_weights(writer, earlier, of_ranks)
        else:
            sizes = (
                activation_statistics(plan, rows, progress.calibration) if source == RANDOM else {}
            )
            of_ranks.write(writer, beside.watched, progress.weights, sizes)
        return of_ranks.weights, of_ranks.ranks
    if earlier is not None:
        return link_weights(writer, earlier, plans, plan), None
    with ExitStack() as stack:
        if source == RANDOM:
            pack = stack.enter_context(pipelined_packing(plan, plans, rows))
            arrays = pack_stream(plans, pack, progress.weights)
        else:
            if calibrated is not None:
                calibrate(plan, rows, calibrated, progress.calibration)
            tensors = calibrated or plan.checkpoint.tensors
            arrays = arrays_of(plans, tensors, plan.sources, progress.weights)
        return writer.add_weights(specs_of(plans), beside.watched(arrays)), None


def report_plan(plan: Plan, progress: Progress) -> None:
    """Report all decisions, including defaults."""
    config, limits = plan.config, plan.limits
    caches = plan.caches.infos(plan.pools)
    pool = sum(cache.pool * cache.bytes_per_page for cache in caches)
    progress.decided(
        "model", f"{plan.checkpoint.name} ({config.architecture}), {plan.parameters:,} weights"
    )
    for note in (*plan.checkpoint.notes, *plan.checkpoint.tokenizer_notes):
        progress.decided("note", note)
    for note in unused(plan.checkpoint.generation_config):
        progress.decided("note", note)
    progress.decided("target", f"{plan.target.name} ({_describe_target(plan.target)})")
    for other in plan.target.alternatives:
        progress.decided("beside it", f"{other.library} ({_describe_target(other)})")
    how = plan.options.recipe
    bits = f", {plan.bits(tables=False):.2f} bits a weight" if plan.bits(tables=False) else ""
    progress.decided("quantization", f"{how.name}: {plan.scheme_summary()}{bits}")
    for note in (*(plan.checkpoint.tensors.notes if how.keeps else ()), *plan.notes):
        progress.decided("quantization", note)
    exact = exact_matrices(plan.traced, plan.schemes) if how.linear != "f32" else {}
    if exact:
        of = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in exact.items())
        progress.decided("kept float32", of)
    progress.decided("context", f"{limits.context} tokens, {limits.max_batch} sequences at once")
    if (of_rope := rope_note(plan.checkpoint.config)) is not None:
        progress.decided("rope", of_rope)
    if long_factors(with_defaults(plan.checkpoint.config), limits.context):
        progress.decided("rope", "LongRoPE's long factors, for short prompts too")
    if limits.context > max_context(plan.checkpoint.config):
        base = f"the base of 'dynamic' for {limits.context} tokens, for short prompts too"
        progress.decided("rope", base)
    kinds = [("states of " if c.kind == "state" else "", kv_dtype(c)) for c in caches]
    dtypes = ", ".join(dict.fromkeys(states + dtype for states, dtype in kinds))
    windows = [str(cache.window) for cache in caches if cache.window]
    sliding = f", a window of {', '.join(windows)} where layers slide" if windows else ""
    if plan.split is not None:
        progress.decided("ranks", f"{plan.split.ranks} processes; weights and caches are of one")
    if (lora := plan.options.adapters) is not None:
        progress.decided("adapters", f"{lora.slots} at once, of rank {lora.rank} at most")
    if plan.encoder is not None:
        progress.decided("encoder", _describe_encoder(plan.encoder))
        if scheme(how.linear).bits_per_weight(plan.config.hidden_size) < _PRECISE_BITS:
            progress.decided(
                "note", "rows are more sensitive than answers are; --quant q8 is closer"
            )
        return
    progress.decided("KV cache", f"{pool / 1e6:.1f} MB of {dtypes} for all of them{sliding}")


_PRECISE_BITS = 8
"""Bits of a weight from which on embeddings need no warning."""


def _describe_encoder(encoder: EncoderInfo) -> str:
    pooled = {"cls": "the first token's state", "mean": "the mean", "last": "the last token's"}
    tasks = {"score": "a score of a pair", "classify": f"{encoder.width} classes of a text"}
    made = tasks.get(encoder.task, f"{encoder.width} numbers a text")
    length = ", of length 1" if encoder.normalize else ""
    return f"{made}, of {pooled[encoder.pooling]}{length}"


def exact_matrices(traced: Traced, schemes: Mapping[str, str]) -> dict[str, int]:
    """Bytes of the matrices that no recipe quantizes, by module name."""
    found: dict[str, int] = {}
    for name, shape in zip(traced.names, traced.shapes, strict=True):
        if schemes[name] == "f32" and len(shape) == 2:
            part = name.split(".")[-2]
            found[part] = found.get(part, 0) + 4 * int(np.prod(shape))
    return found


def _describe_target(target: Target) -> str:
    """The fields of a target's row that a user would check."""
    if target.generator:
        precision = "float16" if target.f16 else "float32"
        return ", ".join([f"{target.generator} kernels in {precision}", *target.archs])
    if not target.cpu:
        return "numpy"
    return f"{target.cpu}: {' '.join(target.features) or 'no special features'}"


def _weight_bytes(plan: Plan) -> int:
    """Bytes of the weights on disk, before padding, for the check of free space."""
    schemes, exact = plan.schemes, plan.target.device == "numpy"
    bits = 0.0
    for name, shape in zip(plan.traced.names, plan.traced.shapes, strict=True):
        each = 32 if exact else scheme(schemes[name]).bits_per_weight(shape[-1])
        bits += int(np.prod(shape)) * each
    return int(bits / 8) * plan.options.ranks
