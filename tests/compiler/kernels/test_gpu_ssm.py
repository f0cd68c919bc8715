"""Operators that keep a state a sequence, on a GPU, beside their twins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from mlcc_compiler.ir.caches import CacheLayout, LayerRecord
from mlcc_compiler.kernels.gpu.concat import side_by_side, take_parts
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.ssm.conv import causal_conv
from mlcc_compiler.kernels.gpu.ssm.delta_rule import delta_rule
from mlcc_compiler.kernels.gpu.ssm.selective_scan import selective_scan
from tests.compiler.kernels.gpu_kernels import F32, SMALL, call, run
from tests.compiler.kernels.ssm_cases import (
    CHUNKED,
    PARTS,
    SCANS,
    STATES,
    check_chunks,
    check_extremes,
    check_mixed,
    check_parts,
    check_side_by_side,
)

KERNELS = {k.__name__: k for k in (causal_conv, delta_rule, selective_scan)}
pytestmark = pytest.mark.usefixtures("vulkan")


def on(
    gpu: Gpu, record: LayerRecord, layout: CacheLayout, arguments: Sequence[Any]
) -> Sequence[Any]:
    """Run the record's kernel."""
    return call(KERNELS[record.operator], (layout, record), arguments, gpu)


@pytest.mark.parametrize("gpu", [F32, SMALL], ids=["256", "64"])
@pytest.mark.parametrize("record", STATES, ids=str)
def test_sequences_of_a_step(gpu: Gpu, record: LayerRecord) -> None:
    check_mixed(record, partial(on, gpu))


@pytest.mark.parametrize("record", CHUNKED, ids=str)
def test_a_prompt_in_chunks(record: LayerRecord) -> None:
    check_chunks(record, partial(on, F32))


def test_any_step_of_time() -> None:
    check_extremes(SCANS[0], partial(on, F32))


@pytest.mark.parametrize("parts", PARTS)
def test_take_parts(parts: str) -> None:
    check_parts(parts, partial(run, take_parts))


def test_columns_side_by_side() -> None:
    check_side_by_side(partial(run, side_by_side))
