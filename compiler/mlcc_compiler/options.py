"""Options of a compile, and which of them a target refuses. A model's refusals are in `plan.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlcc.artifact.schema import ACTIVATION_DTYPES
from mlcc.errors import UnsupportedError
from mlcc_compiler.ir.lora import LoraConfig
from mlcc_compiler.quantization import Recipe, recipe, with_head
from mlcc_targets import Target

RANDOM, NOTHING = "random", "none"
"""Values of `--calibrate` other than a text."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a compile. `context` None = the model's own, at most `sizes.CONTEXT`; other bounds
    None = the target's row."""

    quant: str = "q4"
    head: str | None = None
    """A recipe whose head is used for output head and embedding instead of `quant`'s own."""
    rules: tuple[tuple[str, str], ...] = ()
    """(tensor, scheme) that precede the recipe's own rules: measured bit allocation."""
    context: int | None = None
    max_batch: int | None = None
    max_step_tokens: int | None = None
    max_rows: int | None = None
    """Rows of logits a step; None = as many as sequences."""
    adapters: LoraConfig | None = None
    """Capacity for LoRA adapters; None = none can be loaded."""
    dump_ir: Path | None = None
    kv: str | None = None
    """KV cache dtype: a name of `mlcc.artifact.kv_format.KV_DTYPES`; None = f16 where the target
    computes with it, f32 elsewhere and for exact runs."""
    activations: int | None = None
    """Bits to which activations are rounded for quantized matrices: 8 or 16 on a CPU (None = 8). In
    WGSL 8, for packed products of few rows, or 16, for float16 products of many, whatever the
    matrix (None = not rounded). On CUDA 8, to 8-bit floats, for weights that are such floats."""
    calibrate: str | None = None
    """A text file, or "default", for GPTQ; "random" = activation statistics of random tokens;
    "none" = neither. None = "random" where that helps and the model can be run before it is
    compiled (`dataset.resolve_calibration`)."""
    bits: float | None = None
    """Average bits per weight of the linears, allocated by sensitivity; None = the recipe's."""
    reuse_weights: Path | None = None
    """An artifact of the same checkpoint whose weights have the layout of this compile."""
    reranker: bool = False
    """Read a language model as a reranker, by its next token."""
    static_library: bool = False
    """Also build a static library, for programs that link their model."""
    vision: bool = True
    """Whether a checkpoint's vision tower is compiled too."""
    mtp: bool = False
    """Whether the checkpoint's multi-token-prediction layer is compiled too, for drafts."""
    draft_head: Path | None = None
    """A folder with an EAGLE-3 head for the checkpoint, which takes the place of such a layer."""
    ranks: int = 1
    """Processes that compute the model together (tensor parallelism)."""

    @property
    def recipe(self) -> Recipe:
        known = with_head(recipe(self.quant), self.head)
        return replace(known, rules=(*self.rules, *known.rules))

    @property
    def decoder_options(self) -> dict[str, Any]:
        """The given options that encoders do not support, by name."""
        return {
            "--adapter-rank": self.adapters,
            "--bits": self.bits,
            "--calibrate": None if self.calibrate == NOTHING else self.calibrate,
            "--kv": self.kv if self.kv in ("int8", "fp8") else None,
            "--max-rows": self.max_rows,
            "--mtp": self.mtp or None,
            "--draft-head": self.draft_head,
            "--static-library": self.static_library or None,
            "--tp": self.ranks if self.ranks > 1 else None,
        }


def check_options(options: Options, target: Target) -> None:
    """Raises UnsupportedError for options that the target does not support."""
    if options.static_library and target.archive is None:
        raise UnsupportedError(
            f"target '{target.name}' has no static library beside {target.library}; leave out "
            "--static-library, or use --target cpu for Linux"
        )
    if options.static_library and target.alternatives:
        raise UnsupportedError(
            "a program links one library, --cpu any makes one for each level and --os one for each "
            "system; name one of each for --static-library, or leave them out for this machine's"
        )
    if options.mtp and options.draft_head is not None:
        raise UnsupportedError(
            "--mtp and --draft-head: one layer drafts, the checkpoint's own or the head; leave out "
            "one of them"
        )
    check_activations(target)
    if options.ranks > 1:
        _check_ranks(options, target)


def _check_ranks(options: Options, target: Target) -> None:
    """Raises UnsupportedError for options that tensor parallelism does not support."""
    tp = f"--tp {options.ranks}"
    if target.device not in ("cpu", "cuda") or target.abis:
        raise UnsupportedError(
            f"{tp}: ranks exchange sums through memory that CPUs share, or by NCCL, and target "
            f"'{target.name}' has neither; use --target cpu or cuda, or leave out --tp"
        )
    without = {
        "--adapter-rank": options.adapters,
        "--bits": options.bits,
        "--mtp": options.mtp or None,
        "--draft-head": options.draft_head,
        "--calibrate": None if options.calibrate in (NOTHING, RANDOM) else options.calibrate,
        "--static-library": options.static_library or None,
    }
    if refused := [name for name, value in without.items() if value is not None]:
        raise UnsupportedError(f"{tp} and {refused[0]}: not built together; leave out one of them")


def check_activations(target: Target) -> None:
    """Raises UnsupportedError for a target, or an alternative of it, with an activation dtype
    that no kernels compute yet."""
    for row in (target, *target.alternatives):
        if row.activation_dtype not in ACTIVATION_DTYPES:
            known = ", ".join(f"'{dtype}'" for dtype in ACTIVATION_DTYPES)
            raise UnsupportedError(
                f"target '{row.name}' asks for activations in {row.activation_dtype}, which no "
                f"kernels compute yet; set activation_dtype to {known} in the target's row"
            )
