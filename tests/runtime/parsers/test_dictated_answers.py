"""Tools and reasoning from a request to its answer, through the real service, engine, tokenizer and
grammars. The model's text is a script (`dictated_model`): where it may write text and calls
instead, and with which control tokens. `test_demo_tool_calls.py` forces calls of the demo model
itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcc import Engine
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.model.model import Model
from tests.helpers.dictated_model import PLAIN_TEMPLATE, Scripted, scripted

USER = [{"role": "user", "content": "What is it?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SUM = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "w", "parameters": CITY}},
    {"type": "function", "function": {"name": "add", "parameters": SUM}},
]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
TWO = f"Let me.\n{CALL}\n{OTHER}"


def ask(model: Model, **fields: Any) -> dict[str, Any]:
    """The one choice of a whole answer, after its stream gave the same."""
    given = {"messages": USER, "temperature": 0, **fields}
    with Engine.of(lambda: model) as engine:
        whole = engine.chat.completions.create(**given).choices[0]
        chunks = [*engine.chat.completions.create(stream=True, **given)]
    choice: dict[str, Any] = plain(whole)
    assert streamed(chunks) == without_ids(choice)
    return choice


def plain(view: Any) -> Any:
    """The fields of an answer, as JSON."""
    if isinstance(view, Mapping):
        return {name: plain(value) for name, value in view.items()}
    return [plain(entry) for entry in view] if isinstance(view, (list, tuple)) else view


def without_ids(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", [])]
    thought = message.get("reasoning_content", "")
    return {"content": message["content"] or "", "thought": thought, "calls": calls,
            "reason": choice["finish_reason"]}  # fmt: skip


def streamed(chunks: list[Any]) -> dict[str, Any]:
    """The fields of a streamed answer, merged as OpenAI's clients do."""
    found: dict[str, Any] = {"content": "", "thought": "", "calls": [], "reason": None}
    for chunk in chunks:
        (choice,) = chunk.choices
        delta = plain(choice.delta)
        found["content"] += delta.get("content", "")
        found["thought"] += delta.get("reasoning_content", "")
        for piece in delta.get("tool_calls", []):
            if piece["index"] == len(found["calls"]):
                assert piece["id"] and piece["type"] == "function"
                found["calls"].append({"name": piece["function"]["name"], "arguments": ""})
            found["calls"][piece["index"]]["arguments"] += piece["function"]["arguments"]
        found["reason"] = choice.finish_reason
    return found


def calls(choice: dict[str, Any]) -> list[tuple[str, Any]]:
    made = choice["message"].get("tool_calls", [])
    assert len({call["id"] for call in made}) == len(made)
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in made]


@pytest.mark.parametrize("grammars", [True, False])
def test_words_and_two_calls_where_it_may_talk(tmp_path: Path, grammars: bool) -> None:
    choice = ask(scripted(tmp_path, TWO, grammars=grammars), tools=TOOLS)
    assert calls(choice) == [("add", {"a": 1, "b": 2}), ("weather", {"city": "Rome"})]
    assert choice["message"]["content"] == "Let me."
    assert choice["finish_reason"] == "tool_calls"


def test_no_call_where_there_are_tools(tmp_path: Path) -> None:
    choice = ask(scripted(tmp_path, "It is <b>late</b>."), tools=TOOLS)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("It is <b>late</b>.", "stop")
    assert "tool_calls" not in choice["message"]


def test_arguments_validate_whatever_the_model_would_say(tmp_path: Path) -> None:
    """With tool_choice auto, after the control token of a call: the model's script has text where a
    number is required."""
    wrong = CALL.replace('"a": 1', '"a": "one"')
    choice = ask(scripted(tmp_path, wrong), tools=TOOLS, max_tokens=60)
    for name, given in calls(choice):
        assert name == "add" and isinstance(given["a"], int) and isinstance(given["b"], int)
    free = ask(scripted(tmp_path, wrong, grammars=False), tools=TOOLS)
    assert calls(free) == [("add", {"a": "one", "b": 2})]  # where nothing reads grammars


def test_one_call_if_parallel_ones_are_not_wanted(tmp_path: Path) -> None:
    choice = ask(scripted(tmp_path, TWO), tools=TOOLS, parallel_tool_calls=False)
    assert calls(choice) == [("add", {"a": 1, "b": 2})]


def test_none_shows_the_tools_and_reads_no_calls(tmp_path: Path) -> None:
    model = scripted(tmp_path, CALL)
    choice = ask(model, tools=TOOLS, tool_choice="none")
    assert choice["message"]["content"] == CALL and choice["finish_reason"] == "stop"
    assert isinstance(model.executor, Scripted)
    assert '"name": "weather"' in model.executor.prompts[0]


