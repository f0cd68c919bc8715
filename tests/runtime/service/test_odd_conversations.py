"""One conversation in every protocol through the real service: messages in any order, a cut call,
a screenshot in a tool's result, a last message that goes on, and wishes that change no answer. What
comes to the model is its prompt; the right one is the template's by its own text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.api.openai_responses.request import parse_responses
from mlcc.model.model import Model
from tests.helpers.dictated_model import HERMES_TEMPLATE, PLAIN_TEMPLATE, Scripted, scripted
from tests.helpers.service_calls import (
    CHAT,
    MESSAGES,
    OLLAMA_CHAT,
    PROTOCOLS,
    RESPONSES,
    Calls,
    Response,
    calls_to,
)

ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As the templates of Gemma 2 and Mixtral are: no system message, and turns."""
PICTURE = "iVBORw0KGgo="


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return scripted(tmp_path_factory.mktemp("hermes"), " fine.", HERMES_TEMPLATE)


@pytest.fixture(scope="module")
def calls(model: Model) -> Iterator[Calls]:
    with calls_to(model) as calls:
        yield calls


def last_prompt(model: Model) -> str:
    assert isinstance(model.executor, Scripted)
    return model.executor.prompts[-1]


def body_of(path: str, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "scripted", "messages": messages, "stream": False, **more}
    if path == MESSAGES:
        body["max_tokens"] = 9
    if path == RESPONSES:
        body["input"] = body.pop("messages")
    return body


def prompt(path: str, calls: Calls, model: Model, messages: list[Any], **more: Any) -> str:
    response = calls.post(path, body_of(path, messages, **more))
    assert response.status == 200, response.body
    return last_prompt(model)


@pytest.mark.parametrize("path", PROTOCOLS)
def test_messages_in_any_order(path: str, calls: Calls, model: Model) -> None:
    talk = [
        {"role": "assistant", "content": "Welcome."},
        {"role": "user", "content": "One."},
        {"role": "user", "content": "Two."},
        {"role": "system", "content": "In French."},
        {"role": "user", "content": "And?"},
    ]
    turns = [("assistant", "Welcome."), ("user", "One."), ("user", "Two."),
             ("system", "In French."), ("user", "And?"), ("assistant", "")]  # fmt: skip
    made = prompt(path, calls, model, talk)
    assert made.startswith("".join(f"{role}\n{text}" + "\n" * bool(text) for role, text in turns))


@pytest.mark.parametrize("path", PROTOCOLS)
def test_messages_in_any_order_where_turns_alternate(path: str, tmp_path: Path) -> None:
    model = scripted(tmp_path, "Oui.", ALTERNATING)
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "Welcome."},
        {"role": "user", "content": "One."},
        {"role": "system", "content": "In French."},
        {"role": "user", "content": "Two."},
    ]
    if path == MESSAGES:  # which has the first one in a field of its own
        more, talk = {"system": talk[0]["content"]}, talk[1:]
    else:
        more = {}
    with calls_to(model) as calls:
        made = prompt(path, calls, model, talk, **more)
    late = "<system-reminder>\nIn French.\n</system-reminder>"
    assert made == (
        f"user\nBe brief.\nassistant\nWelcome.\nuser\nOne.\n\n{late}\n\nTwo.\nassistant\n"
    )


def test_the_prompt_of_generate_has_its_system_text(tmp_path: Path) -> None:
    model = scripted(tmp_path, "Oui.", ALTERNATING)
    with calls_to(model) as calls:
        body = {"model": "scripted", "system": "Be brief.", "prompt": "One.", "stream": False}
        assert calls.post("/api/generate", body).status == 200
        assert last_prompt(model) == "user\nBe brief.\n\nOne.\nassistant\n"


