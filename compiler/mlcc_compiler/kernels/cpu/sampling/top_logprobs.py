"""The most likely tokens of rows that request them, with their log-probabilities."""

from typing import Any

from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS, StepLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.graph import Graph, dims, tensor
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.step import Step
from mlcc_compiler.kernels.step_arguments import top_logprobs_arguments


def emit_top_logprobs(
    kernels: KernelSet, graph: Graph, inputs: list[Any], vocab: int, layout: StepLayout
) -> list[Any]:
    """Emit the kernel of `top_logprobs_arguments`; returns its tokens and logprobs."""
    shape = [dims(inputs[0])[0], MOST_TOP_LOGPROBS]
    out = [tensor(shape, "int32"), tensor(shape)]
    made = kernels.cached_kernel(top_logprobs, vocab, layout)
    return graph.items(graph.call_tir(made, "top_logprobs_rows", inputs, out), 2)


def top_logprobs(isa: Isa, vocab: int, layout: StepLayout) -> PrimFunc:
    """The kernel of `top_logprobs_arguments`."""
    most = MOST_TOP_LOGPROBS

    def body(
        logits: Expr, words: Expr, ids: Expr, known: Expr, tokens: Expr, logprobs: Expr
    ) -> None:
        step = Step(layout, words)
        with T.parallel(logits.shape[0]) as row, T.If(row < step.count("rows")), T.Then():
            wanted = bind(T.min(step.row(row, "top_logprobs"), most))
            with T.serial(most) as k:
                store(tokens, T.int32(-1), row, k)
                store(logprobs, T.float32(0), row, k)
            with T.If(wanted > 0), T.Then():
                found = _find(logits, row, wanted, tokens, logprobs)
                logit = bind(logits[row, ids[row]])
                with T.serial(found) as k:
                    store(logprobs, logprobs[row, k] - logit + known[row], row, k)

    return kernel(body, **top_logprobs_arguments(vocab, layout))


def _find(logits: Expr, row: Expr, wanted: Expr, tokens: Expr, best: Expr) -> Expr:
    """Put the best tokens and their logits in order; returns their number."""
    size, place, least = Registers(1, 1, "int32"), Registers(1, 1, "int32"), Registers(1, 1)
    size[0], least[0] = T.int32(0), -T.infinity("float32")
    with T.serial(logits.shape[1]) as i:
        x = bind(logits[row, i])
        with T.If(x > least[0]), T.Then():
            size[0] = T.min(size[0] + 1, wanted)
            place[0] = size[0] - 1
            with T.While(T.And(place[0] > 0, x > best[row, T.max(place[0] - 1, 0)])):
                store(best, best[row, place[0] - 1], row, place[0])
                store(tokens, tokens[row, place[0] - 1], row, place[0])
                place[0] = place[0] - 1
            store(best, x, row, place[0])
            store(tokens, T.Cast("int32", i), row, place[0])
            with T.If(size[0] == wanted), T.Then():
                least[0] = best[row, wanted - 1]
    return size[0]
