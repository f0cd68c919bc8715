"""Autoscaling: the number of replicas for a load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from mlcc.errors import InvalidRequestError
from mlcc.scale.autoscaling import desired, replica_policy
from mlcc.scale.options import Scale, read_autoscale


@pytest.mark.parametrize(
    ("current", "requests", "used", "expected"),
    [
        (2, 0, 0.0, 0),
        (0, 1, 0.0, 1),
        (1, 8, 0.1, 1),
        (1, 9, 0.1, 2),
        (2, 4, 0.81, 3),
        (2, 4, 0.8, 2),
        (4, 4, 0.2, 1),
    ],
)
def test_desired(current: int, requests: float, used: float, expected: int) -> None:
    assert desired(current, requests, used, ongoing=8) == expected


class Config:
    def get_target_ongoing_requests(self) -> float:
        return 8.0


@dataclass
class PolicyInput:
    """The argument that Ray Serve passes to a policy."""

    current_num_replicas: int
    total_num_requests: float
    aggregated_metrics: dict[str, dict[str, float]]
    config: Any = field(default_factory=Config)


def test_pages_of_all_replicas_count_together() -> None:
    metrics = {"pages": {"a": 100.0, "b": 100.0}, "pages_free": {"a": 0.0, "b": 20.0}}
    assert replica_policy(PolicyInput(2, 3, metrics)) == (3, {})
    assert replica_policy(PolicyInput(2, 3, {})) == (1, {})


@pytest.mark.parametrize("text", ["", "3", "1:", ":2", "a:b", "-1:2", "1:2:3", "²:3"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="MIN:MAX"):
        read_autoscale(text)


@pytest.mark.parametrize("pair", [(2, 1), (0, 0)])
def test_ranges_that_cannot_be(pair: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequestError, match="as in 1:4"):
        Scale(autoscale=pair)


def test_how_many_there_may_be() -> None:
    assert read_autoscale("0:4") == (0, 4)
    assert Scale(autoscale=(0, 4)).most == 4 and Scale(replicas=3).most == 3
