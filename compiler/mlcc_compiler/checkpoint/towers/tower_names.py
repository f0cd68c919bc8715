"""Which of a checkpoint's tensors are a tower's, and their names there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


def tower_names(
    names: Iterable[str], prefixes: Mapping[str, str], renamed: Callable[[str], str]
) -> dict[str, str]:
    """The tower's name of each tensor -> the checkpoint's, of those that begin with one of
    `prefixes`: the first that fits is replaced, and `renamed` does the rest."""
    found: dict[str, str] = {}
    for name in names:
        for prefix, replacement in prefixes.items():
            if name.startswith(prefix):
                found[renamed(replacement + name.removeprefix(prefix))] = name
                break
    return found
