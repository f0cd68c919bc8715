"""The bandwidth of a device's copies, from times of awaited ones."""

from __future__ import annotations

import pytest

from mlcc.device.kernel_log import copy_speed

GIB = 1 << 30


def test_the_wait_for_a_gpu_is_not_its_copy() -> None:
    """4 TB/s, and 2 ms until the host knows; a copy by itself would seem to have 0.9 TB/s."""
    waits = iter([3e6, 2e6, 2e6, 5e6, 9e6, 2e6, 4e6, 2e6])
    speed = copy_speed(lambda count: next(waits) + 2 * count / 4e3, GIB, repeats=4)
    assert speed == pytest.approx(4e12)


def test_times_that_say_nothing_of_the_size_give_the_lower_bound() -> None:
    assert copy_speed(lambda count: 2e6, GIB) == 2e9 * GIB / 2e6
    assert copy_speed(lambda count: 2e6 - count / GIB, GIB) == pytest.approx(2e9 * GIB / 2e6)
