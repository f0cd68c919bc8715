"""Steps of operators with states, and the twins' outputs, for the kernels of any device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mlcc.device.reference import ssm as twin
from mlcc.device.reference.caches import CachedOperator, LayerCache
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.batch import Batch, PageList, StateSlot, int32
from mlcc.engine.batch.tables import CacheGroup
from mlcc_compiler.ir.caches import CacheLayout, LayerRecord
from mlcc_compiler.ir.states import ConvShape, DeltaShape, ScanShape
from tests.compiler.kernels.cases.step import layout_of, words_of, writer_of

GROUP, SLOTS = 1, 7
LAYOUT = layout_of((CacheGroup("paged", 16), CacheGroup("state")))
MIXED = ((1, 2, 2), (9, -1, 0), (3, 4, 1), (1, -1, 5), (1, 6, 6))
"""(tokens, slot_in, slot_out) of each sequence: steps and prompts, new and old, in place or not;
slots 3 and 4 stay as they are."""
BEYOND = 2
"""Rows and sequences for which there is room beyond the step's own."""
CONVS = (
    ConvShape(44, 4),
    ConvShape(300, 2),
    ConvShape(52, 3, "identity", bias=True),
)
DELTAS = (
    DeltaShape(2, 6, 32, 24),
    DeltaShape(1, 2, 128, 128),
    DeltaShape(3, 3, 20, 5),
    DeltaShape(2, 4, 32, 24, by_channel=True),
    DeltaShape(2, 2, 128, 128, by_channel=True),
    DeltaShape(3, 3, 20, 5, by_channel=True),
)
SCANS = (
    ScanShape(6, 12, 2, 32),
    ScanShape(2, 64, 1, 128),
    ScanShape(3, 5, 3, 20, shortest=0.4, longest=0.9),
)
STATES = (*CONVS, *DELTAS, *SCANS)
CHUNKED = (CONVS[0], DELTAS[0], DELTAS[3], SCANS[0])

PARTS = ("[[0, 20], [20, 3]]", "[[3, 16]]", "[[22, 1], [0, 4], [4, 8]]")
"""Parts of groups of 23 columns."""

Rows = tuple[tuple[int, int, int], ...]
Run = Callable[[LayerRecord, CacheLayout, Sequence[Any]], Sequence[Any]]
"""(record, layout, arguments of its kernel) -> all of them as they are afterwards."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of one operator: rows of its tokens, and tensors that all tokens share."""

    record: LayerRecord
    rows: tuple[Any, ...]
    shared: tuple[Any, ...]
    states: Any
    out: tuple[int, ...]
    """The shape of a row of its output."""

    @property
    def layout(self) -> CacheLayout:
        return CacheLayout(self.record.cache_spec(16, "float16").tensors, LAYOUT, GROUP)

    def of(self, tokens: slice) -> Inputs:
        """The inputs of some of the tokens."""
        rows = tuple(row[tokens] for row in self.rows)
        return Inputs(self.record, rows, self.shared, self.states, self.out)


def step_of(rows: Rows) -> Batch:
    writer = writer_of(LAYOUT)
    for tokens, source, slot in rows:
        writer.sequence(
            [3] * tokens, 0, [PageList(int32([0] * tokens), 0), StateSlot(source, slot)]
        )
    return writer.finish()


