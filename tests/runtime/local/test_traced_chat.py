"""What a reader of the code visits on the way of one chat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.trace_chat import traced


def test_a_chat_of_one_token_is_read_in_few_files(
    compiled_demo: Callable[[str, str], Path],
) -> None:
    """Returns depend on how threads take turns: the least of three walks counts."""
    model = compiled_demo("q4", "cpu")
    walks = [traced(model) for _ in range(3)]
    assert {file.partition("/")[0] for file in walks[0].files} >= {"api", "engine", "service"}
    assert max(len(walk.files) for walk in walks) <= 50
    assert min(walk.returns for walk in walks) <= 200
