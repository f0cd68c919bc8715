"""Per-expert vectors on the GPU: gpt-oss's biases and clamped SwiGLU, Gemma 4's factors."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element, sigmoid
from mlcc_compiler.kernels.gpu.moe.sort_tokens import divmod_positive
from mlcc_compiler.kernels.gpu.workgroup import bind, int32, real


def add_expert_bias(
    gpu: Gpu, row: Sizes, chosen: Sizes, bias: Sizes, experts: int, kinds: int
) -> PrimFunc:
    """(x f32[n, kinds * k * out], choice i32[n, k], bias f32[kinds * experts * out]) -> x with the
    biases: see `ops.add_expert_bias`."""
    (width,), (k,) = row, chosen
    out = width // (kinds * k)

    def body(x: Expr, choice: Expr, biases: Expr, y: Expr) -> None:
        def element(i: Expr, column: Expr) -> None:
            slot, within = divmod_positive(bind(int32(column)), out)
            kind, which = divmod_positive(slot, k)
            own = bind((kind * experts + choice[i, which]) * out + within)
            store(y, x[i, column] + biases[own], i, column)

        each_element(gpu, x.shape[0], width, element)

    rows = activations(gpu, "n", width)
    return kernel(body, x=rows, choice=i32("n", k), biases=f32(*bias), y=rows)


def scale_chosen(gpu: Gpu, row: Sizes, chosen: Sizes, factors: Sizes) -> PrimFunc:
    """(weights f32[n, k], choice i32[n, k], factors f32[experts]) -> weights f32[n, k], each times
    its expert's."""

    def body(x: Expr, choice: Expr, own: Expr, y: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            store(y, x[i, j] * own[choice[i, j]], i, j)

        each_element(gpu, x.shape[0], row[0], element)

    rows = f32("n", *row)
    return kernel(body, x=rows, choice=i32("n", *chosen), own=f32(*factors), y=rows)


def clamped_swiglu(gpu: Gpu, row: Sizes, alpha: float, limit: float) -> PrimFunc:
    """(x f32[n, 2 * inner], gate in the first half of a row, up in the second) -> f32[n, inner]."""
    inner = row[0] // 2

    def body(x: Expr, y: Expr) -> None:
        def element(i: Expr, column: Expr) -> None:
            gate = bind(T.min(x[i, column], real(limit)))
            up = bind(T.max(T.min(x[i, column + inner], real(limit)), real(-limit)))
            store(y, gate * sigmoid(gate * real(alpha)) * (up + real(1)), i, column)

        each_element(gpu, x.shape[0], inner, element)

    return kernel(body, x=activations(gpu, "n", 2 * inner), y=activations(gpu, "n", inner))
