"""Activation functions of models, on vectors of float32."""

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    bind,
    gauss_tail,
    lanes_of,
    maximum,
    sigmoid,
    spread,
)
from mlcc_compiler.kernels.frame import Expr

_SCALE = 2 * 0.7978845608028654  # 2 sqrt(2 / pi)


Activation = Callable[[Expr], Expr]


def silu(x: Expr, sigmoid: Activation = sigmoid) -> Expr:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Expr) -> Expr:
    """x * Phi(x) with the normal distribution's own Phi."""
    lanes = lanes_of(x)
    tail = bind(x * gauss_tail(x) * spread(0.5, lanes))
    return T.Select(x > spread(0.0, lanes), x - tail, tail)


def gelu_tanh(x: Expr, sigmoid: Activation = sigmoid) -> Expr:
    """The tanh approximation of GELU (Hendrycks & Gimpel, 2016), as (1 + tanh(y)) / 2 =
    sigmoid(2 y): that is one exponential, and exact where 1 + tanh(y) cancels."""
    lanes = lanes_of(x)
    return x * sigmoid((x + x * x * x * spread(0.044715, lanes)) * spread(_SCALE, lanes))


def relu2(x: Expr) -> Expr:
    """The square of max(x, 0) (So et al., 2021)."""
    above = bind(maximum(x, spread(0.0, lanes_of(x))))
    return above * above


def identity(x: Expr) -> Expr:
    """x: for products without an activation."""
    return x


ACTIVATIONS: dict[str, Activation] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "sigmoid": sigmoid,
    "relu2": relu2,
    "identity": identity,
}
