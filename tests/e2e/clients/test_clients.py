"""Real clients, unmodified, over loopback: a program for each (`programs/`), which tries one
feature and prints the result.

The model is scripted (`scripted.py`): it calls the tool that the question names, which a model of 4
million weights could not choose; the server, its engine, templates and grammars are the real ones.
Clients in .venv always run; the others (`--long` or `python3 dev.py clients`) are installed in
build/clients first.
"""

from __future__ import annotations

import json
import runpy
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.clients.environments import PROGRAMS, command_of

Answers = dict[str, Any]
TEXT = "17 + 25 is 42."


@dataclass(frozen=True)
class Client:
    """A client program, and the features that it uses."""

    name: str
    program: str
    features: str
    always: bool = False
    """Whether .venv always has its package."""


CLIENTS = (
    Client(
        "openai (Python)",
        "openai_python.py",
        "chat stream tools streamed_tools structured reasoning responses streamed_responses",
        always=True,
    ),
    Client(
        "anthropic (Python)",
        "anthropic_python.py",
        "chat stream tools streamed_tools reasoning",
        always=True,
    ),
    Client(
        "ollama (Python)",
        "ollama_python.py",
        "chat stream tools streamed_tools structured reasoning",
        always=True,
    ),
    Client(
        "huggingface_hub (TGI)",
        "huggingface_python.py",
        "chat stream tools structured generate streamed_generate",
        always=True,
    ),
    Client(
        "langchain-openai", "langchain_openai_.py", "chat stream tools streamed_tools structured"
    ),
    Client("litellm", "litellm_.py", "chat stream tools reasoning"),
    Client("instructor", "instructor_.py", "required_tool structured"),
    Client("openai-agents", "openai_agents_.py", "chat tools responses"),
    Client("pydantic-ai", "pydantic_ai_.py", "chat tools required_tool"),
    Client("llm", "llm_.py", "chat stream"),
    Client(
        "openai (JavaScript)",
        "openai_js.mjs",
        "chat stream tools streamed_tools structured responses",
    ),
    Client("@anthropic-ai/sdk", "anthropic_js.mjs", "chat stream tools streamed_tools"),
    Client(
        "ai + @ai-sdk/openai-compatible", "ai_sdk.mjs", "chat stream tools structured reasoning"
    ),
)


def called(answers: Answers) -> None:
    assert answers["calls"] == [["lookup", {"city": "Paris"}]]


def answered(answers: Answers) -> None:
    called(answers)
    assert answers["text"] == "The tool said: sunny"


def chatted(answers: Answers) -> None:
    assert answers["text"] == TEXT


def streamed(answers: Answers) -> None:
    assert "".join(answers["pieces"]) == TEXT and len(answers["pieces"]) > 1


def a_person(answers: Answers) -> None:
    assert answers.keys() == {"name", "age"}
    assert isinstance(answers["name"], str) and isinstance(answers["age"], int)


def thought(answers: Answers) -> None:
    assert answers == {"reasoning": "Let me see.", "text": "Hello! How can I help?"}


def responded(answers: Answers) -> None:
    assert answers["first"] == TEXT
    answered(answers)


def generated(answers: Answers) -> None:
    assert answers == {"text": TEXT, "reason": "eos_token"}


CHECKS: dict[str, Callable[[Answers], None]] = {
    "chat": chatted,
    "stream": streamed,
    "tools": answered,
    "streamed_tools": called,
    "required_tool": a_person,
    "structured": a_person,
    "reasoning": thought,
    "responses": responded,
    "streamed_responses": streamed,
    "generate": generated,
    "streamed_generate": streamed,
}


def rows() -> Iterator[Any]:
    for client in CLIENTS:
        for feature in client.features.split():
            marks = [pytest.mark.client(client.name, feature)]
            if not client.always:
                marks.append(pytest.mark.long)
            yield pytest.param(client, feature, marks=marks, id=f"{client.program}-{feature}")


@pytest.mark.parametrize(("client", "feature"), rows())
def test_a_client(scripted: str, client: Client, feature: str) -> None:
    answers = (
        _here(client, feature, scripted) if client.always else _apart(client, feature, scripted)
    )
    CHECKS[feature](answers)


def _here(client: Client, feature: str, url: str) -> Answers:
    """In this process, whose environment has the client: it is imported once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PROGRAMS)
        functions = runpy.run_path(str(PROGRAMS / client.program))
    found: Answers = json.loads(json.dumps(functions[feature](url)))
    return found


def _apart(client: Client, feature: str, url: str) -> Answers:
    command = [*command_of(client.program), url, feature]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: Answers = json.loads(done.stdout.splitlines()[-1])
    return found
