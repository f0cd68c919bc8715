"""Hostile schemas and grammars are refused, or compiled within bounds; other requests go on.

Each runs in a prompt process of the server, with its bound on memory, and a shorter one on time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.model.model import ModelText
from mlcc.model.structured_output.llguidance import native_grammars
from mlcc.model.tokenizer.tokenizer import FileTokenizer
from mlcc.server.prompts.prompt_pool import MEMORY_BYTES, PromptWorker
from mlcc.server.prompts.prompt_worker import PromptJob
from tests.runtime.structured_output.hostile import hostile

pytest.importorskip("llguidance", reason="needs llguidance: pip install mlcc[structured]")

TOKENIZER = Path(__file__).parents[3] / "examples" / "demo" / "model" / "tokenizer.json"
COSTLY = {"many properties", "many required", "a million", "doubling", "many rules"}
"""Grammars that may exceed the time limit."""
SECONDS = 20.0


def demo_text() -> ModelText:
    grammars = native_grammars(lambda: TOKENIZER.read_text(encoding="utf-8"), 1280, [3])
    return ModelText("demo", FileTokenizer(TOKENIZER), ChatTemplate("x"), frozenset([3]),
                     grammars=grammars)  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> Iterator[PromptWorker]:
    made = PromptWorker(demo_text, MEMORY_BYTES)
    yield made
    made.close()


@pytest.mark.parametrize(("name", "structure"), [*hostile()], ids=lambda v: getattr(v, "kind", v))
def test_harm_ends_with_an_error_or_is_none(
    worker: PromptWorker, name: str, structure: Structure
) -> None:
    reply = worker.ask(PromptJob(structure), SECONDS)
    if isinstance(reply, (InvalidRequestError, UnsupportedError)):
        assert structure.field in reply.message and reply.param == structure.field
        if reply.code == "structure_too_costly":
            assert name in COSTLY
    else:
        assert len(reply) == 0
    fine = Structure("json_schema", json.dumps({"const": name}))
    assert not isinstance(worker.ask(PromptJob(fine)), Exception), "it must go on for others"


def test_what_is_no_grammar_is_refused_by_the_process(worker: PromptWorker) -> None:
    for structure in (Structure("regex", "(", "f"), Structure("json_schema", '{"type": 1}', "f")):
        reply = worker.ask(PromptJob(structure), SECONDS)
        assert isinstance(reply, InvalidRequestError) and reply.param == "f"