def test_marks_that_are_control_tokens_reach_the_parser(tmp_path: Path) -> None:
    template = "[TOOL_CALLS][ARGS] tools" + PLAIN_TEMPLATE
    script = 'So:[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}'
    model = scripted(tmp_path, script, template, special=["[TOOL_CALLS]", "[ARGS]"])
    assert model.text.output_format.format.name == "mistral"
    choice = ask(model, tools=TOOLS)
    assert calls(choice) == [("add", {"a": 1, "b": 2}), ("weather", {"city": "Oslo"})]
    assert choice["message"]["content"] == "So:"
    plain = ask(scripted(tmp_path, script, template, special=["[TOOL_CALLS]", "[ARGS]"]))
    assert "weather" in plain["message"]["content"]  # no tools, so no calls


def test_a_script_that_must_call_is_made_to(tmp_path: Path) -> None:
    for choice_field in ("required", {"type": "function", "function": {"name": "add"}}):
        model = scripted(tmp_path, "I would rather talk.")
        choice = ask(model, tools=TOOLS, tool_choice=choice_field, max_tokens=80)
        assert choice["message"]["content"] is None
        assert {name for name, _ in calls(choice)} <= {"add", "weather"}
        if choice_field != "required":
            assert [name for name, _ in calls(choice)] == ["add"]


def test_allowed_tools_are_all_that_may_be_called(tmp_path: Path) -> None:
    named = [{"type": "function", "function": {"name": "weather"}}]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": named}}
    choice = ask(scripted(tmp_path, CALL), tools=TOOLS, tool_choice=allowed, max_tokens=60)
    assert all(name == "weather" for name, _ in calls(choice))


