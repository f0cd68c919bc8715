"""The plan of a compile, decided before work begins: options, sizes, the model, and the tensor map.

Generates and writes nothing, and reads no tensor; that is `compile.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from mlcc.artifact.schema import (
    AdaptersInfo,
    AdapterSite,
    AudioInfo,
    EmbeddingsInfo,
    EncoderInfo,
    Limits,
)
from mlcc.engine.batch.tables import StepLayout
from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.eagle import check_no_head, with_eagle
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.towers.audio import alignment_heads, audio_tower_of
from mlcc_compiler.checkpoint.towers.audio_input import audio_input_of, unbuilt_audio
from mlcc_compiler.checkpoint.towers.tower import TowerCheckpoint
from mlcc_compiler.checkpoint.towers.vision import tower_of, unbuilt_tower
from mlcc_compiler.driver.encoder_plan import as_encoder, check_caches, encoder_info, step_pools
from mlcc_compiler.driver.sizes import caches_for, context_of, limits_of
from mlcc_compiler.driver.toolchain import missing
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.ir.graph import Traced
from mlcc_compiler.ir.lora import check_lora_limits
from mlcc_compiler.models.architectures.whisper import ALIGNMENT, FIRST_TIMESTAMP
from mlcc_compiler.models.audio.whisper import default_batch
from mlcc_compiler.models.causal_lm import CausalLM
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import Encoder
from mlcc_compiler.models.fields import require
from mlcc_compiler.models.layers import named_modules
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.registry import Architecture, build_model, with_defaults
from mlcc_compiler.models.vision.tower import prompt_rows
from mlcc_compiler.options import Options, check_options
from mlcc_compiler.pipeline import trace
from mlcc_compiler.quantization import scheme
from mlcc_compiler.quantization.apply import apply_schemes, assign
from mlcc_compiler.quantization.recipes import DRAFT_HEAD
from mlcc_compiler.tensor_parallel.split import HEAD, Split, split_model
from mlcc_compiler.weights.check import check_layers, check_tensors
from mlcc_compiler.weights.encoder import encoder_names
from mlcc_compiler.weights.names import NameMap, checkpoint_names
from mlcc_compiler.weights.tied_head import TABLE, embedding_of_head, untied
from mlcc_targets import Target

_TABLES = (
    "model.embed_tokens.weight",
    "model.embed_tokens_per_layer.weight",
    "lm_head.weight",
    "embeddings.word_embeddings.weight",
    "embeddings.tok_embeddings.weight",
)
STATIC = "model.a"
ALIGNED_ROWS = 16
"""Tokens of a transcript that are aligned at once."""
SENSED = {"vision": "images are", "audio": "sound is"}
MTP_WEIGHT = "mtp.fc.weight"
"""The tensor by which a checkpoint's multi-token-prediction layer is found."""


