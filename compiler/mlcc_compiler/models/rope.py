"""Rotary position embedding: from a checkpoint's `rope_*` fields to frequencies.

Supports the published scalings: linear (kaiokendev), NTK-aware `dynamic` (bloc97), YaRN (Peng et
al., 2023), LongRoPE (Ding et al., 2024), Llama 3.1's and Gemma 4's `proportional`. It computes the
frequencies once, at compile time: compiled for more than the original length, LongRoPE uses its
long factors and `dynamic` the longer base for short prompts too, where `transformers` switches by
length. The rotation itself is an operator (`ops.rope`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.models.fields import optional, positive, refuse

Array = npt.NDArray[np.float64]
"""Rounded once, at the end: far positions multiply each rounding error."""


@dataclass(frozen=True)
class Rope:
    """Parameters of a rotation: `inv_freq` f32[rotary_dim / 2], and a factor of cos and sin."""

    inv_freq: tuple[float, ...]
    scale: float = 1.0
    sections: tuple[int, ...] = ()
    """Number of frequencies that turn by time, row and column of an image (M-RoPE; Wang et al.,
    2024); () = all by the position."""
    interleaved: bool = False
    """Whether the three take turns, time, row, column, until row and column have theirs (Qwen3-VL),
    instead of following one another."""

    @property
    def rotary_dim(self) -> int:
        return 2 * len(self.inv_freq)

    def table(self) -> npt.NDArray[np.float32]:
        return np.asarray(self.inv_freq, dtype=np.float32)


@dataclass(frozen=True)
class RopeConfig:
    """Inputs of the scalings. `context` is the longest sequence of the compile."""

    parameters: Mapping[str, Any]
    theta: float
    dim: int
    max_position: int
    context: int

    @property
    def original_length(self) -> int:
        given = optional(self.parameters, "original_max_position_embeddings")
        return int(given or self.max_position)

    def number(self, key: str) -> float:
        if key not in self.parameters:
            kind = self.parameters.get("rope_type")
            raise CheckpointError(
                f"config.json: rope type '{kind}' needs '{key}', which is missing; "
                "the checkpoint's config is incomplete, fetch it again"
            )
        return positive(self.parameters, key)


def build_rope(config: RopeConfig) -> Rope:
    """Frequencies for one kind of layer. Raises UnsupportedError for an unknown scaling."""
    kind = str(config.parameters.get("rope_type") or config.parameters.get("type") or "default")
    scaling = _SCALINGS.get(kind)
    if scaling is None:
        raise UnsupportedError(
            f"rope type '{kind}' is not supported; these are: {', '.join(sorted(_SCALINGS))}"
        )
    inv_freq, scale = scaling(config)
    frequencies = tuple(float(f) for f in inv_freq.astype(np.float32))
    sections = _sections(config.parameters, len(frequencies))
    interleaved = bool(sections) and bool(config.parameters.get("mrope_interleaved"))
    return Rope(frequencies, float(scale), sections, interleaved)


def _sections(parameters: Mapping[str, Any], count: int) -> tuple[int, ...]:
    """M-RoPE's sections of `count` frequencies, if the rope has them."""
    sections = parameters.get("mrope_section")
    if sections is None:
        return ()
    sound = isinstance(sections, list) and len(sections) == 3 and sum(sections) == count
    if not sound or not all(isinstance(size, int) and size >= 0 for size in sections):
        raise refuse("mrope_section", f"three numbers whose sum is {count}", sections)
    return tuple(sections)


def _plain(config: RopeConfig) -> Array:
    return _powers(config.theta, config.dim)


def _powers(base: float, dim: int) -> Array:
    """base^(-2 i / dim)."""
    return float(base) ** -(np.arange(0, dim, 2, dtype=np.float64) / dim)


def _default(config: RopeConfig) -> tuple[Array, float]:
    return _plain(config), 1.0


