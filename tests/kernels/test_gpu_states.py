"""Operators that keep a state a sequence, on a GPU, beside their twins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu_kernels import F32, SMALL, call, normal, run
from state_cases import CONVS, DELTAS, check_chunks, check_mixed

from mlcc.device import reference_states as twin
from mlcc_compiler.caches import CacheLayout, LayerRecord
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.parts import take_parts
from mlcc_compiler.kernels.gpu.state.conv import causal_conv
from mlcc_compiler.kernels.gpu.state.delta import delta_rule
from mlcc_compiler.states import ConvShape

pytestmark = pytest.mark.usefixtures("vulkan")


def on(
    gpu: Gpu, record: LayerRecord, layout: CacheLayout, arguments: Sequence[Any]
) -> Sequence[Any]:
    """Run the record's kernel."""
    factory = causal_conv if isinstance(record, ConvShape) else delta_rule
    return call(factory, (layout, record), arguments, gpu)


@pytest.mark.parametrize("gpu", [F32, SMALL], ids=["256", "64"])
@pytest.mark.parametrize("record", [*CONVS, *DELTAS], ids=str)
def test_sequences_of_a_step(gpu: Gpu, record: LayerRecord) -> None:
    check_mixed(record, partial(on, gpu))


@pytest.mark.parametrize("record", [CONVS[0], DELTAS[0]], ids=str)
def test_a_prompt_in_chunks(record: LayerRecord) -> None:
    check_chunks(record, partial(on, F32))


@pytest.mark.parametrize("parts", ["[[0, 20], [20, 3]]", "[[3, 16]]", "[[22, 1], [0, 4], [4, 8]]"])
def test_take_parts(parts: str) -> None:
    x = normal(0, 5, 3 * 23)
    expected = twin.take_parts(x, 3, parts)
    (y,) = run(take_parts, ((69,), 3, parts), [x], [(expected.shape, "float32")])
    np.testing.assert_array_equal(y, expected)
