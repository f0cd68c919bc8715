"""Which matrices get the bits of a recipe: those where a bit takes most loss away.

A recipe says how many bits a weight has; given a text, where they go is measured. Each matrix's
loss is known for one scheme (`losses.py`). Losses of several matrices add up, and a loss goes with
the square of the error, so that other schemes' are known too: a scheme's error beside another's is
nearly the same for any weights, and is taken of normal ones. From the fewest bits on, the step that
takes away most for its bits is made next, while bits are left; as each further bit of a matrix
takes away less than the one before, no other choice of so many bits is better (Shoham and Gersho,
1988).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np

from mlcc.errors import UnsupportedError
from mlcc_compiler.calibration.calibrate import Calibrated
from mlcc_compiler.calibration.sensitivity import losses
from mlcc_compiler.plan import Plan, make_plan
from mlcc_compiler.quantization import dequantize, quantize, scheme

CHOICES = ("t3_g32", "t4_g32", "t5_g32", "k6_g32", "int8_g32")
"""By rising bits. Other rows between them would gain 2 % more and double the kernels."""
MEASURED = "t4_g32"
"""What each matrix is in turn."""
Shape = tuple[int, ...]


def with_measured_bits(
    plan: Plan,
    rows: Sequence[Sequence[int]],
    found: Calibrated,
    progress: Callable[[int, int], None],
) -> Plan:
    """The plan with as many bits, where rows of a text say they are worth most; the plan itself for
    recipes that are not of several schemes. `found` gets the matrices as they were measured."""
    if not plan.options.recipe.rules or not scheme(plan.options.recipe.linear).block:
        return plan
    shapes = {n: s for n, s in _shapes(plan).items() if _may_change(plan, n, s)}
    choices = _affordable(_budget(plan, shapes), shapes)  # before minutes are spent on measuring
    lost = losses(plan, rows, dict.fromkeys(shapes, scheme(MEASURED)), found, progress)
    shapes = {name: shapes[name] for name in lost}
    bits = _budget(plan, shapes)
    options = replace(plan.options, rules=tuple(allotted(lost, shapes, choices, bits).items()))
    return make_plan(plan.checkpoint, plan.target, options)


def _budget(plan: Plan, shapes: Mapping[str, Shape]) -> float:
    """Bits of all matrices together: as many as were asked for, or as the recipe gives them."""
    if plan.options.bits is not None:
        return plan.options.bits * sum(map(prod, shapes.values()))
    return sum(_bits(plan.schemes[name], shape) for name, shape in shapes.items())


def _affordable(bits: float, shapes: Mapping[str, Shape]) -> Sequence[str]:
    """The choices from the best one on that all matrices can be of: a loss that was measured too
    small on a few tokens would be four times as large with a bit less.

    Raises UnsupportedError for fewer bits than there are.
    """
    weights = max(sum(map(prod, shapes.values())), 1)
    each = [sum(_bits(choice, shape) for shape in shapes.values()) for choice in CHOICES]
    if bits < each[0]:
        raise UnsupportedError(
            f"--bits {bits / weights:g}: {CHOICES[0]} has the fewest bits, {each[0] / weights:.2f} "
            f"a weight of this model with its scales; give --bits {each[0] / weights + 0.01:.2f} "
            "or more"
        )
    return CHOICES[sum(cost <= bits for cost in each) - 1 :]


def allotted(
    losses: Mapping[str, float], shapes: Mapping[str, Shape], choices: Sequence[str], bits: float
) -> dict[str, str]:
    """One of `choices`, which go by rising bits, for each matrix: of at most so many bits together,
    if there are enough for the first. losses: of each when all are of one scheme."""
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
    """Mean squared error of a scheme on normal weights, the same each time."""
    weight = np.random.default_rng(0).standard_normal((64, 1024), dtype=np.float32)
    rounded = dequantize(quantize(weight, scheme(name), np.ones(1024, np.float32)))
    return float(np.square(rounded - weight).mean())


def _bits(name: str, shape: Shape) -> float:
    return prod(shape) * scheme(name).bits_per_weight(shape[-1])


def _shapes(plan: Plan) -> dict[str, Shape]:
    return dict(zip(plan.traced.names, plan.traced.shapes, strict=True))


def _may_change(plan: Plan, name: str, shape: Shape) -> bool:
    """Whether a tensor is a linear as the recipe gives it, that every choice fits."""
    recipe = plan.options.recipe
    if plan.schemes[name] != recipe.of_linear(name) or ".experts." in name:
        return False
    return len(shape) == 2 and all(scheme(choice).fits(shape[-1]) for choice in CHOICES)