@dataclass(frozen=True)
class Plan:
    """Everything decided before work begins."""

    checkpoint: Checkpoint
    target: Target
    options: Options
    architecture: Architecture
    traced: Traced
    sources: dict[str, str]
    """Model tensor -> name of the tensor in the checkpoint."""
    limits: Limits
    caches: Caches
    notes: tuple[str, ...] = ()
    """Deviations from the requested recipe, a line each."""
    encoder_head: EncoderHead | None = None
    """Output of an encoder; None = a generative model."""
    split: Split | None = None
    """Partition for tensor parallelism; None = one process computes the model."""
    towers: tuple[TowerCheckpoint, ...] = ()
    """The vision and audio tower, each compiled into a folder of its own; () = the model reads
    text."""

    @cached_property
    def encoder(self) -> EncoderInfo | None:
        """The encoder's record in the manifest."""
        model, encoder_head = self.architecture.model, self.encoder_head
        if encoder_head is None or not isinstance(model, Encoder):
            return None
        return encoder_info(model, encoder_head, self.checkpoint.tokenizer)

    @property
    def read_names(self) -> set[str]:
        """Names of the checkpoint's tensors that are read."""
        beside = self.split.head_aliases if self.split else {}
        return {source for name, source in self.sources.items() if name not in beside}

    @property
    def vocab_size(self) -> int:
        """Token ids that a step may hold; for a reranker, the ids of each segment."""
        encoder = self.encoder
        return self.config.vocab_size * (encoder.segments if encoder else 1)

    @property
    def static_row(self) -> Target | None:
        """The target's row for its static library; None = not requested."""
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
        """The layout of a step's tables."""
        lora = self.options.adapters
        slots = lora.slots if lora else 0
        return self.limits.layout(self.caches.groups, slots, self.token_columns)

    @property
    def token_columns(self) -> tuple[str, ...]:
        """Further columns of tokens that the model reads."""
        return self.config.token_columns

    def adapters(self, sites: Sequence[AdapterSite]) -> AdaptersInfo | None:
        """The adapters' record in the manifest, given their sites. Raises UnsupportedError."""
        if (lora := self.options.adapters) is None:
            return None
        info = AdaptersInfo(slots=lora.slots, rank=lora.rank, sites=tuple(sites))
        check_lora_limits(info, self.target)
        return info

    @property
    def embeddings(self) -> EmbeddingsInfo | None:
        """The record of rows that the host writes, of two steps at most: while one is computed the
        next is written. Hidden states are of one step."""
        width, slots = self.caches.embeddings, 2 * self.limits.max_step_tokens
        hidden = self.limits.max_step_tokens if self.config.mtp else 0
        if self.config.source_rows:
            slots = self.limits.max_batch * self.config.source_rows
        elif self.towers:
            slots = max(slots, *(prompt_rows(tower.config) for tower in self.towers))
        elif hidden:
            slots = 0
        return EmbeddingsInfo(slots=slots, width=width, hidden=hidden) if width else None

    @property
    def pools(self) -> tuple[int, ...]:
        """Pages of each group for `max_batch` sequences at their longest."""
        limits = self.limits
        if self.encoder_head is not None:
            return step_pools(self.caches, limits.max_step_tokens, limits.max_batch)
        longest = (g.most_pages(limits.context, limits.max_step_tokens) for g in self.caches.groups)
        return tuple(limits.max_batch * pages for pages in longest)

    @property
    def schemes(self) -> dict[str, str]:
        """The scheme of each of the model's tensors."""
        return schemes_of(self.architecture.model, self.traced.names)

    @property
    def activation_bits(self) -> int | None:
        """Bits to which activations are rounded for quantized matrices; None = not rounded.

        16 bits also apply to bfloat16 weights: activations then stay in float32 where the CPU would
        round them to bfloat16.
        """
        schemes = [scheme(name) for name in self.schemes.values()]
        if _multiplies_fp8(self.target):
            kept = any(one.is_e4m3 for one in schemes)
            return 8 if self.options.activations == 8 and kept else None
        if self.target.kernels == "gpu" and self.target.packed_dot:
            if self.options.activations == 16:
                return 16 if self.target.f16 else None
            rounded = self.options.activations == 8 and any(not one.is_float for one in schemes)
            return 8 if rounded else None
        if self.target.kernels != "cpu":
            return None
        if any(not one.is_float for one in schemes):
            return self.options.activations or 8
        rounded = self.options.activations == 16 and any(one.dtype == "bfloat16" for one in schemes)
        return 16 if rounded else None

    @property
    def rounds_rows(self) -> bool:
        """Whether activations are rounded for their weights, so that attention may round them
        too."""
        schemes = map(scheme, self.schemes.values())
        rounded = any(not one.is_float or one.dtype == "bfloat16" for one in schemes)
        return rounded and self.options.activations != 16

    @property
    def parameters(self) -> int:
        """Number of the model's weights, those of all ranks; tied ones count once."""
        split = self.split or Split(1)
        return sum(
            prod(shape) * (split.ranks if name in split.parts else 1)
            for name, shape in zip(self.traced.names, self.traced.shapes, strict=True)
            if name not in split.head_aliases
        )

    def bits(self, tables: bool) -> float | None:
        """Bits per weight, including scales, over the matrices: linears, or embedding and head.
        None if there are none."""
        schemes, shapes = (
            self.schemes,
            dict(zip(self.traced.names, self.traced.shapes, strict=True)),
        )
        chosen = {n: s for n, s in shapes.items() if len(s) > 1 and (n in _TABLES) == tables}
        weights = {name: prod(shape) for name, shape in chosen.items()}
        stored = sum(
            weights[name] * scheme(schemes[name]).bits_per_weight(shape[-1])
            for name, shape in chosen.items()
        )
        return round(stored / sum(weights.values()), 4) if weights else None

    def scheme_summary(self) -> str:
        """The schemes of linears, most used first, and those of head and embedding if they differ:
        "k4_g32, k5_g64, k6_g32 (head int8_g32)". A vision tower has neither."""
        linears, tables = self.used_schemes(tables=False), self.used_schemes(tables=True)
        return f"{linears} (head {tables})" if tables not in ("", linears) else linears

    def used_schemes(self, tables: bool) -> str:
        """The schemes of linears, or of embedding and head, most used first."""
        schemes = self.schemes
        counts: dict[str, int] = {}
        for name, shape in zip(self.traced.names, self.traced.shapes, strict=True):
            if len(shape) > 1 and (name in _TABLES) == tables:
                counts[schemes[name]] = counts.get(schemes[name], 0) + prod(shape)
        return ", ".join(sorted(counts, key=counts.__getitem__, reverse=True))

    def for_target(self, target: Target) -> Plan:
        """The plan for an alternative of the target, with its own folder for dumped phases."""
        options, dump = self.options, self.options.dump_ir
        return replace(
            self,
            target=_with_name(target, self.checkpoint.name),
            options=replace(options, dump_ir=dump and dump / target.variant),
            caches=caches_for(self.traced, target, options),
        )


