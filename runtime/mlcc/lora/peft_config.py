"""Reads adapter_config.json of a PEFT folder strictly: options that would change the result but are
not supported are refused by name, never ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlcc.errors import ArtifactError, UnsupportedError
from mlcc.lora.targets import Targets, pattern_of
from mlcc.util.fast_dataclass import fast_dataclass
from mlcc.util.files import FileError, read_regular

CONFIG_NAME = "adapter_config.json"
MAX_CONFIG_BYTES = 1 << 20
LARGEST_RANK = 2048
"""A larger rank in a file is treated as damage."""
_REFUSED: dict[str, str] = {
    "use_dora": "DoRA, whose magnitudes are not computed here",
    "modules_to_save": "whole modules beside the low-rank matrices",
    "lora_bias": "biases in the low-rank matrices",
    "fan_in_fan_out": "matrices stored the other way round (Conv1D)",
    "layer_replication": "layers that are repeated",
    "trainable_token_indices": "tokens that were trained by themselves",
    "target_parameters": "parameters that are no modules' (experts)",
    "use_qalora": "QALoRA's pooled inputs",
    "alora_invocation_tokens": "an adapter that begins within a prompt (aLoRA)",
    "arrow_config": "Arrow's routing between adapters",
    "use_bdlora": "block-diagonal matrices (BD-LoRA)",
    "monteclora_config": "MonteCLoRA's sampled matrices",
}
"""Unsupported fields of PEFT's LoraConfig, and what they add to B A x."""
_CHANGES_BASE = ("pissa", "olora", "loftq", "corda")
"""Initialization methods that change the base model's weights."""


@fast_dataclass(frozen=True)
class LoraConfig:
    """The parsed adapter_config.json."""

    rank: int
    alpha: float
    rslora: bool
    """Scaled by alpha / sqrt(rank) (Kalajdzievski, 2023) and not by alpha / rank."""
    targets: Targets
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    """Exceptions by name suffix or pattern: rank_pattern and alpha_pattern."""
    base: str
    """Name of the base model it was trained on; "" = not given."""

    def rank_of(self, module: str) -> int:
        return int(_by_pattern(self.ranks, module, self.rank))

    def scale_of(self, module: str) -> float:
        """The factor of B A x."""
        rank, alpha = self.rank_of(module), _by_pattern(self.alphas, module, self.alpha)
        return alpha / (math.sqrt(rank) if self.rslora else rank)


def read_config(folder: Path) -> LoraConfig:
    """Raises ArtifactError for an invalid configuration, UnsupportedError for other methods."""
    path = folder / CONFIG_NAME
    if not path.exists():
        raise ArtifactError(f"{folder}: has no {CONFIG_NAME}; give a folder that PEFT saved")
    try:
        plain = json.loads(read_regular(path, MAX_CONFIG_BYTES))
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror or error})") from None
    except FileError as error:
        raise ArtifactError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: is not JSON ({error})") from None
    if not isinstance(plain, dict):
        raise ArtifactError(f"{path}: is no object")
    try:
        return _config(plain)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error.message}") from None
    except UnsupportedError as error:
        raise UnsupportedError(f"{path}: {error.message}", code=error.code) from None


def _config(plain: dict[str, Any]) -> LoraConfig:
    if (kind := plain.get("peft_type")) != "LORA":
        raise UnsupportedError(f"peft_type is {kind!r:.40}; only LORA is computed here")
    for field, what in _REFUSED.items():
        if plain.get(field) not in (None, False, [], {}):
            raise UnsupportedError(f"{field} asks for {what}; train it without {field}")
    if (bias := plain.get("bias", "none")) != "none":
        raise UnsupportedError(f"bias is {bias!r:.40}; only adapters without biases are read")
    begun = plain.get("init_lora_weights")
    if isinstance(begun, str) and begun.startswith(_CHANGES_BASE):
        raise UnsupportedError(
            f"init_lora_weights is {begun[:40]!r}, which changes the base model; save it with "
            "path_initial_model_for_weight_conversion, as PEFT's documentation says"
        )
    if (task := plain.get("task_type")) not in (None, "CAUSAL_LM"):
        raise UnsupportedError(f"task_type is {task!r:.40}; only CAUSAL_LM is")
    layers = plain.get("layers_to_transform")
    numbers = [layers] if type(layers) is int else layers
    if numbers is not None and not (
        isinstance(numbers, list) and all(type(each) is int for each in numbers)
    ):
        raise ArtifactError(f"layers_to_transform is {layers!r:.60}; it must be numbers")
    names = plain.get("layers_pattern") or []
    return LoraConfig(
        rank=_rank("r", plain.get("r")),
        alpha=_number("lora_alpha", plain.get("lora_alpha")),
        rslora=plain.get("use_rslora") is True,
        targets=Targets(
            pattern_of("target_modules", plain.get("target_modules"), may_be_stored=True),
            pattern_of("exclude_modules", plain.get("exclude_modules") or [], may_be_stored=True),
            None if numbers is None else tuple(numbers),
            tuple(map(str, names if isinstance(names, list) else [names])),
        ),
        ranks=_patterns("rank_pattern", plain.get("rank_pattern"), _rank),
        alphas=_patterns("alpha_pattern", plain.get("alpha_pattern"), _number),
        base=str(plain.get("base_model_name_or_path") or "")[:200],
    )


def _rank(field: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= LARGEST_RANK:
        raise ArtifactError(f"{field} is {value!r:.40}; a rank is a number of 1 .. {LARGEST_RANK}")
    return value


def _number(field: str, value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise ArtifactError(f"{field} is {value!r:.40}; it must be a finite number")
    return float(value)  # type: ignore[arg-type]


def _patterns(field: str, value: object, check: Any) -> dict[str, Any]:
    if not value:
        return {}
    if not isinstance(value, dict):
        raise ArtifactError(f"{field} is {value!r:.60}; it must be an object")
    for pattern in value:
        pattern_of(f"a key of {field}", pattern)
    return {pattern: check(f"{field}[{pattern[:40]!r}]", each) for pattern, each in value.items()}


def _by_pattern(values: Mapping[str, float], module: str, otherwise: float) -> float:
    """The value of the first pattern that a name ends with, as PEFT finds it."""
    for pattern, value in values.items():
        if re.match(rf"(?:.*\.)?(?:{pattern})$", module):
            return value
    return otherwise