def _linear(config: RopeConfig) -> tuple[Array, float]:
    return _plain(config) / config.number("factor"), 1.0


def _dynamic(config: RopeConfig) -> tuple[Array, float]:
    """The base grows with the length beyond the original one: here with the compile's longest, as
    in vLLM, so that cached keys stay valid."""
    factor, dim = config.number("factor"), config.dim
    grown = factor * max(config.context, config.max_position) / config.max_position - (factor - 1)
    return _powers(config.theta * grown ** (dim / max(1, dim - 2)), dim), 1.0


def _llama3(config: RopeConfig) -> tuple[Array, float]:
    """Long wavelengths are divided by `factor`, short ones kept, those between blended."""
    plain, factor = _plain(config), config.number("factor")
    low, high = config.number("low_freq_factor"), config.number("high_freq_factor")
    if low > high:
        raise refuse("low_freq_factor", f"at most high_freq_factor, {high}", low)
    wavelength = 2 * math.pi / plain
    between = high - low or 1.0  # Llama 4's are equal: nothing is between them
    blend = (config.original_length / wavelength - low) / between
    blended = (1 - blend) * plain / factor + blend * plain
    long_wave = wavelength > config.original_length / low
    short_wave = wavelength < config.original_length / high
    out = np.where(long_wave, plain / factor, np.where(short_wave, plain, blended))
    return np.asarray(out, np.float64), 1.0


def _mscale(factor: float, weight: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _yarn_attention_factor(config: RopeConfig, factor: float) -> float:
    given = optional(config.parameters, "attention_factor")
    if given is not None:
        return given
    mscale, all_dim = config.parameters.get("mscale"), config.parameters.get("mscale_all_dim")
    if mscale and all_dim:
        return _mscale(factor, float(mscale)) / _mscale(factor, float(all_dim))
    return _mscale(factor)


def _yarn(config: RopeConfig) -> tuple[Array, float]:
    """High frequencies extrapolate, low ones interpolate, with a linear ramp between."""
    factor = config.number("factor")
    dim, base, length = config.dim, config.theta, config.original_length

    def dimension_of(rotations: float) -> float:
        return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = dimension_of(optional(config.parameters, "beta_fast") or 32)
    high = dimension_of(optional(config.parameters, "beta_slow") or 1)
    if config.parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = (high - low) or 0.001
    ramp = np.clip((np.arange(dim // 2, dtype=np.float64) - low) / width, 0, 1)
    plain = _plain(config)
    inv_freq = plain / factor * ramp + plain * (1 - ramp)
    return inv_freq, _yarn_attention_factor(config, factor)


def _longrope(config: RopeConfig) -> tuple[Array, float]:
    """One factor per frequency: `long_factor` when compiled for more than the original length."""
    parameters, original = config.parameters, config.original_length
    key = "long_factor" if config.context > original else "short_factor"
    factors = parameters.get(key)
    if not isinstance(factors, list) or len(factors) != config.dim // 2:
        raise refuse(key, f"a list of {config.dim // 2} numbers", factors)
    for factor in factors:
        positive({key: factor}, key)
    scale = optional(parameters, "attention_factor")
    if scale is None:
        factor = optional(parameters, "factor") or config.max_position / original
        scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return _plain(config) / np.asarray(factors, np.float64), float(scale)


def _proportional(config: RopeConfig) -> tuple[Array, float]:
    """Only the fast part of the frequencies; slow ones do not rotate (Gemma 4)."""
    part = optional(config.parameters, "partial_rotary_factor") or 1.0
    frequencies = _plain(config) / (optional(config.parameters, "factor") or 1.0)
    frequencies[int(part * config.dim // 2) :] = 0.0
    return frequencies, 1.0


_SCALINGS: dict[str, Callable[[RopeConfig], tuple[Array, float]]] = {
    "default": _default,
    "mrope": _default,  # with `_sections`
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
    "proportional": _proportional,
}
