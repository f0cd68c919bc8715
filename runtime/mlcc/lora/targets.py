"""Selects the modules that an adapter applies to, by PEFT's rules: a list of name suffixes, a
regular expression, or "all-linear"; without `exclude_modules`, and only in `layers_to_transform`.

An expression that could take too long to match (unsloth writes such a one) is not matched: the
tensors' names say which modules were adapted.
"""

from __future__ import annotations

import re

from mlcc.errors import ArtifactError
from mlcc.util.fast_dataclass import fast_dataclass

ALL_LINEAR = "all-linear"
AS_STORED = "as-stored"
"""In place of an expression that is not matched."""
MOST_REPEATS, LONGEST_PATTERN = 4, 2000
"""Patterns are untrusted: few repeats, and none of a group, bound the time of a match."""
_REPEATED_GROUP = re.compile(r"(?<!\\)\)(?:[*+]|\{)")
_REPEAT = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")
_LAYER = re.compile(r".*?\.[^.]*\.(\d+)\.")

Pattern = str | tuple[str, ...]
"""A regular expression for whole names, or a tuple of names and name suffixes."""


@fast_dataclass(frozen=True)
class Targets:
    """The target fields of adapter_config.json; checked by `pattern_of`."""

    modules: Pattern
    excluded: Pattern = ()
    layers: tuple[int, ...] | None = None
    """None = all of them."""
    layer_names: tuple[str, ...] = ()
    """Text before a layer's number; () = any."""

    def match(self, module: str) -> bool:
        """Whether the adapter applies to a linear layer of the model; never to its head."""
        if self.excluded not in ((), AS_STORED) and _fits(self.excluded, module):
            return False
        if self.modules in (ALL_LINEAR, AS_STORED):
            return True
        return _fits(self.modules, module) and (self.layers is None or self._of_layers(module))

    @property
    def are_named(self) -> bool:
        """Whether `match` finds the modules that an adapter must have."""
        return AS_STORED not in (self.modules, self.excluded)

    def _of_layers(self, module: str) -> bool:
        if self.layer_names:
            patterns = [rf".*\.{re.escape(name)}\.(\d+)\." for name in self.layer_names]
            found = [match for each in patterns if (match := re.match(each, module))]
        else:
            found = [match for match in [_LAYER.match(module)] if match]
        return bool(found) and int(found[0].group(1)) in (self.layers or ())


def pattern_of(field: str, value: object, *, may_be_stored: bool = False) -> Pattern:
    """The checked value of a field; AS_STORED, if it may be, for an expression that could take too
    long. Raises ArtifactError for other forms than PEFT's."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if not isinstance(value, str):
        raise ArtifactError(f"{field} is {value!r:.60}; it must be a list of names or a pattern")
    if value == ALL_LINEAR:
        return value
    repeats = len(_REPEAT.findall(value))
    if len(value) > LONGEST_PATTERN or repeats > MOST_REPEATS or _REPEATED_GROUP.search(value):
        if may_be_stored:
            return AS_STORED
        raise ArtifactError(
            f"{field} is a pattern that could take for ever to match ({value[:60]!r}): at most "
            f"{MOST_REPEATS} repeats, none of a group; write it as a list of names"
        )
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise ArtifactError(f"{field} is no regular expression ({error}): {value[:60]!r}") from None
    return value


def _fits(pattern: Pattern, module: str) -> bool:
    if isinstance(pattern, str):
        return re.fullmatch(pattern, module) is not None
    return any(module == end or module.endswith(f".{end}") for end in pattern)
