"""Stop strings count in the content of an answer, and the token limit leaves no markup in it: for
the answers of all model families, in pieces of all sizes. The right values are the family's own
content, reasoning and calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from mlcc.api.parsers.deltas import CallDelta, ContentDelta, Delta, ReasoningDelta
from mlcc.api.parsers.output_format import OutputFormat, new_content_parser, output_format_of
from mlcc.api.schema.tool_fields import Tool, ToolUse
from mlcc.engine.text.stop_checker import ContentStopChecker, ParserSpec
from mlcc.errors import InvalidRequestError
from tests.runtime.parsers.model_families import FAMILIES, Family
from tests.runtime.parsers.tools_formats import SAMPLES, TOOLS, Sample

USE = ToolUse(tuple(Tool(name, schema) for name, schema in TOOLS.items()))
by_name = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


class Parsed(NamedTuple):
    content: str
    thought: str
    calls: list[tuple[str, Any]]


def format_of(family: Family) -> tuple[OutputFormat, bool]:
    """The format of a family's answers, and whether the prompt begins the reasoning."""
    found = output_format_of(family.source)
    return found, found.opened(family.ends_in)


def parsed(family: Family, text: str, cut: bool = False) -> Parsed:
    found, opened = format_of(family)
    parser = found.parser(USE, opened, lambda: "id")
    assert parser is not None
    return joined([*parser.push(text), *parser.flush(cut)])


def joined(deltas: Sequence[Delta]) -> Parsed:
    return Parsed(
        "".join(d.text for d in deltas if isinstance(d, ContentDelta)),
        "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)),
        [(d.name, json.loads(d.arguments)) for d in deltas if isinstance(d, CallDelta)],
    )


def stopped(family: Family, text: str, stops: Sequence[str], size: int, include: bool) -> str:
    """The text that is let through, in pieces of this size."""
    found, opened = format_of(family)
    spec = found.parser_spec(USE, opened)
    assert spec is not None
    checker = ContentStopChecker(stops, include, new_content_parser(spec))
    out = ""
    for at in range(0, len(text), size):
        out += checker.push(text[at : at + size])
        if checker.matched is not None:
            return out
    return out + checker.flush()


def stops_of(family: Family) -> Iterator[str]:
    """Stop strings: from the reasoning, the calls, the gaps between them, the content, nowhere."""
    yield from ("\n", "\n\n", "Rome", "get_weather", "Then", "<", "{", '"', "nowhere", "ask", "I")
    yield from (family.answer[at : at + 3] for at in range(0, len(family.answer) - 3, 41))


@by_name
def test_a_stop_string_counts_in_the_content_alone(family: Family) -> None:
    whole = parsed(family, family.answer)
    for number, stop in enumerate(stops_of(family)):
        before, found, _ = whole.content.partition(stop)
        for include in (False, True):
            text = stopped(family, family.answer, [stop], number % 7 + 1, include)
            made = parsed(family, text)
            assert made.thought == whole.thought
            assert made.content == before + (found if include else "")
            assert made.calls == ([] if found else whole.calls)


@by_name
def test_a_stop_string_of_an_answer_without_calls(family: Family) -> None:
    found, opened = format_of(family)
    thought = f"{THOUGHT}{found.tags.close}\n\n" if found.tags and opened else ""
    frame = "<|channel|>final<|message|>" if found.channels else ""
    answer = f"{thought}{frame}Hello.\n\nQuestion: more"
    for stop in ("Question:", "\n", "\n\nQ", "Hello.\n", " more"):
        for size in (1, 2, 5):
            made = parsed(family, stopped(family, answer, ["never", stop], size, False))
            assert made.content == "Hello.\n\nQuestion: more".partition(stop)[0]
            assert made.thought == (THOUGHT if thought else "")


THOUGHT = "First.\n\nQuestion: what?"


@by_name
def test_an_answer_cut_by_the_limit_has_no_markup(family: Family) -> None:
    whole = parsed(family, family.answer)
    for end in range(0, len(family.answer), 2):
        made = parsed(family, family.answer[:end], cut=True)
        assert whole.content.startswith(made.content.rstrip())
        assert whole.thought.startswith(made.thought)
        assert made.calls == whole.calls[: len(made.calls)]


@pytest.mark.parametrize("text", ['{"answer": [1, 2', "[1, 2, 3", "see [1", '{"name": "Ada", "a'])
def test_json_that_is_no_call_is_kept_when_it_is_cut(text: str) -> None:
    parser = OutputFormat().named("json").parser(USE, False, str)
    assert parser is not None
    assert joined([*parser.push(text), *parser.flush(cut=True)]).content == text


@pytest.mark.parametrize(
    "sample", SAMPLES, ids=lambda sample: f"{sample.format}-{sample.text[:20]}"
)
def test_a_call_of_any_format_cut_by_the_limit(sample: Sample) -> None:
    tags = "harmony" if sample.format == "harmony" else None
    for end in range(1, len(sample.text), 3):
        parser = OutputFormat().named(sample.format, tags).parser(USE, False, lambda: "id")
        assert parser is not None
        made = joined([*parser.push(sample.text[:end]), *parser.flush(cut=True)])
        assert sample.content.strip().startswith(made.content.strip()), sample.text[:end]
        assert made.calls == sample.calls[: len(made.calls)]


def test_a_parser_from_elsewhere_is_checked() -> None:
    for spec in (
        ParserSpec("nothing"),
        ParserSpec("hermes"),
        ParserSpec("hermes", "nothing"),
        ParserSpec("hermes", "think", schemas="[1]"),
        ParserSpec("hermes", "think", schemas="{"),
    ):
        with pytest.raises(InvalidRequestError):
            new_content_parser(spec)
