"""The libraries of a compile: lowered first, then built in threads while weights are converted.

Lowering decides how weights are stored, so it comes first, one library after the other in the
caller's thread: passes and kernels are Python. Building is TVM's and LLVM's native code, which
releases the GIL, so it runs in threads, as many as there are cores, while the caller converts
weights. The bytes of a library do not depend on concurrency.

The phases of one library are `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from mlcc.artifact.manifest import interface_hash
from mlcc.errors import UnsupportedError
from mlcc_compiler.artifact.describe import BuiltLibrary, library_abi
from mlcc_compiler.artifact.package import ArtifactWriter
from mlcc_compiler.ir.graph_json import graph_to_json
from mlcc_compiler.ir.ir_dump import IrDump
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.passes.adapters import sites_of
from mlcc_compiler.passes.auxiliary import add_interface
from mlcc_compiler.pipeline import Bounds, Lowered, LoweringConfig, build, lower
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization.codec import cores
from mlcc_compiler.weights.convert import plain_layout, specs_of
from mlcc_targets import Target
from mlcc_targets.linking.static import HEADER

Item = TypeVar("Item")
Report = Callable[[str], None]
_REPORT_S = 0.2


def _count(counts: dict[int, tuple[int, int]], library: int, done: int, total: int) -> None:
    counts[library] = done, total


@dataclass
class Libraries:
    """The libraries of one artifact, the main one first. They are complete after `wait`."""

    built: list[BuiltLibrary] = field(default_factory=list)
    _futures: list[Future[None]] = field(default_factory=list)
    _kernels: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Kernels compiled and to be compiled, by library."""

    def watched(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items as long as no build has failed. Raises the error of a failed build."""
        for item in items:
            for future in self._futures:
                if future.done():
                    future.result()
            yield item

    def wait(self, report: Report, kernels: Callable[[int, int], None]) -> None:
        """Wait until all are written, and report the kernels compiled meanwhile. Raises
        mlcc_targets.TargetError."""
        waiting = {future for future in self._futures if not future.done()}
        if waiting:
            report("libraries")
        while waiting:
            waiting = wait(waiting, _REPORT_S, FIRST_EXCEPTION).not_done
            counts = list(self._kernels.values())
            if counts and waiting:
                kernels(sum(done for done, _ in counts), sum(total for _, total in counts))
        for future in self._futures:
            future.result()

    def counter(self) -> Callable[[int, int], None]:
        """Called with the kernels compiled, and all, of the library that is added next."""
        return partial(_count, self._kernels, len(self.built))


@contextmanager
def build_libraries(
    plans: Iterable[Plan], writer: ArtifactWriter, report: Report
) -> Iterator[Libraries]:
    """Lower every plan and start the builds. No build runs after the block, nor after an error.

    Raises UnsupportedError.
    """
    with ThreadPoolExecutor(cores(), "mlcc-library") as pool:
        found = Libraries()
        try:
            for plan in plans:
                built, work = _lower_plan(plan, writer, report, found.counter())
                found.built.append(built)
                _check_shared(found.built[0], built)
                if work is not None:
                    found._futures.append(pool.submit(work))
            yield found
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _lower_plan(
    plan: Plan, writer: ArtifactWriter, report: Report, kernels: Callable[[int, int], None]
) -> tuple[BuiltLibrary, Callable[[], None] | None]:
    """The record of a library, and the function that builds it, if anything is left to build."""
    library = writer.path(plan.target.library)
    for name in plan.target.extra_files:
        writer.path(name)
    if plan.target.device == "numpy":
        sites = sites_of(plan.traced.module, plan.traced.names) if plan.options.adapters else ()
        return BuiltLibrary(plan, _reference_library(plan, library), (), 0, 0, sites), None
    lowered = _lower(plan, report)
    outputs = [(plan.target, library)]
    if static := plan.static_row:
        writer.path(HEADER)
        outputs.append((static, writer.path(static.library)))
    built = BuiltLibrary(
        plan,
        lowered.plans,
        lowered.functions,
        lowered.workspace_bytes,
        lowered.largest_array,
        lowered.sites,
    )
    report("code")
    return built, lambda: _write(lowered, outputs, plan.options.dump_ir, kernels)


def _lower(plan: Plan, report: Report) -> Lowered:
    config = LoweringConfig(
        plan.target,
        kernel_set_for(plan.target, plan.activation_bits, plan.rounds_rows),
        plan.caches,
        Bounds(plan.layout, plan.limits.context),
        plan.vocab_size,
        lora=plan.options.adapters,
        generates=plan.encoder is None,
        first_timestamp=plan.config.first_timestamp,
    )
    lowered = lower(plan.traced, config, IrDump(plan.options.dump_ir), report)
    caches, vocab = plan.caches.infos(plan.pools), plan.vocab_size
    adapters, specs = plan.adapters(lowered.sites), specs_of(lowered.plans)
    interface = interface_hash(
        caches, plan.limits, vocab, specs, adapters, plan.embeddings, plan.token_columns
    )
    return replace(lowered, module=add_interface(lowered.module, interface))


def _write(
    lowered: Lowered,
    outputs: list[tuple[Target, Path]],
    dump: Path | None,
    kernels: Callable[[int, int], None],
) -> None:
    """Write the target's library with its ABI mark, and the static library if requested."""
    for i, (target, path) in enumerate(outputs):
        build(lowered, target, path, dump, kernels)
        if i == 0:
            target.mark(path, library_abi())


def _reference_library(plan: Plan, library: Path) -> list[WeightPlan]:
    """The graph itself as JSON; its weights are f32, rounded through their scheme."""
    IrDump(plan.options.dump_ir)("traced", plan.traced.module)
    library.write_text(graph_to_json(plan.traced), encoding="utf-8")
    schemes = plan.schemes
    return [
        WeightPlan((name,), shape, "", schemes[name], plain_layout(shape, schemes[name]))
        for name, shape in zip(plan.traced.names, plan.traced.shapes, strict=True)
    ]


def _check_shared(first: BuiltLibrary, other: BuiltLibrary) -> None:
    """Raises UnsupportedError unless the libraries of one artifact read the same weights."""
    if specs_of(first.weights) != specs_of(other.weights):
        raise UnsupportedError(
            f"{first.plan.target.library} and {other.plan.target.library} would read "
            "different weights; compile them apart, with --f16 and with --no-f16"
        )