def make_plan(checkpoint: Checkpoint, target: Target, options: Options) -> Plan:
    """Decide sizes, build and quantize the model, and check every tensor's name and shape."""
    check_options(options, target)
    if options.ranks > 1:
        target = replace(target, graphs=False)  # calls between kernels are not captured
    if reason := missing(target):
        raise UnsupportedError(f"target '{target.name}': {reason}")
    target = _with_name(target, checkpoint.name)
    check_no_head(checkpoint)
    checkpoint, encoder_head = as_encoder(checkpoint, options.reranker, options.decoder_options)
    checkpoint = checkpoint if encoder_head else untied(checkpoint)
    if options.draft_head is not None and encoder_head is None:
        checkpoint = with_eagle(checkpoint, options.draft_head)
    context = context_of(checkpoint, options, encoder_head)
    layers = require(with_defaults(checkpoint.config), "num_hidden_layers")
    check_layers(layers, len(checkpoint.tensors.shapes))
    dtype = target.activation_dtype
    tower = audio_tower_of(checkpoint)
    if tower is not None and isinstance(tower.info, AudioInfo):
        more = {
            FIRST_TIMESTAMP: tower.info.first_timestamp,
            ALIGNMENT: alignment_heads(checkpoint),
        }
        checkpoint = replace(checkpoint, config={**checkpoint.config, **more})
        batch = options.max_batch or default_batch(tower.config)
        rows = options.max_rows or max(batch, ALIGNED_ROWS)
        options = replace(options, max_batch=batch, max_rows=rows)
    reads_images = isinstance(checkpoint, TowerCheckpoint)
    towers: tuple[TowerCheckpoint, ...] = () if tower is None else (tower,)
    if not towers and options.vision and encoder_head is None:
        found_towers = (tower_of(checkpoint), audio_input_of(checkpoint))
        towers = tuple(each for each in found_towers if each is not None)
        reads_images = reads_images or bool(towers)
    if towers and options.ranks > 1:
        raise UnsupportedError(
            f"--tp {options.ranks}: {SENSED[towers[0].sense]} not read by several ranks; add "
            "--no-vision"
        )
    architecture = build_model(
        checkpoint.config,
        context,
        dtype,
        encoder_head,
        reads_images=reads_images,
        deepstack=max(
            (len(each.config.get("deepstack_visual_indexes", ())) for each in towers), default=0
        ),
        mtp=(options.mtp or options.draft_head is not None) and encoder_head is None,
        draft_head=options.recipe.shrinks_draft_head(_kept_head(checkpoint, options)),
    )
    if architecture.config.mtp is not None and MTP_WEIGHT not in checkpoint.tensors:
        raise UnsupportedError(
            f"{checkpoint.name} has no multi-token-prediction layer ({MTP_WEIGHT}), which --mtp "
            "and --speculate mtp need; leave them out, or use --speculate lookup"
        )
    assignment = assign(
        architecture.model,
        options.recipe,
        _checkpoint_schemes(architecture.model, checkpoint),
        e4m3=bool(target.limits.get("e4m3")),
    )
    apply_schemes(architecture.model, assignment.schemes)
    whole = {
        name: tuple(int(size) for size in parameter.shape)
        for name, parameter in architecture.model.named_parameters()
    }
    names = _names(architecture.model, list(whole), checkpoint)
    split = _split(architecture.model, options, checkpoint, names.source)
    traced = trace(architecture.model)
    found = {name: checkpoint.tensors.shapes[name] for name in names.present}
    expected = {names.source[name]: shape for name, shape in whole.items()}
    config = architecture.config
    tied = ("lm_head.weight",) if config.tie_embeddings else ()
    check_tensors(expected, found, (*config.ignored, *tied))
    caches = caches_for(traced, target, options)
    if encoder_head is not None:
        check_caches(caches)
    limits = limits_of(options, target, context, caches, encoder_head)
    notes = (*assignment.notes(), *(encoder_head.notes if encoder_head else ()))
    if options.vision:
        notes = (*notes, *_unbuilt(checkpoint, towers))
    sources = names.source
    if split is not None:
        notes, sources = (
            (*notes, *split.notes),
            {**sources, **dict.fromkeys(split.head_aliases, HEAD)},
        )
    plan = Plan(
        checkpoint, target, options, architecture, traced, sources, limits, caches, notes,
        encoder_head, split, towers,
    )  # fmt: skip
    _check_rounding(plan)
    return plan


