"""The bounds of a model and its service: one row each, with name, range, default and meaning.

The command line makes options of these rows; `Engine` in Python, mlcc.h and the tab check their
arguments against them, under their own names. `model.memory` decides what fits a model and the
memory. Standard library only.
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
    """One number within [least, most]; `above` excludes `least`."""

    name: str
    """The name in Python, mlcc.h and JSON."""
    meaning: str
    """The text for `--help`; the default in brackets."""
    least: Number = 1
    most: Number = math.inf
    above: bool = False
    default: Number | None = None
    """None = depends on the model, the machine or the free memory."""
    unit: str = ""
    whole: bool = True
    """An integer."""
    flag: str = ""
    """The command line's flag, if it is not the name with dashes."""

    @property
    def option(self) -> str:
        """The flag on the command line."""
        return self.flag or "--" + self.name.replace("_", "-")

    @property
    def range(self) -> str:
        """The range in words: "from 1 on", "above 0 and at most 1"."""
        least = f"above {self.least}" if self.above else f"from {self.least}"
        if self.most == math.inf:
            return least if self.above else f"{least} on"
        return f"{least} and at most {self.most}" if self.above else f"{least} to {self.most}"

    def check(self, value: object, spelled: str = "") -> Number:
        """The value as a number. Raises InvalidRequestError with the name (`spelled`), the value
        and the range."""
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
        """Whether a value is a number within the range."""
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
            "max_body_bytes", "Largest request in bytes; 32 MiB by default for models that see or "
            "hear.",
            least=1024, default=4 * MIB, unit="bytes", flag="--max-body",
        ),
        Bound(
            "max_file_bytes", "Largest file of a batch in bytes.", least=1024, default=200 * MIB,
            unit="bytes", flag="--max-file",
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
        Bound("max_images", "Images of a request.", most=16, default=16),
        Bound(
            "max_image_bytes", "All images of a request, as they are sent.", most=20_000_000,
            default=20_000_000, unit="bytes",
        ),
        Bound(
            "max_image_pixels", "All images of a request, before they are resized.",
            most=50_000_000, default=50_000_000, unit="pixels",
        ),
        Bound("max_audios", "Sounds in the prompt of a request.", most=16, default=16),
        Bound(
            "max_audio_bytes", "All sounds in a prompt, as they are sent.", most=20_000_000,
            default=20_000_000, unit="bytes",
        ),
        Bound(
            "max_audio_seconds", "A sound in a prompt.", most=600, default=600, unit="seconds",
        ),
        Bound(
            "max_image_side", "A side of an image.", most=16_384, default=16_384, unit="pixels",
        ),
    )
}  # fmt: skip
"""By name."""
IN_OTHERS = ("draft_tokens",)
"""Bounds that are a part of another option."""
FIXED = (
    "max_images", "max_image_bytes", "max_image_pixels", "max_image_side", "max_audios",
    "max_audio_bytes", "max_audio_seconds",
)  # fmt: skip
"""Bounds that no option changes: the memory and time of the processes that decode images and sound
are planned from them."""
ONLY_IN_APPS = ("memory_bytes", "max_unread_bytes")
"""Bounds of mlcc.h and the tab, which cannot read the free memory, or have no sockets."""


def default(name: str) -> Any:
    """The default of a bound that has one: an int, or a float if it is not whole."""
    value = BOUNDS[name].default
    assert value is not None, name
    return value


def body_bytes(reads_media: bool) -> int:
    """The default of `max_body_bytes` for a model. One that sees or hears gets the images and
    sounds of a request as base64."""
    return 32 * MIB if reads_media else int(default("max_body_bytes"))


def check_all(given: Mapping[str, object]) -> None:
    """Check the values that are bounds; None = default. Raises InvalidRequestError for the first
    that is out of range."""
    for name, value in given.items():
        if name in BOUNDS and value is not None:
            BOUNDS[name].check(value)


def table() -> str:
    """All bounds as a Markdown table, for docs/options.md."""
    rows = ["| name | option | range | default | what it bounds |", "|---|---|---|---|---|"]
    for bound in BOUNDS.values():
        option = f"`{bound.option}`" if bound.name not in ONLY_IN_APPS else "apps only"
        option = "fixed" if bound.name in FIXED else option
        meaning, _, suits = bound.meaning.partition("  [")
        value = suits.rstrip("]") or "what fits" if bound.default is None else f"{bound.default}"
        unit = f" {bound.unit}" if bound.unit and bound.default is not None else ""
        rows.append(f"| `{bound.name}` | {option} | {bound.range} | {value}{unit} | {meaning} |")
    return "\n".join(rows)
