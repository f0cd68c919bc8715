"""Random choices of experts, and checks of a mixture's kernels against the twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.device.reference import moe as twin

Array = Any
Run = Callable[..., list[Array]]
"""(factory, arguments, inputs, outputs) -> the outputs."""

OF_EACH_KIND = [
    "f32", "f16", "bf16", "int4_g32", "int4a_g16", "int8_row", "int8a_g128", "mxfp4",
]  # fmt: skip
"""Schemes: the loops and the readers are those of linears, which are tried with all of them."""

ROUTERS = [
    (7, 3, "softmax", 1, 1.0),
    (128, 8, "softmax", 1, 1.0),
    (64, 6, "softmax", 0, 16.0),
    (300, 10, "softmax", 1, 1.0),
    (1, 1, "sigmoid", 0, 1.0),
    (5, 5, "softmax", 0, 1.0),
    (9, 2, "sigmoid", 1, 2.5),
]
"""Experts, how many are chosen, the score, whether weights are normalised, their scale."""


CORRECTED = [
    (7, 3, "sigmoid", 1, 2.5, 1, 1),
    (256, 8, "sigmoid", 1, 2.5, 8, 4),
    (64, 6, "softmax", 1, 1.0, 1, 1),
    (12, 2, "sigmoid", 0, 1.0, 4, 2),
    (300, 10, "softmax", 0, 16.0, 3, 1),
    (8, 2, "sigmoid", 1, 1.0, 4, 2),
    (160, 6, "softmax", 0, 16.0, 8, 3, 1),
    (32, 1, "sigmoid", 1, 1.5, 1, 1, 2, 0.25),
]
"""Routers with a correction, then groups of experts, the number of kept groups, and the number of
experts that determine a group's score."""


def choices(seed: int, tokens: int, experts: int, chosen: int) -> Array:
    """Different experts for each token; some experts are left alone."""
    rng = np.random.default_rng(seed)
    liked = rng.permutation(experts)[: max(chosen, experts - 2)]
    rows = [rng.permutation(liked)[:chosen] for _ in range(tokens)]
    return np.array(rows, np.int32).reshape(tokens, chosen)


def check_route(run: Run, factory: Any, case: tuple[int, int, str, int, float]) -> None:
    experts, k, score, normalise, scale = case
    for n in (0, 1, 37):
        logits = np.random.default_rng(n).standard_normal((n, experts)).astype(np.float32) * 3
        logits[: n // 2] = np.round(logits[: n // 2])  # many are equal
        out = [((n, k), "int32"), ((n, k), "float32")]
        arguments = ((experts,), k, score, normalise, scale)
        choice, weights = run(factory, arguments, [logits], out)
        expected = twin.route(logits.astype(np.float64), k, score, normalise, scale)
        np.testing.assert_array_equal(choice, expected[0])
        np.testing.assert_allclose(weights, expected[1], rtol=1e-5, atol=1e-7)


def check_strange_logits(run: Run, factory: Any) -> None:
    """For any logits k distinct experts are chosen: their numbers index memory."""
    strange = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e38, -1e38, 1e-45]
    rows = [[value] * 9 for value in strange] + [strange, strange[::-1]]
    logits = np.array(rows, np.float32)
    out = [((len(rows), 4), "int32"), ((len(rows), 4), "float32")]
    choice, _ = run(factory, ((9,), 4, "softmax", 1, 1.0), [logits], out)
    assert choice.min() >= 0 and choice.max() < 9
    assert all(len(set(row)) == 4 for row in choice.tolist())
    assert choice[2].tolist() == choice[6].tolist() == [0, 1, 2, 3]  # of equals the first