def _unbuilt(checkpoint: Checkpoint, towers: Sequence[TowerCheckpoint]) -> tuple[str, ...]:
    """Notes about towers that are not compiled."""
    senses = [tower.sense for tower in towers]
    seen = None if "vision" in senses else unbuilt_tower(checkpoint)
    heard = None if "audio" in senses else unbuilt_audio(checkpoint)
    return tuple(note for note in (seen, heard) if note is not None)


def _split(
    model: CausalLM | Encoder, options: Options, checkpoint: Checkpoint, source: Mapping[str, str]
) -> Split | None:
    """The tensor-parallel partition, if there are several ranks; the model becomes one rank's.
    Raises UnsupportedError."""
    if options.ranks == 1 or not isinstance(model, CausalLM):
        return None
    own = checkpoint.tensors.schemes
    schemes = schemes_of(model, list(source))
    kept = frozenset(n for n, name in source.items() if own.get(name) == schemes[n])
    return split_model(model, options.ranks, kept)


def _multiplies_fp8(target: Target) -> bool:
    """Whether its tensor cores multiply 8-bit floats."""
    return bool(target.limits.get("e4m3") and target.limits.get("mma"))


def _check_rounding(plan: Plan) -> None:
    """Raises UnsupportedError for --activations where no activations are rounded."""
    if plan.options.activations is None or plan.activation_bits is not None:
        return
    floats = "float16" if plan.target.limits.get("mma") else "float32"
    why = f"target '{plan.target.name}' computes with them in {floats}"
    if plan.target.packed_dot and plan.options.activations == 16:
        why += " for devices without float16 (--no-f16)"
    elif plan.options.activations == 8 and _multiplies_fp8(plan.target):
        why = f"--quant {plan.options.quant} has no weights in fp8 (E4M3), which alone multiply "
        why += f"8-bit activations on target '{plan.target.name}'"
    elif plan.target.kernels == "cpu" or plan.target.packed_dot:
        why = f"--quant {plan.options.quant} has no matrix of codes, which alone wants them rounded"
    raise UnsupportedError(
        f"--activations {plan.options.activations}: {why}; leave --activations out"
    )


def _names(model: CausalLM | Encoder, names: Sequence[str], checkpoint: Checkpoint) -> NameMap:
    if isinstance(model, Encoder):
        return encoder_names(names, checkpoint.tensors.shapes)
    found = checkpoint_names(names, checkpoint.tensors.shapes)
    source, tied = found.source, model.config.tie_embeddings
    if tied:
        source = embedding_of_head(source, found.present)
    if model.config.mtp is not None and model.config.mtp.own_head and DRAFT_HEAD in source:
        head = TABLE if tied else HEAD
        source = {**source, DRAFT_HEAD: _names(model, [head], checkpoint).source[head]}
    return replace(found, source=source)


def _kept_head(checkpoint: Checkpoint, options: Options) -> str | None:
    """The scheme that the checkpoint's head keeps."""
    tensors = checkpoint.tensors
    names = checkpoint_names([HEAD, TABLE], tensors.shapes).source
    head = next((names[n] for n in (HEAD, TABLE) if names[n] in tensors.shapes), HEAD)
    found = {**tensors.nearest, **tensors.schemes}.get(head)
    return found if options.recipe.keeps else None


def _checkpoint_schemes(model: CausalLM | Encoder, checkpoint: Checkpoint) -> dict[str, str]:
    """The checkpoint's schemes by the model's tensor names, or the nearest scheme where the
    checkpoint's format has none."""
    own = {**checkpoint.tensors.nearest, **checkpoint.tensors.schemes}
    matrices = [f"{name}.weight" for name, module in named_modules(model) if _has_scheme(module)]
    source = _names(model, matrices, checkpoint).source
    copied = model.config.mtp is not None and model.config.mtp.own_head
    copies = (DRAFT_HEAD,) if copied else ()
    return {n: own[source[n]] for n in matrices if source[n] in own and n not in copies}


def schemes_of(model: CausalLM | Encoder, names: Sequence[str]) -> dict[str, str]:
    """The scheme of each tensor; vectors and tensors outside all recipes are f32."""
    schemes = dict.fromkeys(names, "f32")
    modules = named_modules(model)
    return schemes | {f"{name}.weight": m.scheme for name, m in modules if _has_scheme(m)}


def _has_scheme(module: Any) -> bool:
    return hasattr(module, "scheme")


def _with_name(target: Target, model: str) -> Target:
    """The model's name in a static library's symbols: an app may link several models."""
    if not target.symbol_prefix:
        return target
    name = re.sub(r"[^a-z0-9]+", "_", model.rpartition("/")[2].lower())
    return replace(target, symbol_prefix=f"{target.symbol_prefix}{name}_")
