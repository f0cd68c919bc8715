"""`test_config_flips` for a config's `rope_parameters`, of one kind of layer or of several: each
field gets another value, also fields that most configs leave out. Only with --long except for YaRN,
which has most of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.compiler.models.config.test_config_flips import check_followed, flipped
from tests.compiler.models.helpers import checkpoints
from tests.compiler.models.helpers.checkpoints import CASES

LEFT_OUT: dict[str, dict[str, Any]] = {
    "default": {"partial_rotary_factor": 0.5},
    "linear": {"partial_rotary_factor": 0.5},
    "llama3": {"partial_rotary_factor": 0.5},
    "yarn": {
        "attention_factor": 1.3,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 0.5,
        "partial_rotary_factor": 0.5,
        "truncate": False,
    },
    "longrope": {"attention_factor": 1.3, "factor": 8.0},
}
SHOWN = "llama-yarn"
KEYS = "rope_parameters"
Path_ = tuple[str, ...]


def config_of(case: str, ropes: Mapping[str, Any] | None = None) -> Any:
    """The config of a case, with other ropes."""
    return checkpoints.config_of(case, **({} if ropes is None else {KEYS: ropes}))


def parts_of(
    ropes: Mapping[str, Any], path: Path_ = ()
) -> Iterator[tuple[Path_, Mapping[str, Any]]]:
    """(where it is, one rope) of each kind of layer, or the only one."""
    if not any(isinstance(value, Mapping) for value in ropes.values()):
        yield path, ropes
        return
    for kind, rope in ropes.items():
        if isinstance(rope, Mapping):
            yield from parts_of(rope, (*path, kind))


def others(rope: Mapping[str, Any]) -> dict[str, Any]:
    """A different value for each field."""
    found = {k: 48 if k.startswith("original") else flipped(k, v) for k, v in rope.items()}
    found |= {k: v for k, v in LEFT_OUT.get(str(rope["rope_type"]), {}).items() if k not in rope}
    return {k: v for k, v in found.items() if v is not None}


def cases() -> Iterator[Any]:
    for case in CASES:
        ropes = getattr(config_of(case), KEYS, None)
        for path, rope in parts_of(ropes) if isinstance(ropes, Mapping) and ropes else ():
            for key, value in others(rope).items():
                marks = [] if case == SHOWN else [pytest.mark.long]
                name = "-".join((case, *path, key))
                yield pytest.param(case, path, key, value, id=name, marks=marks)


def test_fields_are_found() -> None:
    keys = {(p.values[0], p.values[2]) for p in cases()}
    assert keys >= {("llama-yarn", "truncate"), ("phi3-longrope-long", "long_factor")}
    assert keys >= {("gemma3", "rope_theta"), ("llama", "rope_theta")}


@pytest.mark.parametrize(("case", "path", "key", "value"), cases())
def test_another_rope_is_followed_or_refused(
    case: str, path: Path_, key: str, value: Any, tmp_path: Path
) -> None:
    ropes = deepcopy(dict(getattr(config_of(case), KEYS)))
    rope = ropes
    for kind in path:
        rope = rope[kind]
    rope[key] = value
    check_followed(lambda: config_of(case, ropes), key, tmp_path)
