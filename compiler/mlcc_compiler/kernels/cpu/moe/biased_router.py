"""Router with a selection bias, on the CPU: each expert's score has a bias that affects the
selection but not the weight (Wang et al., 2024), and groups of experts may be excluded first
(DeepSeek-AI, 2024). The plain router is `router.py`.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, exp, sigmoid
from mlcc_compiler.kernels.cpu.moe.router import TAKEN, key_of
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, f32, i32, kernel, store


def route_corrected(
    isa: Isa,
    row: Sizes,
    bias: Sizes,
    k: int,
    score: str,
    normalise: int,
    scale: float,
    least: float,
    groups: int,
    num_kept: int,
    best: int = 2,
    added: float = 0.0,
) -> PrimFunc:
    """(logits f32[n, experts], bias f32[experts]) -> choice i32[n, k], weights f32[n, k]: see
    `ops.route_corrected`.

    A row's choices are k different experts for any logits.
    """
    (experts,) = row

    def body(logits: Expr, correction: Expr, choice: Expr, weights: Expr) -> None:
        def token(i: Expr) -> None:
            scores, keys = (
                T.alloc_buffer((experts,), "float32"),
                T.alloc_buffer((experts,), "int32"),
            )
            _score(logits, i, scores, experts, score)
            if groups > 1:
                _drop_groups(scores, correction, keys, experts, groups, num_kept, best)
            else:
                with T.serial(experts) as e:
                    store(keys, key_of(scores[e] + correction[e]), e)
            total = T.alloc_buffer((1,), "float32")
            store(total, T.float32(0), 0)
            with T.serial(k) as j:
                found = _largest(keys, experts)
                store(keys, TAKEN, found[0])
                store(choice, found[0], i, j)
                store(weights, scores[found[0]], i, j)
                store(total, total[0] + scores[found[0]], 0)
            whole = T.max(total[0], T.float32(least)) + T.float32(added)
            divisor = whole if normalise else T.float32(1)
            factor = bind(T.float32(scale) / divisor)
            with T.serial(k) as j:
                store(weights, weights[i, j] * factor, i, j)

        each_row(logits.shape[0], experts * (k + 8), token)

    chosen = f32("n", k)
    return kernel(
        body,
        logits=f32("n", experts),
        correction=f32(experts),
        choice=i32("n", k),
        weights=chosen,
    )


def _score(logits: Expr, i: Expr, scores: Expr, experts: int, score: str) -> None:
    """Emit the scores of row i."""
    if score == "sigmoid":
        with T.serial(experts) as e:
            store(scores, sigmoid(logits[i, e]), e)
        return
    top, total = T.alloc_buffer((1,), "float32"), T.alloc_buffer((1,), "float32")
    store(top, logits[i, 0], 0)
    store(total, T.float32(0), 0)
    with T.serial(experts) as e:
        store(top, T.max(top[0], logits[i, e]), 0)
    with T.serial(experts) as e:
        store(scores, exp(logits[i, e] - top[0]), e)
        store(total, total[0] + scores[e], 0)
    factor = bind(T.float32(1) / total[0])
    with T.serial(experts) as e:
        store(scores, scores[e] * factor, e)


def _drop_groups(
    scores: Expr, correction: Expr, keys: Expr, experts: int, groups: int, num_kept: int, best: int
) -> None:
    """Emit the keys of the experts: unchanged in the `num_kept` groups whose two best are the
    largest together, or whose best is; the lowest key elsewhere."""
    each = experts // groups
    group_keys = T.alloc_buffer((groups,), "int32")
    with T.serial(groups) as g:
        first, second = (T.alloc_buffer((1,), "float32") for _ in range(2))
        store(first, T.float32(0) - T.infinity("float32"), 0)
        store(second, T.float32(0) - T.infinity("float32"), 0)
        with T.serial(each) as e:
            value = bind(scores[g * each + e] + correction[g * each + e])
            store(second, T.max(second[0], T.min(first[0], value)), 0)
            store(first, T.max(first[0], value), 0)
        store(group_keys, key_of(first[0] + second[0] if best == 2 else first[0]), g)
    with T.serial(experts) as e:
        store(keys, TAKEN + 1, e)
    with T.serial(num_kept) as _:
        chosen = _largest(group_keys, groups)
        store(group_keys, TAKEN, chosen[0])
        with T.serial(each) as e:
            at = bind(chosen[0] * each + e)
            store(keys, key_of(scores[at] + correction[at]), at)


def _largest(keys: Expr, count: int) -> Expr:
    """Emit the search for the first largest; returns a cell with its index."""
    best = T.alloc_buffer((1,), "int32")
    store(best, T.int32(0), 0)
    with T.serial(count) as e, T.If(keys[e] > keys[best[0]]), T.Then():
        store(best, T.Cast("int32", e), 0)
    return best
