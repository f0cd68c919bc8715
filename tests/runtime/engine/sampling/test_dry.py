"""DRY against a naive twin that searches all repetitions again for each token."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.engine.sampling.dry import Dry, DryParams
from tests.runtime.engine.helpers.naive import dry_penalties


def breaks(token: int) -> bool:
    return token == 0


tokens = st.lists(st.integers(0, 3), max_size=40)


@settings(max_examples=200, deadline=None)
@given(
    st.builds(
        DryParams,
        st.sampled_from([0.8, 2.0]),
        st.sampled_from([1.0, 1.75]),
        st.integers(0, 4),
        st.sampled_from([-1, 0, 1, 5, 12]),
    ),
    tokens,
    tokens,
)
def test_penalties_are_those_of_the_twin(
    params: DryParams, prompt: list[int], output: list[int]
) -> None:
    dry = Dry(params, prompt, breaks)
    for i in range(len(output) + 1):
        assert dry.penalties() == dry_penalties(params, [*prompt, *output[:i]], breaks)
        if i < len(output):
            dry.push(output[i])


def test_a_token_repeated_without_end_is_penalized_within_bounds() -> None:
    dry = Dry(DryParams(1.0, 4.0, 2, -1), [1] * 5000, lambda _: False)
    assert dry.penalties() == {1: 1e6}
