"""What every way in bounds: one row for each bound, with its name, range, default and meaning.

`mlcc serve` and the other commands make their options of the rows, `Engine` in Python, mlcc.h and
the tab check what they are given by them, under the names that they use. What of it fits a model
and its memory is decided where the model is known (`model.memory`). The standard library alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlcc.errors import InvalidRequestError
from mlcc.util.fast_dataclass import fast_dataclass

Number = int | float
MIB = 1 << 20


@fast_dataclass(frozen=True)
class Bound:
    """One number. `least` and `most` may be had, `least` not if the bound lies `above` it."""

    name: str
    """As Python, mlcc.h and JSON spell it."""
    meaning: str
    """The words of `--help`."""
    least: Number = 1
    most: Number = math.inf
    above: bool = False
    default: Number | None = None
    """None = what the model, the machine or the caller's memory allow."""
    unit: str = ""
    whole: bool = True
    """An integer."""
    flag: str = ""
    """Of the command line, where it is not the name with dashes."""

    @property
    def option(self) -> str:
        """As the command line spells it."""
        return self.flag or "--" + self.name.replace("_", "-")

    @property
    def range(self) -> str:
        """In words: "from 1 on", "above 0 and at most 1"."""
        least = f"above {self.least}" if self.above else f"from {self.least}"
        if self.most == math.inf:
            return least if self.above else f"{least} on"
        return f"{least} and at most {self.most}" if self.above else f"{least} to {self.most}"

    def check(self, value: object, spelled: str = "") -> Number:
        """The number. Raises InvalidRequestError that says under which name (`spelled`) what was
        given, and what may be."""
        kinds = (int,) if self.whole else (int, float)
        if isinstance(value, kinds) and not isinstance(value, bool) and self._holds(value):
            return value
        what = "an integer" if self.whole else "a number"
        unit = f" ({self.unit})" if self.unit else ""
        raise InvalidRequestError(
            f"{spelled or self.name} is {value!r}; it must be {what} {self.range}{unit}",
            code="bad_options",
            param=self.name,
        )

    def _holds(self, value: Number) -> bool:
        """Whether it is in the range; what is no number is not."""
        return self.least <= value <= self.most and not (self.above and value == self.least)


BOUNDS = {
    bound.name: bound
    for bound in (
        Bound("threads", "Kernel threads.  [all usable cores]", most=4096),
        Bound("context", "Longest sequence in tokens.", least=16, unit="tokens"),
        Bound("max_batch", "Requests answered at once."),
        Bound("max_step_tokens", "Tokens computed at once.", unit="tokens"),
        Bound("max_rows", "Tokens sampled at once."),
        Bound("device", "GPU by number, see `mlcc targets`.  [the best]", least=0),
        Bound(
            "memory",
            "Share of the free memory for weights and pages.  [what requests need, 4 times, and "
            "0.85 at most]",
            least=0, above=True, most=1, whole=False,
        ),
        Bound("memory_bytes", "Weights, caches and workspace together.", unit="bytes"),
        Bound("kv_pages", "Pages for all requests together."),
        Bound(
            "draft_tokens", "Draft tokens per step.", most=64, default=8,
            unit="tokens", flag="--speculate lookup:N",
        ),
        Bound("max_queue", "Requests that may wait.", least=0, default=64),
        Bound(
            "max_body_bytes", "Largest request in bytes.", least=1024, default=4 * MIB,
            unit="bytes", flag="--max-body",
        ),
        Bound(
            "timeout_s", "Longest time for an answer in seconds.", least=0, above=True,
            default=600, unit="seconds", whole=False, flag="--timeout",
        ),
        Bound("max_connections", "Clients that may be connected.", default=1000),
        Bound(
            "max_unread_bytes", "Events that an app has not taken.", least=0, default=16 * MIB,
            unit="bytes",
        ),
    )
}  # fmt: skip
"""By name."""
IN_OTHERS = ("draft_tokens",)
"""Said within another option."""
ONLY_IN_APPS = ("memory_bytes", "max_unread_bytes")
"""Of mlcc.h and the tab, where the system does not say or nobody reads sockets."""


def default(name: str) -> Any:
    """Of a bound that has one: an int, or a float where it is no whole number."""
    value = BOUNDS[name].default
    assert value is not None, name
    return value


def check_all(given: Mapping[str, object]) -> None:
    """Those that are bounds; None is what suits. Raises InvalidRequestError for the first that is
    out of its range."""
    for name, value in given.items():
        if name in BOUNDS and value is not None:
            BOUNDS[name].check(value)


def table() -> str:
    """All of them as Markdown, as docs/options.md has it."""
    rows = ["| name | option | range | default | what it bounds |", "|---|---|---|---|---|"]
    for bound in BOUNDS.values():
        option = f"`{bound.option}`" if bound.name not in ONLY_IN_APPS else "apps only"
        meaning, _, suits = bound.meaning.partition("  [")
        value = suits.rstrip("]") or "what fits" if bound.default is None else f"{bound.default}"
        unit = f" {bound.unit}" if bound.unit and bound.default is not None else ""
        rows.append(f"| `{bound.name}` | {option} | {bound.range} | {value}{unit} | {meaning} |")
    return "\n".join(rows)
