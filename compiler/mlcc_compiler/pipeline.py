"""The phases of a compile, in order: trace, quantize, page, lower, fuse, plan memory, build.

This is the project's own pass list, never TVM's per-target default: those merge or drop in-place
calls on some targets. It turns a model into a module and objects; checkpoints, weights and folders
are `compile.py`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcc.artifact.output_errors import check_space
from mlcc.artifact.schema import AdapterSite
from mlcc.engine.batch.tables import StepLayout
from mlcc.errors import UnsupportedError
from mlcc.util.sizes import apart
from mlcc_compiler.ir._tvm import ir, nn, relax, tirx, tvm
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.ir.graph import (
    ALIGN_ENTRY,
    ENTRY,
    MTP_ENTRY,
    Traced,
    calls,
    traced_entries,
)
from mlcc_compiler.ir.ir_dump import IrDump
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.ir.lora import LoraConfig
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.models.causal_lm import CausalLM
from mlcc_compiler.models.encoder import Encoder
from mlcc_compiler.object_files import compile_kernels, compile_rest, split_kernels
from mlcc_compiler.passes import auxiliary
from mlcc_compiler.passes.adapters import add_adapters
from mlcc_compiler.passes.check_splits import check_splits
from mlcc_compiler.passes.decode_graph import add_decode, capture_decode
from mlcc_compiler.passes.fuse_gated import FuseGated
from mlcc_compiler.passes.fuse_norm import FuseAddNorm
from mlcc_compiler.passes.join_kernels import JoinKernels
from mlcc_compiler.passes.lower import LowerOperators
from mlcc_compiler.passes.merge_projections import MergeProjections
from mlcc_compiler.passes.paged_kv import PagedKV, check_updates
from mlcc_compiler.passes.round_activations import RoundActivations
from mlcc_compiler.passes.shape_functions import order_sizes
from mlcc_compiler.passes.storages import (
    bound_storages,
    storage_bytes,
    storage_size,
    storages_by_size,
)
from mlcc_targets import Target

TEMPORARY_BYTES = 32 << 20
"""Space for the object files of one library. Checked before they are written: LLVM ends the process
at a full disk."""


@dataclass(frozen=True)
class Bounds:
    """Upper bound of each symbolic size: makes memory static and code reproducible."""

    layout: StepLayout
    context: int

    def of_variables(self) -> dict[str, int]:
        layout = self.layout
        rows = layout.max_rows
        sizes = {"n": layout.max_tokens, "b": layout.max_sequences, "r": rows, "m": rows}
        for g, group in enumerate(layout.groups):
            most = group.most_pages(self.context, layout.max_tokens)
            sizes[f"p{g}"] = min(layout.max_pages, layout.max_sequences * most)
        return {**sizes, "c": layout.max_copies}


@dataclass(frozen=True)
class Lowered:
    """A module of kernels and calls, the plan of its weights, and the memory that a step needs."""

    module: ir.IRModule
    plans: list[WeightPlan]
    workspace_bytes: int
    functions: tuple[str, ...]
    """Functions exported by the library."""
    sites: tuple[AdapterSite, ...] = ()
    """Linear layers that LoRA adapters add to, if the library supports adapters."""
    largest_array: int = 0
    """Bytes of the largest array that a step makes for its kernels."""


@dataclass(frozen=True)
class LoweringConfig:
    """Everything that lowering needs beside the graph."""

    target: Target
    kernels: KernelSet
    caches: Caches
    bounds: Bounds
    vocab_size: int
    lora: LoraConfig | None = None
    """Adds the function `forward_adapters`."""
    generates: bool = True
    """False for an encoder, which has `forward` alone."""
    first_timestamp: int = 0
    """As in `AdjustLayout`."""


def trace(model: CausalLM | Encoder) -> Traced:
    """The graph of `forward(token_ids, positions, logit_rows, weights)`, and of `forward_mtp` and
    `forward_align` if the model has them."""
    further = []
    if isinstance(model, CausalLM):
        further += [MTP_ENTRY] if model.config.mtp is not None else []
        further += [ALIGN_ENTRY] if model.config.alignment_heads else []
    spec = {
        entry: {
            "token_ids": nn.spec.Tensor(["n"], "int32"),
            "positions": nn.spec.Tensor(["n"], "int32"),
            "logit_rows": nn.spec.Tensor(["r"], "int32"),
            "$": {"param_mode": "packed", "effect_mode": "none"},
        }
        for entry in (ENTRY, *further)
    }
    with _without_checks():
        module, parameters = model.export_tvm(spec)
    shapes = [tuple(int(d) for d in parameter.shape) for _, parameter in parameters]
    return Traced(module, [name for name, _ in parameters], shapes)


@contextlib.contextmanager
def _without_checks() -> Iterator[None]:
    """TVM's export checks its graph and ignores the result, in time quadratic in the number of
    weights: a minute for 48 layers of 128 experts."""
    check = relax.analysis.well_formed
    relax.analysis.well_formed = lambda module: True
    try:
        yield
    finally:
        relax.analysis.well_formed = check


def lower(
    traced: Traced,
    config: LoweringConfig,
    dump: IrDump | None = None,
    report: Callable[[str], None] = lambda phase: None,
) -> Lowered:
    """From the traced graph to a module ready for code generation."""

    def finish(phase: str, module: ir.IRModule) -> ir.IRModule:
        if dump is not None:
            dump(phase, module)
        report(phase)
        return module

    kernels, caches, layout = config.kernels, config.caches, config.bounds.layout
    module = finish("traced", traced.module)
    entries = traced_entries(module)
    for entry in entries:
        module = FuseAddNorm(module, entry).run()
    finish("norms_fused", module)
    for entry in entries:
        module = MergeProjections(module, kernels, entry).run()
    merged = finish("projections_merged", module)
    if kernels.rounding is not None:
        for entry in entries:
            module = RoundActivations(module, kernels, entry).run()
        finish("activations_rounded", module)
    for entry in entries:
        module = PagedKV(module, caches, layout, kernels, entry).run()
    finish("paged_kv", module)
    for entry in entries:
        module = FuseGated(module, kernels, entry).run()
    finish("gated_fused", module)
    lowering = LowerOperators(module, kernels, traced.names)
    module = lowering.run()
    for entry in entries[1:]:
        module = LowerOperators(module, kernels, traced.names, entry, lowering).run()
    finish("kernels", module)
    sites: tuple[AdapterSite, ...] = ()
    if config.lora is not None:
        module, sites = add_adapters(module, merged, lowering, caches, layout, config.lora)
        finish("adapters", module)
    for entry in _entries(module):
        module = JoinKernels(module, entry).run()
    finish("kernels_joined", module)
    if config.generates:
        for add in (auxiliary.add_sample, auxiliary.add_top_logprobs):
            module = add(module, kernels, config.vocab_size, layout)
        timestamps = config.first_timestamp
        module = auxiliary.add_adjust(module, kernels, config.vocab_size, layout, timestamps)
        module = auxiliary.add_copy_pages(module, kernels, caches, layout)
    module = _with_bounds(finish("functions", module), config.bounds)
    target = config.target
    if target.generator:
        check_splits(module)
    graphs = target.graphs and config.generates
    if graphs:
        module = add_decode(module, layout)
    functions = tuple(sorted(_entries(module)))
    with tvm_target_of(target):
        module = finish("fused", _sequence(_fuse_passes(list(functions)))(module))
        module = finish("destination_passing", _sequence(_flatten_passes())(module))
        module = finish("memory_planned", relax.transform.StaticPlanBlockMemory()(module))
        if not target.generator:
            module = finish("storages_by_size", storages_by_size(module))
        storages = _planned_storages(module)
        _check_bindings(storages, target)
        if graphs:
            module = finish("graph_captured", capture_decode(module))
        module = bound_storages(relax.transform.LowerAllocTensor()(module))
        workspace = storage_bytes(finish("storages_bounded", module))
        module = finish("final", order_sizes(_sequence(_finish_passes())(module)))
        check_updates(module, caches)
    largest = max(storages, default=0)
    return Lowered(module, lowering.plans, workspace, functions, sites, largest)


def build(
    lowered: Lowered,
    target: Target,
    library: Path,
    dump: Path | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Generate code and link it into `library`; reports of device compilers are written to `dump`,
    and `report` gets the kernels compiled, of the total, where they are compiled one by one.

    Raises mlcc_targets.TargetError, or CapacityError if the temporary folder's disk is full.
    """

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_space(folder, TEMPORARY_BYTES, "TMPDIR")
        described = tvm_target_of(target)
        module, objects = _with_prefix(lowered.module, target.symbol_prefix), list[Path]()
        if not target.generator and not target.symbol_prefix:
            module, kernels = split_kernels(module)
            objects = compile_kernels(kernels, described, folder, report)
        objects += compile_rest(module, described, target, folder, dump)
        target.link(objects, library)


