"""Every tool parser parses its models' answers, however the text is cut into pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.api.parsers.deltas import CallDelta, ContentDelta, Delta, OutputParser, ReasoningDelta
from mlcc.api.parsers.output_format import OutputFormat
from mlcc.api.parsers.reasoning import REASONING_TAGS, ReasoningParser
from mlcc.api.parsers.tools.registry import FORMATS
from mlcc.api.schema.tool_fields import Tool, ToolUse
from tests.runtime.parsers.tools_formats import MALFORMED, SAMPLES, TOOLS, Malformed, Sample

USE = ToolUse(tuple(Tool(name, schema) for name, schema in TOOLS.items()))


def parser(name: str) -> OutputParser:
    numbers = count()
    thoughts = "harmony" if name == "harmony" else "none"
    made = OutputFormat().named(name, thoughts).parser(USE, False, lambda: f"call_{next(numbers)}")
    assert made is not None
    return made


def joined(pieces: Sequence[Delta]) -> tuple[str, str, list[tuple[str, str, Any]]]:
    """Content, reasoning and calls."""
    content = "".join(p.text for p in pieces if isinstance(p, ContentDelta))
    thought = "".join(p.text for p in pieces if isinstance(p, ReasoningDelta))
    calls: dict[int, tuple[str, str, str]] = {}
    for p in pieces:
        if isinstance(p, CallDelta):
            id, name, arguments = calls.get(p.index, (p.id, p.name, ""))
            calls[p.index] = id, name, arguments + p.arguments
    return content, thought, [(id, name, json.loads(args)) for id, name, args in calls.values()]


def read(made: OutputParser, pieces: Sequence[str]) -> tuple[str, str, list[tuple[str, str, Any]]]:
    found = [piece for text in pieces for piece in made.push(text)]
    return joined([*found, *made.flush()])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s.format}:{s.text[:40]}")
def test_reads(sample: Sample) -> None:
    content, thought, calls = read(parser(sample.format), [sample.text])
    ids = sample.ids or tuple(f"call_{i}" for i in range(len(sample.calls)))
    assert calls == [(id, *call) for id, call in zip(ids, sample.calls, strict=True)]
    assert (content, thought) == (sample.content, sample.thought)


@pytest.mark.parametrize(
    "sample", [*SAMPLES, *MALFORMED], ids=lambda s: f"{s.format}:{s.text[:40]}"
)
def test_letter_by_letter_is_the_same(sample: Sample | Malformed) -> None:
    assert read(parser(sample.format), [*sample.text]) == read(parser(sample.format), [sample.text])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_cut_is_the_same(data: st.DataObject) -> None:
    """Also for texts that no model would write: parts of samples in any order."""
    sample = data.draw(st.sampled_from([*SAMPLES, *MALFORMED]))
    same = [s.text for s in (*SAMPLES, *MALFORMED) if s.format == sample.format]
    text = "".join(
        part[: data.draw(st.integers(0, len(part)))] if data.draw(st.booleans()) else part
        for part in data.draw(st.lists(st.sampled_from(same), min_size=1, max_size=3))
    )
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert read(parser(sample.format), pieces) == read(parser(sample.format), [text])


@pytest.mark.parametrize("wrong", MALFORMED, ids=lambda s: f"{s.format}:{s.about}")
def test_what_is_no_call_comes_back_as_text(wrong: Malformed) -> None:
    assert read(parser(wrong.format), [wrong.text]) == (wrong.text, "", [])


def test_every_format_has_samples() -> None:
    assert {sample.format for sample in SAMPLES if sample.calls} == FORMATS.keys()


@pytest.mark.parametrize("tags", REASONING_TAGS[1:], ids=lambda row: row.name)
@pytest.mark.parametrize("opened", [False, True])
@given(cuts=st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=25, deadline=None)
def test_reasoning_is_apart_however_it_is_cut(tags: Any, opened: bool, cuts: list[int]) -> None:
    text = f"{'' if opened else tags.open}\nA < b,\n so {tags.close[:3]} c. \n{tags.close}\n\n42 <x"
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    content, thought, _ = read(ReasoningParser(tags, opened, None), pieces)
    assert content == "42 <x"
    assert thought == f"A < b,\n so {tags.close[:3]} c."


def test_reasoning_without_an_end_and_an_answer_without_reasoning() -> None:
    think = REASONING_TAGS[1]
    assert read(ReasoningParser(think, True, None), ["still at it"]) == ("", "still at it", [])
    assert read(ReasoningParser(think, False, None), [" no", "thing"]) == (" nothing", "", [])
    assert read(ReasoningParser(think, False, None), ["<thi"]) == ("<thi", "", [])


def test_what_no_answer_could_be_sent_with() -> None:
    """Models generate invalid JSON and UTF-8, and JSON nested in JSON without end."""
    call_text = r'{"name": "f\ud800", "arguments": {"a": [NaN, 1e999, 1], "b": "x\udc00"}}'
    _, _, calls = read(parser("hermes"), [f"<tool_call>{call_text}</tool_call>"])
    assert calls[0][1:] == ("f\ufffd", {"a": [None, None, 1], "b": "x\ufffd"})
    deep = '{"name": "f", "arguments": {"a": ' + "[" * 200 + "]" * 200 + "}}"
    assert not read(parser("hermes"), [f"<tool_call>{deep}</tool_call>"])[2]


def test_a_long_answer_is_read_in_time_that_grows_with_it() -> None:
    """40,000 pieces of one call: held text is not parsed again for each."""
    text = json.dumps({"name": "write_file", "arguments": {"path": "a", "text": "word " * 40_000}})
    made = parser("hermes")
    pieces = [text[i : i + 5] for i in range(0, len(text), 5)]
    _, _, calls = read(made, ["<tool_call>", *pieces, "</tool_call>"])
    assert calls[0][2]["text"] == "word " * 40_000