def picture(path: str) -> list[dict[str, Any]]:
    """A call, and its result: a text and a picture."""
    shot = {"name": "shoot", "arguments": "{}"}
    ask = {"role": "user", "content": "Look."}
    if path == MESSAGES:
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        parts = [{"type": "text", "text": "Page 1."}, {"type": "image", "source": source}]
        use = {"type": "tool_use", "id": "c", "name": "shoot", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c", "content": parts}
        return [ask, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    if path == RESPONSES:
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
        parts = [{"type": "input_text", "text": "Page 1."}, image]
        return [ask, {"type": "function_call", "call_id": "c", **shot},
                {"type": "function_call_output", "call_id": "c", "output": parts}]  # fmt: skip
    if path == OLLAMA_CHAT:
        call = {"function": {"name": "shoot", "arguments": {}}}
        return [ask, {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_name": "shoot", "content": "Page 1.",
                 "images": [PICTURE]}]  # fmt: skip
    url = {"url": f"data:image/png;base64,{PICTURE}"}
    parts = [{"type": "text", "text": "Page 1."}, {"type": "image_url", "image_url": url}]
    call = {"id": "c", "type": "function", "function": shot}
    return [ask, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": parts}]  # fmt: skip


@pytest.mark.parametrize("path", PROTOCOLS)
def test_a_picture_in_a_tools_result_ends_no_session(path: str, calls: Calls, model: Model) -> None:
    made = prompt(path, calls, model, picture(path))
    assert "Page 1.\n[image left out: this model reads text only]\n" in made
    assert PICTURE not in made


@pytest.mark.parametrize("path", PROTOCOLS)
def test_a_picture_of_the_users_is_refused(path: str, calls: Calls) -> None:
    parts: Any = picture(path)[-1]
    part = {
        MESSAGES: lambda: {"content": parts["content"][0]["content"]},
        RESPONSES: lambda: {"content": parts["output"]},
        OLLAMA_CHAT: lambda: {"content": "Look.", "images": parts["images"]},
        CHAT: lambda: {"content": parts["content"]},
    }[path]()
    response = calls.post(path, body_of(path, [{"role": "user", **part}]))
    assert response.status == 400 and "image" in json.dumps(response.body)


@pytest.mark.parametrize("kind", ["input_audio", "file", "video_url", "document", "server_thing"])
def test_other_parts_of_a_tools_result_are_named(kind: str, calls: Calls, model: Model) -> None:
    talk = picture(CHAT)
    talk[2]["content"][1] = {"type": kind, "data": PICTURE}
    made = prompt(CHAT, calls, model, talk)
    name = kind.removeprefix("input_").removesuffix("_url")
    assert f"Page 1.\n[{name} left out: this model reads text only]\n" in made
    talk = picture(MESSAGES)
    talk[2]["content"][0]["content"][1] = {"type": kind, "source": {"type": "base64"}}
    assert f"[{name} left out" in prompt(MESSAGES, calls, model, talk)


SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "s",
    "content": [
        {"type": "web_search_result", "url": "https://a", "title": "A", "encrypted_content": "x"}
    ],
}
HOSTED: list[tuple[str, list[dict[str, Any]], str]] = [
    (MESSAGES, [{"role": "assistant", "content": [
        {"type": "text", "text": "I look."}, SEARCH, FOUND, {"type": "mcp_tool_use", "id": "m"},
        {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": " Rain."}]}],
     "messages[1].content[1], messages[1].content[2], messages[1].content[3]"),
    (RESPONSES, [{"role": "assistant", "content": "I look."},
                 {"type": "web_search_call", "id": "w", "status": "completed", "action": {}},
                 {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}"},
                 {"role": "assistant", "content": " Rain."}], "input[2], input[3]"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "talk", "named"), HOSTED, ids=[MESSAGES, RESPONSES])
def test_what_others_servers_ran_is_left_out_and_named(
    path: str, talk: list[dict[str, Any]], named: str, calls: Calls, model: Model
) -> None:
    ask, then = ({"role": "user", "content": text} for text in ("Weather?", "Thanks."))
    body = body_of(path, [ask, *talk, then])
    response = calls.post(path, body)
    assert response.status == 200, response.body
    assert response.headers["x-mlcc-ignored"] == named
    assert "assistant\nI look.\n\n Rain." in last_prompt(model)


def test_what_a_user_sent_is_not_left_out(calls: Calls) -> None:
    unknown = {"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}
    response = calls.post(MESSAGES, body_of(MESSAGES, [unknown]))
    assert response.status == 400 and "messages[0].content[0]" in json.dumps(response.body)
    output = {"type": "computer_call_output", "call_id": "c", "output": {}}
    response = calls.post(RESPONSES, body_of(RESPONSES, [output]))
    assert response.status == 400 and "input[0]" in json.dumps(response.body)


def test_calls_and_results_of_the_older_form(calls: Calls, model: Model) -> None:
    ask = {"role": "user", "content": "Sum?"}
    call = {"name": "add", "arguments": '{"a": 1}'}
    older = [ask, {"role": "assistant", "content": None, "function_call": call},
             {"role": "function", "name": "add", "content": "3"},
             {"role": "assistant", "content": "3.", "function_call": None},
             {"role": "function", "name": "add", "content": "4"}]  # fmt: skip
    newer = [ask, {"role": "assistant", "content": None, "tool_calls": [
                 {"id": "c", "type": "function", "function": call}]},
             {"role": "tool", "tool_call_id": "c", "content": "3"},
             {"role": "assistant", "content": "3."},
             {"role": "tool", "tool_call_id": "d", "content": "4"}]  # fmt: skip
    assert prompt(CHAT, calls, model, older) == prompt(CHAT, calls, model, newer)
    nameless = [ask, {"role": "function", "content": "3"}]
    response = calls.post(CHAT, body_of(CHAT, nameless))
    assert response.status == 400 and response.body["error"]["param"] == "messages[1].name"
    response = calls.post(CHAT, body_of(CHAT, older, functions=[{"name": "add"}]))
    assert response.status == 400 and response.body["error"]["param"] == "functions"


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_a_refusal_is_the_assistants_text(path: str, calls: Calls, model: Model) -> None:
    part = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    field = {"role": "assistant", "content": None, "refusal": "I cannot."}
    after = {"role": "user", "content": "Why?"}
    for refused in [part, field] if path == CHAT else [part]:
        made = calls.post(path, body_of(path, [refused, after]))
        assert made.status == 200 and "x-mlcc-ignored" not in made.headers, made.body
        assert "assistant\nI cannot.\nuser\nWhy?" in last_prompt(model)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("field", ["prefix", "continue_final_message", "anthropic"])
def test_the_last_message_goes_on(tmp_path: Path, field: str, stream: bool) -> None:
    model = scripted(tmp_path, "My colour is blue.", PLAIN_TEMPLATE)
    last: dict[str, Any] = {"role": "assistant", "content": "My colour is"}
    more: dict[str, Any] = {"stream": stream}
    if field == "prefix":
        last["prefix"] = True
    elif field != "anthropic":
        more |= {field: True, "add_generation_prompt": False}
    path = MESSAGES if field == "anthropic" else CHAT
    with calls_to(model) as calls:
        response = calls.post(
            path, body_of(path, [{"role": "user", "content": "Name one."}, last], **more)
        )
        assert _text(path, response) == " blue."


def _text(path: str, response: Response) -> str:
    assert response.status == 200, response.body
    if isinstance(response.body, list) and path == MESSAGES:
        return "".join(event.get("delta", {}).get("text", "") for event in response.body)
    if isinstance(response.body, list):
        deltas = [choice["delta"] for event in response.body for choice in event["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)
    if path == MESSAGES:
        return str(response.body["content"][0]["text"])
    return str(response.body["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    ("more", "last"),
    [
        ({"add_generation_prompt": True}, {"role": "assistant", "content": "a"}),
        ({}, {"role": "user", "content": "a"}),
        ({}, {"role": "system", "content": "a"}),
    ],
)
def test_a_message_that_cannot_go_on(calls: Calls, more: Any, last: Any) -> None:
    talk = [{"role": "user", "content": "Hi"}, last]
    response = calls.post(CHAT, body_of(CHAT, talk, continue_final_message=True, **more))
    assert response.status == 400
    assert response.body["error"]["param"] == "continue_final_message"


def test_a_prompt_without_the_beginning_of_an_answer(calls: Calls) -> None:
    talk = [{"role": "user", "content": "Hi"}]
    for path in ("/apply-template", "/tokenize"):
        with_it, without = (
            calls.post(path, {"messages": talk, **more}).body
            for more in ({}, {"add_generation_prompt": False})
        )
        if path == "/apply-template":
            assert with_it["prompt"] == without["prompt"] + "<|im_start|>assistant\n"
        else:
            assert with_it["tokens"][: without["count"]] == without["tokens"] != with_it["tokens"]


def test_keeping_the_answer_is_a_wish(calls: Calls) -> None:
    for path, given in ((CHAT, {"messages": [{"role": "user", "content": "Hi"}]}),
                        ("/v1/completions", {"prompt": "Hi<|im_start|>assistant\n"})):  # fmt: skip
        for store, named in ((True, "store"), (False, None), (None, None)):
            body = {"model": "scripted", "max_tokens": 1, **given, "store": store}
            response = calls.post(path, body)
            assert response.status == 200, response.body
            assert response.headers.get("x-mlcc-ignored") == named


@pytest.mark.parametrize("path", PROTOCOLS)
def test_a_tool_needs_its_name_only(path: str, calls: Calls, model: Model) -> None:
    """As OpenAI has it: a tool without description and parameters takes none."""
    for more in ({}, {"description": None, "parameters": None}, {"parameters": {"type": "object"}}):
        function = {"name": "shoot", **more}
        if path == MESSAGES and "parameters" in function:
            function["input_schema"] = function.pop("parameters")
        flat = path in (MESSAGES, RESPONSES)
        tool = {"type": "function", "function": function} if not flat else function
        tool = {"type": "function", **tool} if path == RESPONSES else tool
        made = prompt(path, calls, model, [{"role": "user", "content": "Look."}], tools=[tool])
        assert '"parameters": {"type": "object", "properties": {}}' in made


@pytest.mark.parametrize("path", PROTOCOLS)
@pytest.mark.parametrize("given", ['{"q": "qua', ["quay"], None, "", 17])
def test_arguments_that_are_no_object(path: str, given: Any, calls: Calls, model: Model) -> None:
    talk = picture(path)
    text = given if isinstance(given, str) or given is None else json.dumps(given)
    if path == MESSAGES:
        talk[1]["content"][0]["input"] = given
    elif path == RESPONSES:
        talk[1]["arguments"] = text
    else:
        talk[1]["tool_calls"][0]["function"]["arguments"] = given
    made = prompt(path, calls, model, talk)
    wanted = {"arguments": text} if text else {}
    assert f'{{"name": "shoot", "arguments": {json.dumps(wanted)}}}' in made


@pytest.mark.parametrize("inside", [True, False])
def test_found_texts_are_read(inside: bool, calls: Calls, model: Model) -> None:
    """Anthropic's search results and documents of blocks, of a tool or of the user."""
    texts = [{"type": "text", "text": "A wharf."}, {"type": "text", "text": "Of stone."}]
    texts.append({"type": "image"})  # whatever its source is: this model reads text
    found = {"type": "search_result", "source": "s", "title": "Quay", "content": texts}
    paper = {"type": "document", "source": {"type": "content", "content": texts}, "title": "Q"}
    talk = picture(MESSAGES)
    if inside:
        talk[2]["content"][0]["content"] = [found, paper]
    else:
        talk[2]["content"] += [found, paper]
    made = prompt(MESSAGES, calls, model, talk)
    text = "A wharf.\nOf stone.\n[image left out: this model reads text only]"
    assert f"<search_result>\nsource: s\ntitle: Quay\n{text}\n</search_result>" in made
    assert f"<document>\ntitle: Q\n{text}\n</document>" in made


def test_a_stored_picture_is_its_note(calls: Calls, model: Model) -> None:
    """So that a screenshot of a megabyte does not fill the store of responses."""
    body = body_of(RESPONSES, picture(RESPONSES))
    body["input"][2]["output"][1]["image_url"] = "data:image/png;base64," + "A" * 50_000
    first = calls.post(RESPONSES, body)
    assert first.status == 200, first.body
    more = {"input": "And?", "previous_response_id": first.body["id"], "model": "scripted"}
    assert calls.post(RESPONSES, more).status == 200
    assert "Page 1.\n[image left out: this model reads text only]\n" in last_prompt(model)
    stored = json.dumps(parse_responses(body).items())
    assert "Page 1." in stored and '{"type": "input_image"}' in stored and "AAA" not in stored


def test_a_call_without_words_and_a_result_without_parts(calls: Calls, model: Model) -> None:
    """As MCP clients send them."""
    talk = picture(CHAT)
    talk[1]["content"] = talk[2]["content"] = []
    assert "<tool_call>" in prompt(CHAT, calls, model, talk)
    response = calls.post(CHAT, body_of(CHAT, [{"role": "user", "content": []}]))
    assert response.status == 400 and "at least 1" in response.body["error"]["message"]


@pytest.mark.parametrize("path", [MESSAGES, f"{MESSAGES}/count_tokens"])
@pytest.mark.parametrize("kind", ["user", "assistant"])
def test_messages_without_any_block(path: str, kind: str, calls: Calls) -> None:
    blocks = [] if kind == "user" else [{"type": "redacted_thinking", "data": "x"}]
    response = calls.post(path, body_of(MESSAGES, [{"role": kind, "content": blocks}]))
    assert response.status == 400 and "'messages'" in response.body["error"]["message"]


def test_messages_of_null(calls: Calls, model: Model) -> None:
    """An answer without words, as servers send it, and the result of a tool that returns nothing:
    clients send both again with every later turn."""
    talk = picture(CHAT)
    talk[2]["content"] = None
    for more in ({}, {"tool_calls": []}, {"tool_calls": None}):
        empty = {"role": "assistant", "content": None, **more}
        assert "And?" in prompt(
            CHAT, calls, model, [*talk, empty, {"role": "user", "content": "And?"}]
        )
    for role in ("user", "system"):
        response = calls.post(CHAT, body_of(CHAT, [{"role": role, "content": None}]))
        assert response.status == 400


@pytest.mark.parametrize("path", PROTOCOLS)
def test_the_template_of_requests_with_tools(path: str, tmp_path: Path) -> None:
    """A tokenizer_config.json may have a list of templates: transformers takes the one named
    "tool_use" for a request with tools, and "default" for others."""
    tools = ChatTemplate("{{ tools | length }} tools\n" + HERMES_TEMPLATE)
    model = scripted(tmp_path, "fine.", PLAIN_TEMPLATE, tool_template=tools)
    ask = [{"role": "user", "content": "Look."}]
    function = {"name": "shoot", "description": "d"}
    schema = {"input_schema" if path == MESSAGES else "parameters": {"type": "object"}}
    tool: dict[str, Any] = {"type": "function", **function, **schema}
    if path in (CHAT, OLLAMA_CHAT):
        tool = {"type": "function", "function": {**function, **schema}}
    if path == MESSAGES:
        del tool["type"]
    with calls_to(model) as calls:
        assert prompt(path, calls, model, ask).startswith("user\nLook.\n")
        made = prompt(path, calls, model, ask, tools=[tool])
        assert made.startswith("1 tools\nsystem\n") and '"name": "shoot"' in made
        assert prompt(path, calls, model, ask, tools=[]).startswith("user\nLook.\n")
