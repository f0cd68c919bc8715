"""What a compile decides before work begins: options, sizes, the model, and where its tensors are.

Nothing is generated, read in full or written here; that is `compile.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlcc.artifact.schema import ACTIVATION_DTYPES, Limits
from mlcc.engine.tables import StepLayout
from mlcc.errors import UnsupportedError
from mlcc_compiler.caches import Caches
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.models.causal_lm import CausalLM
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import require
from mlcc_compiler.models.layers import named_modules
from mlcc_compiler.models.registry import Architecture, build_model, with_defaults
from mlcc_compiler.passes.cache_groups import caches_of
from mlcc_compiler.pipeline import Traced, trace
from mlcc_compiler.quantization import Recipe, recipe, with_head
from mlcc_compiler.quantization.apply import apply_recipe
from mlcc_compiler.toolchain import missing
from mlcc_compiler.weights.check import check_layers, check_tensors
from mlcc_compiler.weights.names import checkpoint_names
from mlcc_targets import Target

DEFAULT_CONTEXT = 4096
PAGE_SIZE = 16
STATIC = "model.a"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a compile may be told. `context` None = the model's own, at most DEFAULT_CONTEXT; other
    bounds None = the target's row."""

    quant: str = "q4"
    head: str | None = None
    """A recipe whose head is used for output head and embedding instead of `quant`'s own."""
    context: int | None = None
    max_batch: int | None = None
    max_step_tokens: int | None = None
    max_rows: int | None = None
    """Rows of logits a step; None = as many as sequences."""
    dump_ir: Path | None = None
    reuse_weights: Path | None = None
    """An artifact of the same checkpoint whose weights are stored as this compile would."""
    static_library: bool = False
    """A static library beside the other, for programs that link their model."""

    @property
    def recipe(self) -> Recipe:
        return with_head(recipe(self.quant), self.head)


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
    caches: Caches

    @property
    def static_row(self) -> Target | None:
        """The target's, as its static library is made; None = none is wanted."""
        target = self.target
        if not self.options.static_library or target.archive is None:
            return None
        row = replace(target, library=STATIC, link=target.archive, symbol_prefix="mlcc_")
        return _with_name(row, f"{self.checkpoint.name}_{self.options.quant}")

    @property
    def config(self) -> DecoderConfig:
        return self.architecture.config

    @property
    def layout(self) -> StepLayout:
        """The tables of a step."""
        return self.limits.layout(self.caches.groups)

    @property
    def pools(self) -> tuple[int, ...]:
        """Pages of each group for `max_batch` sequences at their longest."""
        limits = self.limits
        longest = (g.most_pages(limits.context, limits.max_step_tokens) for g in self.caches.groups)
        return tuple(limits.max_batch * pages for pages in longest)

    @property
    def schemes(self) -> dict[str, str]:
        """The scheme of each of the model's tensors."""
        return schemes_of(self.architecture.model, self.traced.names)

    def on(self, target: Target) -> Plan:
        """The same for an alternative of the target, which says where its phases are dumped."""
        options, dump = self.options, self.options.dump_ir
        return replace(
            self,
            target=_with_name(target, self.checkpoint.name),
            options=replace(options, dump_ir=dump and dump / target.variant),
            caches=caches_of(self.traced.module, PAGE_SIZE, _dtype(target, options)),
        )


def make_plan(checkpoint: Checkpoint, target: Target, options: Options) -> Plan:
    """Decide sizes, build and quantize the model, and check every tensor's name and shape."""
    if reason := missing(target):
        raise UnsupportedError(f"target '{target.name}': {reason}")
    check_activations(target)
    if options.static_library and target.archive is None:
        raise UnsupportedError(
            f"target '{target.name}' has no static library beside {target.library}; leave out "
            "--static-library, or use --target cpu"
        )
    target = _with_name(target, checkpoint.name)
    context = _context(checkpoint, options)
    layers = require(with_defaults(checkpoint.config), "num_hidden_layers")
    check_layers(layers, len(checkpoint.tensors.shapes))
    architecture = build_model(checkpoint.config, context, target.activation_dtype)
    apply_recipe(architecture.model, options.recipe)
    traced = trace(architecture.model)
    names = checkpoint_names(traced.names, checkpoint.tensors.shapes)
    found = {name: checkpoint.tensors.shapes[name] for name in names.present}
    expected = {names.source[n]: s for n, s in zip(traced.names, traced.shapes, strict=True)}
    config = architecture.config
    tied = ("lm_head.weight",) if config.tie_embeddings else ()
    check_tensors(expected, found, (*config.ignored, *tied))
    caches = caches_of(traced.module, PAGE_SIZE, _dtype(target, options))
    limits = _limits(options, target, context, caches)
    return Plan(checkpoint, target, options, architecture, traced, names.source, limits, caches)


def check_activations(target: Target) -> None:
    """Raises UnsupportedError for a row, or an alternative of it, whose activations no kernels
    compute yet."""
    for row in (target, *target.alternatives):
        if row.activation_dtype not in ACTIVATION_DTYPES:
            known = ", ".join(f"'{dtype}'" for dtype in ACTIVATION_DTYPES)
            raise UnsupportedError(
                f"target '{row.name}' asks for activations in {row.activation_dtype}, which no "
                f"kernels compute yet; set activation_dtype to {known} in the target's row"
            )


def schemes_of(model: CausalLM, names: Sequence[str]) -> dict[str, str]:
    """The scheme of each tensor; vectors are f32, and what no recipe reaches."""
    schemes = dict.fromkeys(names, "f32")
    modules = named_modules(model)
    return schemes | {f"{name}.weight": m.scheme for name, m in modules if hasattr(m, "scheme")}


def _limits(options: Options, target: Target, context: int, caches: Caches) -> Limits:
    batch = options.max_batch or target.max_batch
    rows = options.max_rows or batch
    layout = StepLayout.of(
        caches.groups,
        context=context,
        max_tokens=max(options.max_step_tokens or target.max_step_tokens, batch, rows),
        max_sequences=batch,
        max_rows=rows,
        max_copies=batch,
    )
    return Limits(
        context=context,
        max_batch=layout.max_sequences,
        max_step_tokens=layout.max_tokens,
        max_rows=layout.max_rows,
        max_step_pages=layout.max_pages,
        max_copies=layout.max_copies,
    )


def _with_name(target: Target, model: str) -> Target:
    """A static library's symbols carry the model's name: an app may link several models."""
    if not target.symbol_prefix:
        return target
    name = re.sub(r"[^a-z0-9]+", "_", model.rpartition("/")[2].lower())
    return replace(target, symbol_prefix=f"{target.symbol_prefix}{name}_")


def _context(checkpoint: Checkpoint, options: Options) -> int:
    longest = require(with_defaults(checkpoint.config), "max_position_embeddings")
    context = options.context or min(longest, DEFAULT_CONTEXT)
    if context > longest:
        raise UnsupportedError(
            f"--context {context} is more than the model's {longest}; use --context {longest}"
        )
    return context


def _dtype(target: Target, options: Options) -> str:
    """Of caches: float16 where weights are rounded already; exact runs keep float32."""
    return "float16" if target.f16 and options.quant != "f32" else "float32"
