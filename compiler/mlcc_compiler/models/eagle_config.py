"""The config of an EAGLE-3 head, as `eagle` of a checkpoint's config (`checkpoint/eagle.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.models.architectures import llama
from mlcc_compiler.models.config import DecoderConfig, Eagle, Mtp
from mlcc_compiler.models.fields import HfConfig, refuse, require

EAGLE = "eagle"
_FEWEST_LAYERS = 4
"""Of a model: its low, middle and high layers are different ones."""


def eagle_of(hf: HfConfig, config: DecoderConfig) -> Mtp:
    """The head of a model with this config. Raises CheckpointError, UnsupportedError."""
    given: dict[str, Any] = hf[EAGLE]
    layers = config.num_layers
    if given.get("num_hidden_layers") != 1:
        raise refuse("num_hidden_layers", "1, the layer of an EAGLE-3 head", given)
    if layers < _FEWEST_LAYERS:
        raise UnsupportedError(
            f"--draft-head: an EAGLE-3 head reads a low, a middle and a high layer, and the model "
            f"has {layers}; leave out --draft-head"
        )
    usual = (2, layers // 2, layers - 3)
    inputs = _given_inputs(given) or usual
    if len(inputs) != len(usual) or not all(0 <= layer < layers for layer in inputs):
        raise refuse("eagle_aux_hidden_state_layer_ids", f"three of {layers} layers", inputs)
    own = llama.read_config({**llama.DEFAULTS, **given}, config.max_position)
    own = replace(
        own,
        vocab_size=config.vocab_size,
        activation_dtype=config.activation_dtype,
        windows=(None,) * (layers + 1),
        rope_of_layer=(0,) * (layers + 1),
    )
    before = bool(given.get("norm_before_residual", False))
    eagle = Eagle(own, require(given, "draft_vocab_size"), inputs, before)
    return Mtp(normed=False, eagle=eagle)


def _given_inputs(given: HfConfig) -> tuple[int, ...]:
    """Layers that the head's config names; none = the usual ones."""
    more = given.get("eagle_config") or {}
    key = "eagle_aux_hidden_state_layer_ids"
    return tuple(given.get(key) or more.get(key) or ())
