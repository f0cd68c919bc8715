"""Bit allocation: spends a recipe's bits on the matrices where they reduce the loss most.

A recipe fixes the average bits of a weight; with a calibration text, their distribution is
measured. Each matrix's loss is measured for one scheme (`sensitivity.py`). Losses of several
matrices add up, and a loss is proportional to the squared error, so other schemes' losses follow:
the ratio of two schemes' errors is nearly the same for any weights and is computed on normal ones.
Starting from the fewest bits, the greedy allocation takes the upgrade with the largest gain per bit
while bits are left. Each further bit of a matrix gains less than the one before, so no other
allocation of as many bits is better (Shoham and Gersho, 1988).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np

from mlcc.errors import UnsupportedError
from mlcc_compiler.calibration.calibrate import CalibratedTensors
from mlcc_compiler.calibration.sensitivity import measure_divergences
from mlcc_compiler.plan import Plan, make_plan
from mlcc_compiler.quantization import dequantize, quantize, scheme

CANDIDATES = ("t3_g32", "t4_g32", "t5_g32", "k6_g32", "int8_g32")
"""By rising bits. Additional schemes in between would gain 2 % more and double the number of
kernels.
"""
REFERENCE_SCHEME = "t4_g32"
"""The scheme in which each matrix's sensitivity is measured."""
Shape = tuple[int, ...]


def allocate_bits(
    plan: Plan,
    rows: Sequence[Sequence[int]],
    found: CalibratedTensors,
    progress: Callable[[int, int], None],
) -> Plan:
    """The plan with the same number of bits, moved to where rows of a text show the largest gain.
    Returns the plan itself for recipes without several schemes. `found` receives the matrices as
    rounded for the measurement."""
    if not plan.options.recipe.rules or not scheme(plan.options.recipe.linear).block:
        return plan
    shapes = {n: s for n, s in _shapes(plan).items() if _is_candidate(plan, n, s)}
    choices = _affordable_schemes(
        _budget(plan, shapes), shapes
    )  # before minutes are spent on measuring
    divergences = measure_divergences(
        plan, rows, dict.fromkeys(shapes, scheme(REFERENCE_SCHEME)), found, progress
    )
    shapes = {name: shapes[name] for name in divergences}
    bits = _budget(plan, shapes)
    options = replace(
        plan.options, rules=tuple(allocate(divergences, shapes, choices, bits).items())
    )
    return make_plan(plan.checkpoint, plan.target, options)


def _budget(plan: Plan, shapes: Mapping[str, Shape]) -> float:
    """Total bits of all matrices: from --bits, or as the recipe assigns them."""
    if plan.options.bits is not None:
        return plan.options.bits * sum(map(prod, shapes.values()))
    return sum(_bits(plan.schemes[name], shape) for name, shape in shapes.items())


def _affordable_schemes(bits: float, shapes: Mapping[str, Shape]) -> Sequence[str]:
    """The candidates from the best uniform one on: if a few tokens underestimate a matrix's loss,
    one bit less would quadruple it.

    Raises UnsupportedError if the budget is below the smallest candidate.
    """
    weights = max(sum(map(prod, shapes.values())), 1)
    each = [sum(_bits(choice, shape) for shape in shapes.values()) for choice in CANDIDATES]
    if bits < each[0]:
        raise UnsupportedError(
            f"--bits {bits / weights:g}: {CANDIDATES[0]} has the fewest bits, "
            f"{each[0] / weights:.2f} a weight of this model with its scales; give "
            f"--bits {each[0] / weights + 0.01:.2f} or more"
        )
    return CANDIDATES[sum(cost <= bits for cost in each) - 1 :]


def allocate(
    losses: Mapping[str, float], shapes: Mapping[str, Shape], choices: Sequence[str], bits: float
) -> dict[str, str]:
    """A candidate for each matrix, of at most `bits` bits in total if that suffices for the first.
    `choices` are sorted by bits; losses: of each matrix in the reference scheme."""
    chosen = dict.fromkeys(shapes, choices[0])
    left = bits - sum(_bits(choices[0], shape) for shape in shapes.values())
    steps = []
    for name, shape in shapes.items():
        for less, more in pairwise(choices):
            cost = _bits(more, shape) - _bits(less, shape)
            gain = losses[name] * (rounding_error(less) - rounding_error(more))
            steps.append((gain / cost, cost, name, less, more))
    for _, cost, name, less, more in sorted(steps, key=lambda step: -step[0]):
        if cost <= left and chosen[name] == less:
            chosen[name] = more
            left -= cost
    return chosen


@cache
def rounding_error(name: str) -> float:
    """Mean squared error of a scheme on normal weights (fixed seed)."""
    weight = np.random.default_rng(0).standard_normal((64, 1024), dtype=np.float32)
    rounded = dequantize(quantize(weight, scheme(name), np.ones(1024, np.float32)))
    return float(np.square(rounded - weight).mean())


def _bits(name: str, shape: Shape) -> float:
    return prod(shape) * scheme(name).bits_per_weight(shape[-1])


def _shapes(plan: Plan) -> dict[str, Shape]:
    return dict(zip(plan.traced.names, plan.traced.shapes, strict=True))


def _is_candidate(plan: Plan, name: str, shape: Shape) -> bool:
    """Whether a tensor is a linear with the recipe's own scheme whose rows fit every candidate."""
    recipe = plan.options.recipe
    if plan.schemes[name] != recipe.of_linear(name) or ".experts." in name:
        return False
    return len(shape) == 2 and all(scheme(choice).fits(shape[-1]) for choice in CANDIDATES)
