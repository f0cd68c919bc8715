"""Target `reference`: numpy evaluates the graph before lowering; the oracle of other targets."""

from __future__ import annotations

from mlcc_targets.target import Choices, Target


def target(choices: Choices) -> Target:
    """The row: the library is the graph itself, as JSON, so there is nothing to link."""
    return Target(name="reference", device="numpy", library="graph.json", limits={"fp8_kv": 1})