def tvm_target_of(target: Target) -> tvm.target.Target:
    """TVM's description of a row: its device, if it has one, and its host code."""
    host: dict[str, Any] = {"kind": "llvm"}
    if target.cpu:
        host["mcpu"] = target.cpu
    if target.features:
        host["mattr"] = [f"+{feature}" for feature in target.features]
    if target.triple:
        host["mtriple"] = target.triple
    if target.arch == "wasm32":
        host["vector-width"] = target.vector_bits  # TVM would choose one, with a warning
    if not target.generator:
        return tvm.target.Target(host)
    device: dict[str, Any] = {
        "kind": target.generator,
        "max_threads_per_block": target.limits["workgroup_invocations"],
        "max_shared_memory_per_block": target.limits["workgroup_bytes"],
    }
    if target.generator == "webgpu":
        device["max_num_threads"] = device.pop("max_threads_per_block")
        del device["max_shared_memory_per_block"]
        device["supports_subgroups"] = not {"least_subgroup", "subgroup"}.isdisjoint(target.limits)
    elif "subgroup" in target.limits:
        device["thread_warp_size"] = target.limits["subgroup"]
    if target.archs:
        device["arch"] = target.archs[0]
    return tvm.target.Target(device, host=host)


def _sequence(passes: list[Any]) -> Any:
    return tvm.transform.Sequential(passes)


