"""What a reader of the code visits on the way of one chat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.trace_chat import traced


def test_a_chat_of_one_token_is_read_in_few_files(
    compiled_demo: Callable[[str, str], Path],
) -> None:
    """An answer that reaches its reader in two parts takes five returns more: the first walk in
    which it does not counts."""
    model = compiled_demo("q4", "cpu")
    for _ in range(12):
        walk = traced(model)
        assert {file.partition("/")[0] for file in walk.files} >= {"api", "engine", "service"}
        assert len(walk.files) <= 50
        if walk.returns <= 200:
            break
    assert walk.returns <= 200
