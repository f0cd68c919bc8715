"""Answers constrained by schemas and regular expressions, by real kernels' masks."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from mlcc.engine import Finished, Request, SamplingParams, TextDelta
from mlcc.engine.sampling.grammar import Structure
from mlcc.model.driver import Driver
from mlcc.model.model import Model
from tests.e2e.demo.conftest import Opened

pytest.importorskip("llguidance", reason="needs llguidance: pip install mlcc[structured]")

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
STRUCTURES = (
    Structure("json_schema", json.dumps(PERSON)),
    Structure("regex", "[a-c]{4}[0-9]{2}"),
    Structure("choice", '["positive", "negative"]'),
    Structure("grammar", 'root ::= "(" [0-9]+ ")" | "none"'),
    None,
)
TARGETS = {"cpu": "cpu", "vulkan": "vulkan-f32", "reference": "reference"}


def on(target: str) -> Any:
    return pytest.param(target, marks=pytest.mark.feature("structured", target, "runs"))


def answers(model: Model, temperature: float) -> list[tuple[str, str]]:
    """(text, reason) of each, all made together."""
    assert model.text.grammars is not None
    driver, prompt = Driver(model), model.text.encode_prompt("Once upon a time")
    texts, reasons = [""] * len(STRUCTURES), [""] * len(STRUCTURES)
    for n, structure in enumerate(STRUCTURES):
        most = 24 if n else 120  # of the person, who ends in fewer
        sampling = SamplingParams(temperature=temperature, seed=n, max_tokens=most)
        request = Request(str(n), prompt, sampling, structure=structure)
        driver.engine.add(request, structure and model.text.grammars.open(structure))
    while driver.has_work:
        for event in driver.step():
            if isinstance(event, TextDelta):
                texts[int(event.request_id)] += event.text
            elif isinstance(event, Finished):
                reasons[int(event.request_id)] = event.reason
    return list(zip(texts, reasons, strict=True))


@pytest.mark.parametrize("temperature", (0.0, 1.0))
@pytest.mark.parametrize("target", [*map(on, TARGETS)])
def test_answers_are_what_was_wanted(opened: Opened, target: str, temperature: float) -> None:
    """Several constrained answers in one batch, with an unconstrained one."""
    found = answers(opened("f32", TARGETS[target]), temperature)
    person, regex, choice, grammar, free = (text for text, _ in found)
    assert [reason for _, reason in found[1:3]] == ["stop"] * 2
    assert found[0][1] == "stop", "the name is bounded, and spaces are"
    jsonschema.validate(json.loads(person), PERSON)
    assert re.fullmatch("[a-c]{4}[0-9]{2}", regex) and choice in ("positive", "negative")
    wanted = r"\([0-9]+\)|none" if found[3][1] == "stop" else r"\([0-9]+"
    assert re.fullmatch(wanted, grammar), grammar
    assert free
