"""Numbers of bytes as text: short, and different for different numbers."""

from __future__ import annotations

import pytest

from mlcc.util.sizes import apart, size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.50 kB"),
        (10**6, "1.00 MB"),
        (12_340_000_000, "12.34 GB"),
    ],
)
def test_the_unit_follows_the_size(count: int, text: str) -> None:
    assert size(count) == text


def test_different_counts_never_look_equal() -> None:
    assert apart(4_001_000_000, 4_000_000_000) == ("4.001 GB", "4.000 GB")
    assert apart(4_000_000_001, 4_000_000_000) == ("4.000000001 GB", "4.000000000 GB")
    assert apart(10_500_000, 10_400_000) == ("10.50 MB", "10.40 MB")
    assert apart(7, 7) == ("7 B", "7 B")
