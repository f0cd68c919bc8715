"""Sampling one token per row of logits: filters, temperature, inverse CDF; or argmax.

The filters and their order are `mlcc.engine.batch.filters`. Nothing is sorted: filters keep the
logits above a threshold, which is found by bisection, each step one pass over the row. Uniforms
come from the caller, so seeds are not handled here; penalties and masks are applied before.
"""

from typing import Any

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.graph import Graph, dims, tensor
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind, exp, lanes_of, span, spread
from mlcc_compiler.kernels.cpu.sampling.filters import FilterEmitter
from mlcc_compiler.kernels.cpu.sampling.row import Row
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.step import Step
from mlcc_compiler.kernels.step_arguments import sample_arguments

_LEAST_TEMPERATURE = 1e-36  # its inverse is finite


def emit_sample(
    kernels: KernelSet, graph: Graph, inputs: list[Any], vocab: int, layout: StepLayout
) -> list[Any]:
    """Emit the kernel of `sample_arguments`; returns its tokens and logprobs."""
    rows = dims(inputs[0])[0]
    out = [tensor([rows], "int32"), tensor([rows])]
    made = kernels.cached_kernel(sample, vocab, layout)
    return graph.items(graph.call_tir(made, "sample_rows", inputs, out), 2)


def sample(isa: Isa, vocab: int, layout: StepLayout) -> PrimFunc:
    """The kernel of `sample_arguments`."""

    def body(logits: Expr, words: Expr, tokens: Expr, logprobs: Expr) -> None:
        step = Step(layout, words)
        with T.parallel(logits.shape[0]) as i, T.If(i < step.count("rows")), T.Then():
            row = Row(vocab, isa.lanes, logits, i)
            top, best = row.argmax()
            (total,) = row.sums(1, lambda i, k: [_number(exp(row.x(i, k) - spread(top, k)))])
            token = Registers(1, 1, "int32")
            token[0] = best
            given = bind(step.row(i, "given"))
            with T.If(given >= 0):
                with T.Then():
                    token[0] = T.min(given, T.int32(vocab - 1))
                with T.Else(), T.If(step.row(i, "temperature") > T.float32(0)), T.Then():
                    _draw(row, step, top, token)
            store(tokens, token[0], i)
            logprob = logits[i, token[0]] - top - T.Cast("float32", T.log(total))
            store(logprobs, logprob, i)

    return kernel(body, **sample_arguments(vocab, layout))


def _draw(row: Row, step: Step, top: Expr, token: Registers) -> None:
    """token[0] = the token that the uniform selects, if any mass is left."""
    mass = T.alloc_buffer((row.vocab,), "float32", scope="local")  # too large for the stack
    filters = FilterEmitter(row, step, top, mass)
    filters.emit()
    peak = bind(filters.peak[0])
    inverse = bind(T.float32(1) / T.max(filters.heat[0], T.float32(_LEAST_TEMPERATURE)))
    count = row.blocks + (row.rest > 0)
    parts = T.alloc_buffer((count,), "float64")

    def weigh(i: Expr, k: int) -> list[Expr]:
        x = bind(row.x(i, k))
        value = _number(exp((x - spread(peak, k)) * spread(inverse, k)))
        value = bind(T.Select(filters.remaining(x), value, spread(0.0, k)))
        store(mass, value, span(i, k))
        return [value]

    (total,) = row.sums(1, weigh, lambda block, part: store(parts, part, block))
    left, block = Registers(1, 1, "float64"), Registers(2, 1, "int32")
    left[0] = T.Cast("float64", step.row(row.row, "uniform")) * total
    block[0] = T.int32(0)
    with T.While(T.And(block[0] < count - 1, left[0] >= parts[block[0]])):
        left[0] = left[0] - parts[block[0]]
        block[0] = block[0] + 1
    index = Registers(1, 1, "int32")
    index[0] = T.min(block[0] * row.block, row.vocab - row.rest)
    end = bind(T.min(index[0] + row.block, row.vocab))
    with T.While(T.And(index[0] < end, left[0] >= T.float64(0))):
        weight = bind(mass[index[0]])
        with T.If(weight > T.float32(0)), T.Then():
            token[0] = index[0]
            left[0] = left[0] - T.Cast("float64", weight)
        index[0] = index[0] + 1


def _number(x: Expr) -> Expr:
    """x, and 0 if it is NaN; x is never negative."""
    x = bind(x)
    zero = spread(0.0, lanes_of(x))
    return T.Select(x > zero, x, zero)
