"""Splits a model for tensor parallelism: parts of every matrix, and all-reduce where parts meet.

After Megatron-LM (Shoeybi et al., 2019): a rank has some heads, with their rows of q, k and v and
columns of o, and some of the inner size of an MLP or an expert, with its rows of gate and up and
columns of down. So attention and MLP each end in one all-reduce. The head has some rows of the
vocabulary, and logits are gathered. Norms, routers and the embedding are replicated.

Models, targets and kernels know nothing of it: the module tree is transformed, as for quantization.
Every rank's graph is the same, so one library serves all. Matrices outside the tables below are
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures import phi3, starcoder2
from mlcc_compiler.models.causal_lm import CausalLM
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.layers import (
    Attention,
    Embedding,
    FusedMLP,
    GatedMLP,
    Linear,
    PlainMLP,
    ScaledQueryAttention,
    named_modules,
)
from mlcc_compiler.models.moe import MixtureOfExperts
from mlcc_compiler.quantization import scheme
from mlcc_compiler.quantization.schemes import ROW
from mlcc_compiler.tensor_parallel.collectives import all_gather, all_reduce
from mlcc_compiler.tensor_parallel.parts import COLUMNS, ROWS, Part, check_columns

ATTENTIONS = (Attention, ScaledQueryAttention, phi3.FusedAttention)
MLPS: dict[type[nn.Module], tuple[tuple[str, ...], str]] = {
    GatedMLP: (("gate_proj", "up_proj"), "down_proj"),
    PlainMLP: (("up_proj",), "down_proj"),
    FusedMLP: (("gate_up_proj",), "down_proj"),
    starcoder2.PlainMLP: (("c_fc",), "c_proj"),
}
"""MLP classes: their input projections, and their output projection."""
HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


@dataclass
class Split:
    """The partition of a model's tensors."""

    ranks: int
    parts: dict[str, Part] = field(default_factory=dict)
    """Parts by the model's names; tensors without one are whole on every rank."""
    head_aliases: dict[str, str] = field(default_factory=dict)
    """A split head whose table also stays whole as the embedding."""
    notes: list[str] = field(default_factory=list)


def split_model(model: CausalLM, ranks: int, kept: frozenset[str]) -> Split:
    """Turn `model`, whose schemes are set, into what each of `ranks` computes, in place.

    kept: matrices with the checkpoint's codes. Raises UnsupportedError for sizes that do not
    divide, and for models that cannot be split yet.
    """
    return _Splitter(model, ranks, kept).run()