def test_what_cannot_be_held_to_is_refused_where_it_must_be(tmp_path: Path) -> None:
    strange = {"type": "object", "properties": {"x": {"type": "string", "contentEncoding": "a"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": strange}}
    strict = {"type": "function", "function": {**tool["function"], "strict": True}}
    script = '<tool_call>\n{"name": "f", "arguments": {"x": "y"}}\n</tool_call>'
    assert calls(ask(scripted(tmp_path, script), tools=[tool])) == [("f", {"x": "y"})]
    with pytest.raises(UnsupportedError, match="contentEncoding") as caught:
        ask(scripted(tmp_path, script), tools=[strict])
    assert caught.value.param == "tools[0].function.parameters"
    with pytest.raises(UnsupportedError, match="reads grammars"):
        ask(scripted(tmp_path, script, grammars=False), tools=[tool], tool_choice="required")
    with pytest.raises(InvalidRequestError, match="cannot both"):
        ask(scripted(tmp_path, script), tools=[tool], guided_regex="a+")


def test_a_schema_for_the_answer_beside_tools(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
              "additionalProperties": False}  # fmt: skip
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    choice = ask(scripted(tmp_path, '{"n": 5}'), tools=TOOLS, response_format=wanted)
    assert json.loads(choice["message"]["content"]) == {"n": 5}
    choice = ask(scripted(tmp_path, CALL), tools=TOOLS, response_format=wanted)
    assert calls(choice) == [("add", {"a": 1, "b": 2})]


def test_a_turn_with_calls_and_results_through_the_models_template(tmp_path: Path) -> None:
    model = scripted(tmp_path, "3")
    asked = {"id": "call_1", "type": "function",
             "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}  # fmt: skip
    turns = [
        *USER,
        {"role": "assistant", "content": None, "reasoning": "So.", "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "3"}]},
    ]
    assert ask(model, messages=turns, tools=TOOLS)["message"]["content"] == "3"
    assert isinstance(model.executor, Scripted)
    prompt = model.executor.prompts[0]
    assert '{"name": "add", "arguments": {"a": 1, "b": 2}}' in prompt  # an object, not a text
    assert "<think>So.</think>" in prompt and "None" not in prompt


def test_control_tokens_in_tools_and_results_are_text(tmp_path: Path) -> None:
    """Control tokens in descriptions of tools and in tool results are text, as in messages."""
    model = scripted(tmp_path, "ok")
    tool = {"type": "function", "function": {"name": "f", "description": "<|im_end|>hm"}}
    variables = {"messages": USER, "tools": [tool]}
    ids = model.text.encode_chat(USER, variables={"tools": [tool]})
    plain = model.text.encode_chat(USER, variables={"tools": []})
    (end,) = model.text.tokenizer.encode("<|im_end|>", add_special_tokens=False)
    assert [*ids].count(end) == [*plain].count(end) + 1  # the template's own
    assert variables
    model.close()


def test_without_tools_in_its_template_a_model_gets_a_system_text(tmp_path: Path) -> None:
    def answer(prompt: str) -> str:
        return (
            "It is 3." if "gave: 3" in prompt else '{"name": "add", "arguments": {"a": 1, "b": 2}}'
        )

    model = scripted(tmp_path, answer, PLAIN_TEMPLATE)
    choice = ask(model, tools=TOOLS)
    assert calls(choice) == [("add", {"a": 1, "b": 2})]
    assert isinstance(model.executor, Scripted)
    assert "You can call these functions" in model.executor.prompts[0]
    turns = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": choice["message"]["tool_calls"]},
        {"role": "tool", "tool_call_id": choice["message"]["tool_calls"][0]["id"], "content": "3"},
    ]
    model = scripted(tmp_path, answer, PLAIN_TEMPLATE)
    assert ask(model, messages=turns, tools=TOOLS)["message"]["content"] == "It is 3."
    model = scripted(tmp_path, '{"answer": [1, 2]}', PLAIN_TEMPLATE)
    assert ask(model, tools=TOOLS)["message"]["content"] == '{"answer": [1, 2]}'


THINK = ["<think>", "</think>"]


@pytest.mark.parametrize("opened", [True, False])
def test_reasoning_is_apart(tmp_path: Path, opened: bool) -> None:
    script = ("" if opened else "<think>") + "\nA <b>?\n</think>\n\n42"
    model = scripted(tmp_path, script, marks=THINK)
    choice = ask(model, chat_template_kwargs={"opened": opened})
    assert choice["message"]["reasoning_content"] == "A <b>?"
    assert choice["message"]["content"] == "42"


def test_reasoning_then_a_call_then_none_if_it_is_off(tmp_path: Path) -> None:
    model = scripted(tmp_path, f"<think>I call.</think>\n\n{CALL}", marks=THINK)
    choice = ask(model, tools=TOOLS)
    assert calls(choice) == [("add", {"a": 1, "b": 2})]
    assert choice["message"]["reasoning_content"] == "I call."
    choice = ask(scripted(tmp_path, "42", marks=THINK), enable_thinking=False)
    assert choice["message"] == {"role": "assistant", "content": "42", "refusal": None}


def test_a_required_call_and_a_schema_hold_behind_the_reasoning(tmp_path: Path) -> None:
    script = f"<think>Is it {CALL}?</think>\n\n{CALL}"
    model = scripted(tmp_path, script, marks=THINK)
    choice = ask(model, tools=TOOLS, tool_choice="required", max_tokens=200)
    assert calls(choice) == [("add", {"a": 1, "b": 2})]
    assert CALL in choice["message"]["reasoning_content"]
    model = scripted(tmp_path, 'hm</think>{"city": "Rome"}', marks=THINK)
    wanted = {"type": "json_schema", "json_schema": {"name": "c", "schema": CITY}}
    choice = ask(model, response_format=wanted, chat_template_kwargs={"opened": True})
    assert json.loads(choice["message"]["content"]) == {"city": "Rome"}
    assert choice["message"]["reasoning_content"] == "hm"


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("grammars", [True, False])
def test_a_budget_ends_the_reasoning(tmp_path: Path, special: bool, grammars: bool) -> None:
    script = "<think>" + "on and on " * 60 + "</think>\n\n42"
    kind = {"special": THINK} if special else {"marks": THINK}
    model = scripted(tmp_path, script, grammars=grammars, **kind)
    choice = ask(model, thinking_budget=12)
    assert choice["message"]["content"] == "42"
    assert 3 < len(choice["message"]["reasoning_content"]) < 120
    choice = ask(
        scripted(tmp_path, script, **kind), thinking={"type": "enabled", "budget_tokens": 999}
    )
    assert choice["message"]["reasoning_content"] == script[7:].partition("</think>")[0].rstrip()


def test_parsers_by_name(tmp_path: Path) -> None:
    script = f"<think>so</think>{CALL}"
    model = scripted(tmp_path, script, marks=THINK, reasoning_parser="none", tool_parser="mistral")
    choice = ask(model, tools=TOOLS)
    assert choice["message"]["content"] == script


def test_log_probabilities_of_every_token_with_text_are_reported(tmp_path: Path) -> None:
    choice = ask(scripted(tmp_path, f"<think>so</think>Hm.{CALL}", marks=THINK), tools=TOOLS,
                 logprobs=True)  # fmt: skip
    joined = "".join(entry["token"] for entry in choice["logprobs"]["content"])
    assert joined == f"<think>so</think>Hm.{CALL}"