def _entries(module: ir.IRModule) -> list[str]:
    """The functions that a library exports."""
    return [v.name_hint for v, f in module.functions.items() if isinstance(f, relax.Function)]


def _fuse_passes(entries: list[str]) -> list[Any]:
    return [
        # A reshape stays an operator: the virtual machine makes a view, no kernel copies.
        relax.transform.LegalizeOps(skip_ops=["relax.reshape"]),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(entries),
    ]


def _flatten_passes() -> list[Any]:
    return [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]


def _finish_passes() -> list[Any]:
    return [
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]


def _with_bounds(module: ir.IRModule, bounds: Bounds) -> ir.IRModule:
    for variable, function in list(module.functions.items()):
        if isinstance(function, relax.Function):
            module[variable] = function.with_attr("tir_var_upper_bound", bounds.of_variables())
    return module


def _with_prefix(module: ir.IRModule, prefix: str) -> ir.IRModule:
    """Names for a library that is linked beside others; the empty prefix changes nothing.

    TVM's own way, the module's attribute before AttachGlobalSymbol, renames by a mutator that
    fails on kernels with views of buffers.
    """
    if not prefix:
        return module
    named = ir.IRModule(module.functions, attrs=module.attrs)
    for variable, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            symbol = prefix + variable.name_hint
            named[variable] = function.with_attr("global_symbol", symbol)
    return named.with_attr("system_lib_prefix", prefix)


def _planned_storages(module: ir.IRModule) -> list[int]:
    """Bytes of each storage that the traced functions allocate, all of a constant size by
    now."""
    sizes = (storage_size(call) for name in traced_entries(module) for call in calls(module[name]))
    return [size for size in sizes if size is not None]


def _check_bindings(storages: list[int], target: Target) -> None:
    """Raises UnsupportedError if a kernel's argument would exceed the target's largest binding.

    Weights are stored in parts and pages are sized at load time, so only a step's own arrays are
    checked.
    """
    most = target.limits.get("storage_binding_bytes")
    largest = max(storages, default=0)
    if most is not None and largest > most:
        needs, binds = apart(largest, most)
        raise UnsupportedError(
            f"a step would need an array of {needs}, and target '{target.name}' binds up to "
            f"{binds}; use a smaller --context, --max-batch, --max-step-tokens or --max-rows"
        )