class _Splitter:
    def __init__(self, model: CausalLM, ranks: int, kept: frozenset[str]) -> None:
        self.model, self.ranks, self.kept = model, ranks, kept
        self.done = Split(ranks)
        self.seen: set[int] = set()
        """Modules that are split, by their ids."""

    def run(self) -> Split:
        for name, module in list(named_modules(self.model)):
            if id(module) in self.seen:
                continue
            if type(module) in ATTENTIONS:
                self._attention(name, module)
            elif type(module) is MixtureOfExperts:
                self._mixture(name, module)
            elif type(module) in MLPS:
                self._mlp(name, module)
                _summed(module)
        self._head()
        self._check_all()
        return self.done

    # -- attention -------------------------------------------------------------------------------

    def _attention(self, name: str, module: Any) -> None:
        config = module.config
        module.config = self._heads(config)
        shared = config.num_kv_heads // module.config.num_kv_heads
        copies = self.ranks // shared  # ranks that have the same KV heads
        q, kv = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
        if isinstance(module, phi3.FusedAttention):
            fused = Part(ROWS, (q, kv, kv), (1, copies, copies))
            self._rows(f"{name}.qkv_proj", module.qkv_proj, fused)
            module.widths = [q // self.ranks, kv // shared, kv // shared]
        else:
            self._rows(f"{name}.q_proj", module.q_proj, Part(ROWS))
            for key in ("k_proj", "v_proj"):
                self._rows(f"{name}.{key}", getattr(module, key), Part(ROWS, (), (copies,)))
        self._columns(f"{name}.o_proj", module.o_proj)
        _summed(module)

    def _heads(self, config: DecoderConfig) -> DecoderConfig:
        """The attention config of one rank. Raises UnsupportedError if the heads do not divide."""
        heads, kv_heads, ranks = config.num_heads, config.num_kv_heads, self.ranks
        if heads % ranks:
            raise self._refusal(f"its {heads} attention heads", _divisors(heads))
        if kv_heads % ranks and ranks % kv_heads:
            both = [n for n in _divisors(heads) if kv_heads % n == 0 or n % kv_heads == 0]
            raise self._refusal(f"its {kv_heads} KV heads", both)
        return replace(config, num_heads=heads // ranks, num_kv_heads=max(1, kv_heads // ranks))

    # -- MLPs and experts ------------------------------------------------------------------------

    def _mlp(self, name: str, module: Any) -> None:
        inner, outer = MLPS[type(module)]
        for key in inner:
            linear = getattr(module, key)
            width = int(linear.weight.shape[0])
            halves = (width // 2,) * 2 if isinstance(module, FusedMLP) else ()
            each = width // max(1, len(halves))
            if each % self.ranks:
                raise self._refusal(f"'{name}', {each} wide inside", _divisors(each))
            self._rows(f"{name}.{key}", linear, Part(ROWS, halves))
        self._columns(f"{name}.{outer}", getattr(module, outer))
        self.seen.add(id(module))

    def _mixture(self, name: str, module: MixtureOfExperts) -> None:
        """Split each expert; one all-reduce follows the sum over experts."""
        if module.numbers.biased:
            raise UnsupportedError(
                f"--tp {self.ranks}: '{name}' has experts with biases, which are not split yet; "
                "leave out --tp"
            )
        for index, expert in enumerate(module.experts):
            self._mlp(f"{name}.experts.{index}", expert)
        if module.numbers.shared:
            self._mlp(f"{name}.{module.shared_name}", getattr(module, module.shared_name))
        _summed(module)

    # -- matrices --------------------------------------------------------------------------------

    def _rows(self, name: str, linear: Linear, part: Part) -> None:
        part = part if part.copies else replace(part, copies=(1,) * max(1, len(part.sections)))
        self._shrink(name, linear, part)
        if linear.bias is not None:
            linear.bias = nn.Parameter(part.shape(_shape(linear.bias), self.ranks), "float32")
            self.done.parts[f"{name}.bias"] = part

    def _columns(self, name: str, linear: Linear) -> None:
        tensor = f"{name}.weight"
        _, row = _shape(linear.weight)
        how = scheme(linear.scheme)
        check_columns(tensor, how, row, self.ranks, tensor in self.kept)
        if 0 < how.block < ROW and (row // self.ranks) % how.block and not self.done.notes:
            self.done.notes.append(
                f"blocks of {how.name} end with each rank's part of a row, so scales are not to "
                "the bit those of one rank"
            )
        self._shrink(name, linear, Part(COLUMNS))
        if linear.bias is not None:
            self.done.parts[f"{name}.bias"] = Part(None)

    def _shrink(self, name: str, linear: Linear, part: Part) -> None:
        linear.weight = nn.Parameter(part.shape(_shape(linear.weight), self.ranks), "float32")
        self.done.parts[f"{name}.weight"] = part
        self.seen.add(id(linear))

    # -- the head --------------------------------------------------------------------------------

    def _head(self) -> None:
        """Split the vocabulary. A table that is also the embedding stays whole for that, and the
        head gets a part under another name."""
        model, config = self.model, self.model.config
        if config.vocab_size % self.ranks:
            self.done.notes.append(
                f"the head is whole on every rank: {self.ranks} does not divide a vocabulary of "
                f"{config.vocab_size}"
            )
            return
        if config.tie_embeddings:
            head = Linear(config.hidden_size, config.vocab_size, result=ops.FLOAT32)
            head.scheme = model.model.embed_tokens.scheme
            model.lm_head = head
            model.config = replace(config, tie_embeddings=False)
            self.done.head_aliases = {HEAD: TABLE}
        self._rows("lm_head", model.lm_head, Part(ROWS))
        _then(model.lm_head, lambda logits: all_gather(logits, self.ranks))

    # -- what is left ----------------------------------------------------------------------------

    def _check_all(self) -> None:
        """Raises UnsupportedError for a matrix that no table above lists."""
        for name, module in named_modules(self.model):
            whole = isinstance(module, Embedding) and name == "model.embed_tokens"
            whole = whole or name == "lm_head"
            matrix = isinstance(module, (Linear, Embedding))
            if matrix and not whole and id(module) not in self.seen:
                raise UnsupportedError(
                    f"--tp {self.ranks}: architecture '{self.model.config.architecture}' has "
                    f"'{name}', which is not split yet; leave out --tp "
                    "(docs/internals/tensor_parallel.md lists what is)"
                )

    def _refusal(self, what: str, sizes: list[int]) -> UnsupportedError:
        good = [n for n in sizes if n > 1]
        advice = f"use --tp {' or '.join(map(str, good[:4]))}" if good else "leave out --tp"
        return UnsupportedError(
            f"--tp {self.ranks} does not divide {what} of '{self.model.config.architecture}'; "
            f"{advice}"
        )


def _shape(parameter: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in parameter.shape)


def _summed(module: nn.Module) -> None:
    """Append an all-reduce to a module's output."""
    _then(module, all_reduce)


def _then(module: Any, change: Callable[[Any], Any]) -> None:
    """Replace a module in the tree by one that applies `change` to its output."""
    computed = module.forward
    module.forward = lambda *inputs: change(computed(*inputs))


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, min(number, 64) + 1) if number % n == 0]