def inputs_of(record: LayerRecord, tokens: int, seed: int = 0) -> Inputs:
    """Random inputs; rows beyond the tokens are not numbers."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    def rows(width: int) -> Any:
        nothing = np.full((BEYOND, width), np.nan, np.float32)
        return np.concatenate([normal(tokens, width), nothing])

    states = normal(SLOTS, *record.cache_spec(16, "").tensors[0].shape)
    if isinstance(record, ConvShape):
        shared = [normal(record.channels, 1, record.taps)]
        shared += [normal(record.channels)] * record.bias
        each = (rows(record.channels),)
        return Inputs(record, each, tuple(shared), states, (record.channels,))
    if isinstance(record, ScanShape):
        each, out = (rows(record.channels), rows(record.heads)), (record.heads, record.head_dim)
        return Inputs(record, each, tuple(normal(record.heads) for _ in range(3)), states, out)
    assert isinstance(record, DeltaShape)
    heads, out = record.v_heads, (record.v_heads, record.v_dim)
    each = rows(record.channels), rows(heads), rows(record.speeds)
    return Inputs(record, each, (normal(heads), normal(record.speeds)), states, out)


def expected(inputs: Inputs, batch: Batch) -> tuple[Any, Any]:
    """(output, states afterwards), in float64."""
    wide = [x.astype(np.float64) for x in (*inputs.rows, *inputs.shared)]
    wide = [x[: batch.num_tokens] for x in wide[: len(inputs.rows)]] + wide[len(inputs.rows) :]
    states, record = inputs.states.astype(np.float64), inputs.record
    row = twin.OPERATORS[f"mlcc.{record.operator}"]
    assert isinstance(row, CachedOperator)
    cache = LayerCache(GROUP, {record.tensors[0]: states})
    return row.twin(StepView(batch), cache, *wide, **asdict(record)), states


def found(inputs: Inputs, batch: Batch, run: Run) -> tuple[Any, Any]:
    """(output, states afterwards) of a kernel, which changes nothing else."""
    shape = (len(inputs.rows[0]), *inputs.out)
    given = [*inputs.rows, *inputs.shared, words_of(batch), inputs.states.copy()]
    sequences = batch.num_sequences + BEYOND
    out = np.full(shape, 77, np.float32)
    after = run(inputs.record, inputs.layout, [*given, sequences, out])
    for before, array in zip(given[:-1], after, strict=False):
        np.testing.assert_array_equal(array, before)
    return after[-1][: batch.num_tokens], after[len(given) - 1]


def check_mixed(record: LayerRecord, run: Run) -> None:
    """Against the twin: sequences of all kinds in one step, and slots of others untouched."""
    batch = step_of(MIXED)
    inputs = inputs_of(record, batch.num_tokens)
    for mine, theirs in zip(found(inputs, batch, run), expected(inputs, batch), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=2e-5)
    np.testing.assert_array_equal(found(inputs, batch, run)[1][[3, 4]], inputs.states[[3, 4]])


def check_chunks(record: LayerRecord, run: Run) -> None:
    """A prompt in chunks, through other slots, is the prompt at once, to the bit."""
    inputs = inputs_of(record, 19)
    whole, states = found(inputs, step_of(((19, -1, 0),)), run)
    outputs, left = [], inputs.states
    for begin, end, source, slot in ((0, 4, -1, 3), (4, 5, 3, 3), (5, 11, 3, 1), (11, 19, 1, 1)):
        part = inputs.of(slice(begin, end))
        part = Inputs(record, part.rows, part.shared, left, part.out)
        out, left = found(part, step_of(((end - begin, source, slot),)), run)
        outputs.append(out)
    np.testing.assert_array_equal(np.concatenate(outputs), whole)
    np.testing.assert_array_equal(left[1], states[0])


def check_extremes(record: ScanShape, run: Run) -> None:
    """Steps of time of nothing and of e**88 keep the state, or forget it, and are no NaN."""
    batch = step_of(((5, 2, 2), (2, -1, 1)))
    inputs = inputs_of(record, batch.num_tokens)
    inputs.rows[1][:4] = np.array([-120.0, 60.0, -30.0, 88.0])[:, None]
    wanted = expected(inputs, batch)
    for mine, theirs in zip(found(inputs, batch, run), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-4)


def check_side_by_side(run: Callable[..., Any]) -> None:
    """Columns of three arrays, the widths of which no vector and no workgroup has."""
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((5, width)).astype(np.float32) for width in (20, 3, 300)]
    wanted = twin.side_by_side(*parts)
    (y,) = run(tuple((part.shape[1],) for part in parts), parts, [(wanted.shape, "float32")])
    np.testing.assert_array_equal(y, wanted)


def check_parts(parts: str, run: Callable[..., Any]) -> None:
    """`run(arguments, inputs, outputs)` takes parts of three groups as the twin does."""
    x = np.random.default_rng(0).standard_normal((5, 3 * 23)).astype(np.float32)
    wanted = twin.take_parts(x, 3, parts)
    (y,) = run(((69,), 3, parts), [x], [(wanted.shape, "float32")])
    np.testing.assert_array_equal(y, wanted)
