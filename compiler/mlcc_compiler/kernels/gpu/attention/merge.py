"""The merge step of Flash-Decoding: one row of output from the partial sums of a sequence's
ranges.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.decode import first_item
from mlcc_compiler.kernels.gpu.attention.plan import pages_per_range
from mlcc_compiler.kernels.gpu.attention.sequences import (
    LOWEST,
    VECTOR,
    PagedSequences,
    load_vector,
    sink_weight,
    split,
    strided,
)
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    add,
    barrier,
    bind,
    ceil_div,
    int32,
    largest,
    launch,
    real,
    reduce,
    shared,
    when,
    zeros,
)


def merge_ranges(
    gpu: Gpu,
    sequences: PagedSequences,
    most: Expr,
    sums: Expr,
    stats: Expr,
    out: Expr,
    sinks: Expr | None = None,
) -> None:
    """Emit the launch that fills out's rows of sequences with one token from their ranges.

    A workgroup per (sequence, head), for `most` sequences. Rows below `most` after the last token
    get zeros: a decode step may be padded to it.
    """
    rows = int32(out.shape[0])
    shape = sequences.shape
    keys = pages_per_range(sequences.layout.page_size) * sequences.layout.page_size
    columns = shape.head_dim // VECTOR
    threads, teams = gpu.threads, gpu.threads // columns
    with launch((most, shape.heads), (threads,)) as (s, head, thread):
        sequence = sequences.of(s)
        with when(tirx.all(s < sequences.count, sequence.tokens == 1)):
            seen = sequences.first_key(sequence)
            first, _ = split(T.max(seen - sequence.base, 0), keys)
            item = bind(first_item(sequences, s) + first)
            count = bind(ceil_div(sequence.keys - sequence.base, keys) - first)
            best, total, outputs = zeros(1, LOWEST), zeros(1), zeros(VECTOR)

            def compare(i: Expr) -> None:
                best[0] = T.max(best[0], stats[item + i, head, 0])

            strided(count, threads, thread, compare)
            top = reduce(gpu, best[0], largest, thread, threads)

            def weight(i: Expr) -> Expr:
                return T.exp(stats[item + i, head, 0] - top)

            def accumulate(i: Expr) -> None:
                total[0] = total[0] + weight(i) * stats[item + i, head, 1]

            strided(count, threads, thread, accumulate)
            summed = reduce(gpu, total[0], add, thread, threads)
            if sinks is not None:
                summed = summed + sink_weight(bind(sinks[head]), top)
            factor = bind(real(1) / summed)
            team, column = bind(thread // columns), bind(thread % columns)
            scratch = shared((teams, shape.head_dim))

            def gather(i: Expr) -> None:
                share = bind(weight(i))
                vector = load_vector(sums, item + i, head, column)
                for x in range(VECTOR):
                    outputs[x] = outputs[x] + share * vector[x]

            with when(team < teams):
                strided(count, teams, team, gather)
                for x in range(VECTOR):
                    store(scratch, outputs[x], team, column * VECTOR + x)
            barrier()

            def finish(i: Expr) -> None:
                gathered = zeros(1)
                with T.serial(teams) as t:
                    gathered[0] = gathered[0] + scratch[t, i]
                store(out, gathered[0] * factor, sequence.token, head, i)

            strided(shape.head_dim, threads, thread, finish)
        with when(tirx.all(s >= sequences.tokens, s < rows)):
            strided(shape.head_dim, threads, thread, lambda i: store(out, real(0), s, head, i))
