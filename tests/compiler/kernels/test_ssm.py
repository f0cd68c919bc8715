"""Operators with a state per sequence, against their twins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ssm as twin
from mlcc_compiler.ir.caches import CacheLayout, LayerRecord
from mlcc_compiler.kernels.cpu.elementwise.concat import side_by_side, take_parts
from mlcc_compiler.kernels.cpu.ssm.conv import causal_conv
from mlcc_compiler.kernels.cpu.ssm.delta_rule import delta_rule
from mlcc_compiler.kernels.cpu.ssm.selective_scan import selective_scan
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.concat import side_by_side as gpu_side_by_side
from mlcc_compiler.kernels.gpu.elementwise.concat import take_parts as gpu_take_parts
from mlcc_compiler.kernels.gpu.ssm.conv import causal_conv as gpu_causal_conv
from mlcc_compiler.kernels.gpu.ssm.delta_rule import delta_rule as gpu_delta_rule
from mlcc_compiler.kernels.gpu.ssm.selective_scan import selective_scan as gpu_selective_scan
from tests.compiler.kernels.cases.cpu_kernels import BEST, CPUS, Cpu, call, run
from tests.compiler.kernels.cases.gpu_kernels import F32, SMALL, VULKAN, on_vulkan
from tests.compiler.kernels.cases.gpu_kernels import call as gpu_call
from tests.compiler.kernels.cases.gpu_kernels import run as gpu_run
from tests.compiler.kernels.cases.ssm import (
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
GPU_KERNELS = {k.__name__: k for k in (gpu_causal_conv, gpu_delta_rule, gpu_selective_scan)}


def on(
    cpu: Cpu, record: LayerRecord, layout: CacheLayout, arguments: Sequence[Any]
) -> Sequence[Any]:
    """Run the record's kernel."""
    return call(KERNELS[record.operator], (layout, record), arguments, cpu)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize("record", STATES, ids=str)
def test_sequences_of_a_step(cpu: Cpu, record: LayerRecord) -> None:
    check_mixed(record, partial(on, cpu))


@pytest.mark.parametrize("record", CHUNKED, ids=str)
def test_a_prompt_in_chunks(record: LayerRecord) -> None:
    check_chunks(record, partial(on, BEST))


def test_any_step_of_time() -> None:
    check_extremes(SCANS[0], partial(on, BEST))


@pytest.mark.parametrize("parts", PARTS)
def test_take_parts(parts: str) -> None:
    check_parts(parts, partial(run, take_parts))


def test_columns_side_by_side() -> None:
    check_side_by_side(partial(run, side_by_side))


def test_the_twin_takes_parts_of_groups() -> None:
    x = np.arange(6)[None]
    np.testing.assert_array_equal(twin.take_parts(x, 2, "[[1, 2], [0, 1]]"), [[1, 2, 4, 5, 0, 3]])


def gpu_on(
    gpu: Gpu, record: LayerRecord, layout: CacheLayout, arguments: Sequence[Any]
) -> Sequence[Any]:
    """Run the record's kernel."""
    return gpu_call(GPU_KERNELS[record.operator], (layout, record), arguments, gpu)


@on_vulkan
@pytest.mark.parametrize("gpu", [F32, SMALL, VULKAN], ids=["256", "64", "subgroups"])
@pytest.mark.parametrize("record", STATES, ids=str)
def test_gpu_sequences_of_a_step(gpu: Gpu, record: LayerRecord) -> None:
    check_mixed(record, partial(gpu_on, gpu))


@on_vulkan
@pytest.mark.parametrize("record", CHUNKED, ids=str)
def test_gpu_a_prompt_in_chunks(record: LayerRecord) -> None:
    check_chunks(record, partial(gpu_on, F32))


@on_vulkan
def test_gpu_any_step_of_time() -> None:
    check_extremes(SCANS[0], partial(gpu_on, F32))


@on_vulkan
@pytest.mark.parametrize("parts", PARTS)
def test_gpu_take_parts(parts: str) -> None:
    check_parts(parts, partial(gpu_run, gpu_take_parts))


@on_vulkan
def test_gpu_columns_side_by_side() -> None:
    check_side_by_side(partial(gpu_run, gpu_side_by_side))