def check_corrected(run: Run, factory: Any, case: tuple[Any, ...]) -> None:
    """Scores whose order float32 and float64 agree on; the correction is as large as they are."""
    experts, k, score, normalise, scale, *groups = case
    rng = np.random.default_rng(experts)
    bias = rng.permutation(np.linspace(-0.6, 0.6, experts)).astype(np.float32)
    for n in (0, 1, 37):
        logits = rng.standard_normal((n, experts)).astype(np.float32) * 3
        out = [((n, k), "int32"), ((n, k), "float32")]
        numbers = (k, score, normalise, scale, 1e-20, *groups)
        choice, weights = run(factory, ((experts,), (experts,), *numbers), [logits, bias], out)
        expected = twin.route_corrected(logits.astype(np.float64), bias, *numbers)
        np.testing.assert_array_equal(choice, expected[0])
        np.testing.assert_allclose(weights, expected[1], rtol=1e-5, atol=1e-7)
        # a correction decides: without it others are chosen
        plain, _ = twin.route_corrected(logits, bias * 0, *numbers)
        assert n < 37 or (plain != expected[0]).any()


def check_strange_corrected(run: Run, factory: Any) -> None:
    """For any logits distinct experts are chosen, of kept groups if any logit is finite."""
    strange = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e38, -1e38]
    rows = [[value] * 8 for value in strange] + [strange, strange[::-1]]
    logits, bias = np.array(rows, np.float32), np.zeros(8, np.float32)
    out = [((len(rows), 4), "int32"), ((len(rows), 4), "float32")]
    for score in ("sigmoid", "softmax"):
        arguments = ((8,), (8,), 4, score, 1, 1.0, 1e-20, 4, 2)
        choice, _ = run(factory, arguments, [logits, bias], out)
        assert choice.min() >= 0 and choice.max() < 8
        assert all(len(set(row)) == 4 for row in choice.tolist())
        assert choice[5].tolist() == [0, 1, 2, 3]  # of equals the first


def check_combine(run: Run, factory: Any) -> None:
    for n, k, hidden in ((0, 2, 8), (3, 1, 5), (20, 8, 300)):
        rng = np.random.default_rng(n)
        x, weights = (rng.standard_normal((n, w)).astype(np.float32) for w in (k * hidden, k))
        (y,) = run(factory, ((k * hidden,), (k,)), [x, weights], [((n, hidden), "float32")])
        np.testing.assert_allclose(y, twin.combine(x, weights), rtol=1e-4, atol=1e-5)


def check_biases(run: Run, factory: Any) -> None:
    for n, k, experts, kinds, out in ((0, 2, 3, 2, 8), (3, 1, 2, 1, 5), (20, 4, 9, 2, 96)):
        rng = np.random.default_rng(n)
        x = rng.standard_normal((n, kinds * k * out)).astype(np.float32)
        bias = rng.standard_normal(kinds * experts * out).astype(np.float32)
        choice = choices(n, n, experts, k)
        sizes = ((kinds * k * out,), (k,), bias.shape)
        outputs = [(x.shape, "float32")]
        (y,) = run(factory, (*sizes, experts, kinds), [x, choice, bias], outputs)
        expected = twin.add_expert_bias(x, choice, bias, experts, kinds)
        np.testing.assert_allclose(y, expected, rtol=1e-6)


def check_factors(run: Run, factory: Any) -> None:
    for n, k, experts in ((0, 2, 3), (3, 1, 2), (20, 8, 128)):
        rng = np.random.default_rng(n)
        weights, factors = (rng.random(shape, np.float32) for shape in ((n, k), experts))
        choice = choices(n, n, experts, k)
        given = [weights, choice, factors]
        (y,) = run(factory, ((k,), (k,), (experts,)), given, [((n, k), "float32")])
        np.testing.assert_allclose(y, twin.scale_chosen(*given), rtol=1e-6)


def check_clamped_swiglu(run: Run, factory: Any) -> None:
    """The kernel equals the twin for inputs of which most are clamped."""
    for n, inner in ((0, 8), (2, 5), (9, 300)):
        x = np.random.default_rng(n).standard_normal((n, 2 * inner)).astype(np.float32) * 4
        given = ((2 * inner,), 1.702, 2.5)
        (y,) = run(factory, given, [x], [((n, inner), "float32")])
        expected = twin.clamped_swiglu(x.astype(np.float64), 1.702, 2.5)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
