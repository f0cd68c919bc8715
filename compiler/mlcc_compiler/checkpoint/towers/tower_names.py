"""Which of a checkpoint's tensors are a tower's, and their names there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


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


@dataclass(frozen=True)
class RenamedTensors(ABC):
    """Tensors of `base` under a tower's names; the others are absent."""

    base: Any

    is_quantized: ClassVar[bool] = False
    notes: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def _names(self) -> dict[str, str]:
        """The checkpoint's name of each tensor."""

    @property
    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors."""

    @property
    def schemes(self) -> dict[str, str]:
        """None: towers are quantized here."""
        return {}

    nearest = schemes

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is of a dtype that `read` refuses."""
        self.base.check_dtypes(self._names[name] for name in names if name in self._names)
