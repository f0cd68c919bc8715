"""Images in the six protocols: what reaches the engine, what is refused, and by which words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcc.engine.request import Request
from mlcc.multimodal.image import decode
from mlcc.multimodal.processors.registry import processor_of
from tests.helpers.service_calls import Calls
from tests.runtime.multimodal.helpers.pictures import gemma3, given, idefics3, qwen2_vl
from tests.runtime.multimodal.helpers.seeing_toy import (
    FIRST,
    SPECIAL,
    Letters,
    base64_of,
    data_url,
    picture,
    seeing,
    with_id,
)

ROOT = Path(__file__).parents[2]
INFO = with_id(idefics3(split=False))
PLACE = "<fake_token_around_image><global-img>" + "<image>" * 4 + "<fake_token_around_image>"
ONE, TWO = picture(seed=1), picture(50, 20, seed=2)
ADDRESS = "https://example.com/a.png"
Seeing = tuple[Calls, list[Request]]


@pytest.fixture(scope="module")
def toy() -> Iterator[Seeing]:
    with seeing(INFO) as made:
        yield made


@pytest.fixture(scope="module")
def blind() -> Iterator[Seeing]:
    with seeing(None) as made:
        yield made


def tiles_of(*files: bytes) -> list[bytes]:
    """The keys of the tiles of these files."""
    processor, keys = processor_of(INFO), list[bytes]()
    for data in files:
        image = decode(given(data))
        keys += [tile.key for tile in processor.tiles(image, processor.plan(*image.size))]
    return keys


def openai(*parts: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 2, **more}
    return "/v1/chat/completions", body


def image(data: bytes, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data), **more}}


def bare(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": data_url(data)}


def block(data: bytes) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": base64_of(data)}
    return {"type": "image", "source": source}


def anthropic(*content: Any) -> tuple[str, dict[str, Any]]:
    blocks = [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]
    messages = [{"role": "user", "content": blocks}]
    return "/v1/messages", {"model": "toy", "messages": messages, "max_tokens": 2}


def paper(*content: Any) -> dict[str, Any]:
    """A document of blocks."""
    blocks = [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]
    return {"type": "document", "title": "T", "source": {"type": "content", "content": blocks}}


def responses(*content: Any) -> tuple[str, dict[str, Any]]:
    parts = [
        {"type": "input_text", "text": c}
        if isinstance(c, str)
        else {"type": "input_image", "image_url": data_url(c), "detail": "auto"}
        for c in content
    ]
    item = {"role": "user", "content": parts}
    return "/v1/responses", {"input": [item], "max_output_tokens": 2}


def ollama(text: str, *images: bytes) -> tuple[str, dict[str, Any]]:
    message = {"role": "user", "content": text, "images": [*map(base64_of, images)]}
    return "/api/chat", {"messages": [message], "stream": False, "options": {"num_predict": 2}}


def ollama_prompt(text: str, *images: bytes) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {"prompt": text, "images": [*map(base64_of, images)], "stream": False}
    return "/api/generate", {**body, "options": {"num_predict": 2}}


def llamacpp(text: str, *images: bytes) -> tuple[str, dict[str, Any]]:
    prompt = {"prompt_string": text, "multimodal_data": [*map(base64_of, images)]}
    return "/completion", {"prompt": prompt, "n_predict": 2}


def numbered(text: str, *images: tuple[int, bytes]) -> tuple[str, dict[str, Any]]:
    data = [{"id": number, "data": base64_of(one)} for number, one in images]
    return "/completion", {"prompt": text, "image_data": data, "n_predict": 2}


CHAT = f"(user)see {PLACE} and {PLACE}!(assistant)"
SENT = {
    "chat": (openai("see ", image(ONE), " and ", bare(TWO), "!"), CHAT),
    "chat of one": (openai(image(ONE, detail="high")), f"(user){PLACE}(assistant)"),
    "messages": (anthropic("see ", block(ONE), " and ", block(TWO), "!"), CHAT),
    "messages, texts": (
        anthropic("a", "b", block(ONE)), f"(user)a b{PLACE}(assistant)"
    ),
    "messages, document": (
        anthropic("see", paper("a", block(ONE), "b"), block(TWO), "so?"),
        f"(user)see <document> title: T a{PLACE}b </document>{PLACE}so?(assistant)",
    ),
    "responses": (responses("see ", ONE, " and ", TWO, "!"), CHAT),
    "ollama": (ollama("see", ONE, TWO), f"(user){PLACE}{PLACE}see(assistant)"),
    "ollama generate": (ollama_prompt("see", ONE), f"(user){PLACE}see(assistant)"),
    "ollama generate, no text": (ollama_prompt("", ONE), f"(user){PLACE}(assistant)"),
    "llama.cpp": (llamacpp("a <__media__> b<__media__>", ONE, TWO), f"a {PLACE} b{PLACE}"),
    "llama.cpp, older": (numbered("a [img-7] b[img-3]", (3, TWO), (7, ONE)), f"a {PLACE} b{PLACE}"),
}  # fmt: skip


@pytest.mark.parametrize("name", SENT)
def test_pictures_reach_the_engine(name: str, toy: Seeing) -> None:
    (path, body), text = SENT[name]
    calls, reached = toy
    answer = calls.post(path, body)
    assert answer.status == 200, answer.body
    request = reached[-1]
    assert Letters().decode(request.prompt) == text.replace("\n", " ")
    files = [ONE, TWO][: text.count("<global-img>")]
    assert [tile.key for tile in request.media] == tiles_of(*files)
    token = FIRST + SPECIAL.index("<image>")
    for tile in request.media:
        assert list(request.prompt[tile.start : tile.start + tile.rows]) == [token] * 4
        assert (tile.height, tile.width, len(tile.pixels)) == (32, 32, 32 * 32 * 3)


def test_image_tokens_are_counted(toy: Seeing) -> None:
    calls, reached = toy
    body = calls.post(*openai("see ", image(ONE), image(TWO), n=2)).body
    assert body["usage"]["prompt_tokens"] == len(reached[-1].prompt)
    assert body["usage"]["prompt_tokens_details"]["image_tokens"] == 8
    path, asked = openai(image(ONE), stream=True, stream_options={"include_usage": True})
    last = calls.post(path, asked).body[-1]
    assert last["usage"]["prompt_tokens_details"]["image_tokens"] == 4
    text = calls.post(*openai("no image")).body
    assert "image_tokens" not in text["usage"]["prompt_tokens_details"]
    assert reached[-1].media == ()


def test_answers_depend_on_the_pictures(toy: Seeing) -> None:
    """Of prompts that are the same tokens; the prefix cache does not confuse them."""
    calls, _ = toy

    def answer_to(*files: bytes) -> str:
        path, body = openai("see ", *map(image, files), temperature=0)
        answer = calls.post(path, {**body, "max_tokens": 30, "ignore_eos": True})
        return str(answer.body["choices"][0]["message"]["content"])

    answers = [answer_to(ONE, TWO), answer_to(TWO, ONE), answer_to(ONE, ONE), answer_to(ONE, TWO)]
    assert len(set(answers)) == 3 and answers[0] == answers[3]


def test_answers_to_one_prompt_share_its_tiles(toy: Seeing) -> None:
    calls, reached = toy
    calls.post(*openai(image(ONE), n=2))
    assert reached[-1].media == reached[-2].media != ()


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
def test_counts_have_the_image_tokens(path: str, toy: Seeing) -> None:
    calls, reached = toy
    made = anthropic("see ", block(ONE)) if "messages" in path else responses("see ", ONE)
    calls.post(*made)
    body = {k: v for k, v in made[1].items() if k not in ("max_tokens", "max_output_tokens")}
    assert calls.post(path, body).body["input_tokens"] == len(reached[-1].prompt)


def test_templates_are_applied_with_their_own_marks(toy: Seeing) -> None:
    calls, _ = toy
    _, body = openai("see ", image(ONE))
    assert calls.post("/apply-template", body).body["prompt"] == "(user)see <image>(assistant)"
    tokens = calls.post("/tokenize", {"messages": body["messages"]}).body["tokens"]
    assert Letters().decode(tokens) == f"(user)see {PLACE}(assistant)"


def test_a_models_sight_is_told(toy: Seeing, blind: Seeing) -> None:
    for (calls, _), sees in ((toy, True), (blind, False)):
        assert ("vision" in calls.post("/api/show", {"model": "toy"}).body["capabilities"]) is sees
        assert calls.get("/props").body["modalities"] == {"vision": sees, "audio": False}
        (model,) = calls.get("/v1/models").body["data"]
        assert model.get("input_modalities") == (["text", "image"] if sees else None)
        assert model.get("image_size") == ({"longest_edge": 128} if sees else None)


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ASKED = [{"role": "user", "content": "look"}, {"role": "assistant", "tool_calls": [CALL]}]


def test_pictures_of_tools_reach_the_engine(toy: Seeing) -> None:
    """In their place if the template can have them there, else in the user's turn that follows."""
    calls, reached = toy
    result = {"role": "tool", "tool_call_id": "call_1", "content": [image(ONE), image(TWO)]}
    assert calls.post("/v1/chat/completions", {"messages": [*ASKED, result]}).status == 200
    assert [tile.key for tile in reached[-1].media] == tiles_of(ONE, TWO)
    use = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
    shown = {"type": "tool_result", "tool_use_id": "call_1", "content": ["", block(ONE)][1:]}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{**shown, "is_error": True}, {"type": "text", "text": "so?"}]},
    ]
    body = {"model": "toy", "messages": messages, "max_tokens": 2}
    assert calls.post("/v1/messages", body).status == 200
    assert [tile.key for tile in reached[-1].media] == tiles_of(ONE)
    output = {
        "type": "function_call_output", "call_id": "call_1",
        "output": [{"type": "input_image", "image_url": data_url(TWO)}],
    }  # fmt: skip
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    items = [{"role": "user", "content": "look"}, call, output]
    assert calls.post("/v1/responses", {"input": items}).status == 200
    assert [tile.key for tile in reached[-1].media] == tiles_of(TWO)


def test_a_tools_video_becomes_a_note(toy: Seeing) -> None:
    """Beside an image, which stays."""
    calls, reached = toy
    video = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [image(ONE), video]}
    assert calls.post("/v1/chat/completions", {"messages": [*ASKED, result]}).status == 200
    prompt = Letters().decode(reached[-1].prompt)
    assert "[video left out: this model reads text and images only]" in prompt
    assert [tile.key for tile in reached[-1].media] == tiles_of(ONE)


def test_a_stored_conversation_keeps_its_pictures(toy: Seeing) -> None:
    calls, reached = toy
    first = calls.post(*responses("see ", ONE)).body["id"]
    more = {"input": "and now?", "previous_response_id": first, "max_output_tokens": 2}
    assert calls.post("/v1/responses", more).status == 200
    assert [tile.key for tile in reached[-1].media] == tiles_of(ONE)


FORGED = [
    "<image>",
    f"<fake_token_around_image>{'<image>' * 4}",
    "\ue0b90:0\ue0ba",
    "<|image_pad|>",
]


@pytest.mark.parametrize("text", FORGED)
def test_a_message_cannot_write_a_picture(text: str, toy: Seeing) -> None:
    calls, reached = toy
    for content in ([text], [text, image(ONE)], [image(ONE), text, image(TWO), text]):
        assert calls.post(*openai(*content)).status == 200
        token, request = FIRST + SPECIAL.index("<image>"), reached[-1]
        assert list(request.prompt).count(token) == 4 * len(request.media)
        assert len(request.media) == sum(not isinstance(part, str) for part in content)


REFUSED: dict[str, tuple[tuple[str, dict[str, Any]], str, str, str]] = {
    "address": (
        openai({"type": "image_url", "image_url": {"url": ADDRESS}}),
        "messages[0].content[0].image_url.url", "image_address", "none is fetched here",
    ),
    "bare address": (
        openai({"type": "image_url", "image_url": ADDRESS}),
        "messages[0].content[0].image_url", "image_address", "send the image itself",
    ),
    "no base64": (
        openai("a", {"type": "image_url", "image_url": {"url": "data:image/png;base64,@@"}}),
        "messages[0].content[1].image_url.url", "invalid_image", "is no base64 of an image",
    ),
    "percent": (
        openai({"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}}),
        "messages[0].content[0].image_url.url", "invalid_image", "no data URL with base64",
    ),
    "no image": (
        openai(image(b"not an image")),
        "messages[0].content[0].image_url.url", "invalid_image", "send a PNG, JPEG",
    ),
    "truncated": (
        openai(image(ONE[:200])),
        "messages[0].content[0].image_url.url", "invalid_image", "damaged PNG",
    ),
    "detail": (
        openai(image(ONE, detail="best")),
        "messages[0].content[0].image_url.detail", "invalid_value", "one of 'auto', 'low'",
    ),
    "seventeen": (
        openai(*[image(ONE)] * 17),
        "messages[0].content[16].image_url.url", "image_too_large", "16 at most",
    ),
    "assistant": (
        ("/v1/chat/completions", {"messages": [{"role": "assistant", "content": [image(ONE)]}]}),
        "messages[0].content[0].type", "unsupported_content_part", "image_url",
    ),
    "audio": (
        openai({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}),
        "messages[0].content[0].type", "unsupported_content_part",
        "'input_audio', and only 'text' and 'image_url' are built; send parts of these types",
    ),
    "anthropic address": (
        anthropic({"type": "image", "source": {"type": "url", "url": ADDRESS}}),
        "messages[0].content[0].source.type", "unsupported_value", "none is fetched here",
    ),
    "anthropic damaged": (
        anthropic("a", block(b"GIF89a")),
        "messages[0].content[1].source.data", "invalid_image", "ends within its header",
    ),
    "anthropic address in a document": (
        anthropic(paper({"type": "image", "source": {"type": "url", "url": ADDRESS}})),
        "messages[0].content[0].source.content[0].source.type", "unsupported_value",
        "none is fetched here",
    ),
    "responses address": (
        ("/v1/responses", {"input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": ADDRESS}]}]}),
        "input[0].content[0].image_url", "image_address", "none is fetched here",
    ),
    "responses file": (
        ("/v1/responses", {"input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": data_url(ONE), "file_id": "f"}]}]}),
        "input[0].content[0].file_id", "unsupported_parameter", "send the image itself",
    ),
    "responses file alone": (
        ("/v1/responses", {"input": [{"role": "user", "content": [
            {"type": "input_image", "file_id": "f"}]}]}),
        "input[0].content[0].file_id", "unsupported_parameter", "send the image itself",
    ),
    "ollama damaged": (
        ollama("a", b"no image"), "messages[0].images[0]", "invalid_image", "send a PNG",
    ),
    "ollama raw": (
        ("/api/generate", {"prompt": "a", "raw": True, "images": [base64_of(ONE)]}),
        "images", "invalid_value", "belongs to the chat template",
    ),
    "llama.cpp marks": (
        llamacpp("a <__media__>", ONE, TWO), "prompt.multimodal_data", "image_count", "1 of",
    ),
    "llama.cpp more marks": (
        llamacpp("a <__media__><__media__>", ONE), "prompt.multimodal_data", "image_count", "2 of",
    ),
    "llama.cpp numbers": (
        numbered("a [img-1]", (2, ONE)), "image_data", "image_count", "0 of [img-ID]",
    ),
    "llama.cpp own token": (
        llamacpp("a <__media__><image>", ONE), "prompt", "image_count", "2 image tokens for 1",
    ),
    "too long": (
        openai(*[image(ONE)] * 16, "x" * 2048), "messages", "context_length_exceeded", "2048",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str, toy: Seeing) -> None:
    (path, body), param, code, words = REFUSED[name]
    answer = toy[0].post(path, body)
    assert answer.status == 400, answer.body
    error = answer.body["error"]
    if isinstance(error, str) or "code" not in error:  # Ollama's and Anthropic's have the words
        assert words in str(error)
        return
    assert (error["param"], error["code"]) == (param, code)
    assert words in error["message"]


BLIND: dict[str, tuple[tuple[str, dict[str, Any]], str]] = {
    "chat": (openai("a", image(ONE)), "only 'text' is built; send text parts only"),
    "bare": (openai(bare(ONE)), "only 'text' is built; send text parts only"),
    "messages": (anthropic("a", block(ONE)), "this model sees no images"),
    "responses": (responses("a", ONE), "this model sees no images"),
    "ollama": (ollama("a", ONE), "is not built yet, and this value would change the answer"),
    "ollama generate": (ollama_prompt("a", ONE), "is not built yet, and this value would change"),
    "llama.cpp": (llamacpp("a <__media__>", ONE), "must be a string"),
    "llama.cpp, older": (numbered("a [img-1]", (1, ONE)), "'image_data' is not built yet"),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_model_that_reads_text_only_refuses(name: str, blind: Seeing) -> None:
    (path, body), words = BLIND[name]
    calls, reached = blind
    before = len(reached)
    answer = calls.post(path, body)
    assert answer.status == 400 and words in str(answer.body["error"])
    assert len(reached) == before


def test_a_tools_picture_becomes_a_note_for_it(blind: Seeing) -> None:
    calls, reached = blind
    result = {"role": "tool", "tool_call_id": "call_1", "content": [image(ONE)]}
    assert calls.post("/v1/chat/completions", {"messages": [*ASKED, result]}).status == 200
    assert "[image left out: this model reads text only]" in Letters().decode(reached[-1].prompt)


STRINGS = "{% for m in messages %}({{ m.role }}){{ m.content }}{% endfor %}(assistant)"
LISTS = (
    "{% for m in messages %}({{ m.role }}){% if m['content'][0]['type'] == 'image' %}:{% endif %}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}<image>{% endif %}{% endfor %}{% endfor %}(assistant)"
)
"""As of SmolVLM and Idefics 3: of a content that is a string it writes nothing."""
LAST_ONLY = "{{ messages[-1].content[0].text if messages[-1].content is not string else 'x' }}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [(STRINGS, f"(user)a{PLACE}b(assistant)"), (LISTS, f"(user)a{PLACE}b(assistant)")],
)
def test_templates_of_strings_and_of_lists(template: str, expected: str) -> None:
    with seeing(INFO, template) as (calls, reached):
        assert calls.post(*openai("a", image(ONE), "b")).status == 200
        assert Letters().decode(reached[-1].prompt) == expected
        assert len(reached[-1].media) == 1
        assert calls.post(*openai("only words <image>")).status == 200
        assert Letters().decode(reached[-1].prompt) == "(user)only words <image>(assistant)"
        assert FIRST not in reached[-1].prompt
        first = {"role": "user", "content": [image(ONE)]}
        turns = [first, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
        assert calls.post("/v1/chat/completions", {"messages": turns}).status == 200
        assert len(reached[-1].media) == 1


def test_a_template_that_drops_a_picture_is_named() -> None:
    with seeing(INFO, "x") as (calls, reached):
        answer = calls.post(*openai("a", image(ONE)))
    assert answer.status == 400 and not reached
    assert "writes 0 of 1 images" in answer.body["error"]["message"]


@pytest.mark.parametrize(
    ("info", "mark", "text"),
    [
        (gemma3(), "<start_of_image>",
         "  <start_of_image>" + "<image_soft_token>" * 4 + "<end_of_image>  "),
        (qwen2_vl(), "<|image_pad|>", "<|image_pad|>" * 6),
    ],
)  # fmt: skip
def test_other_families(info: Any, mark: str, text: str) -> None:
    template = LISTS.replace("<image>", mark)
    with seeing(info, template) as (calls, reached):
        assert calls.post(*openai("a", image(picture(84, 56)))).status == 200
        assert Letters().decode(reached[-1].prompt) == f"(user)a{text}(assistant)"
        assert [tile.rows for tile in reached[-1].media] == [text.count("<image_soft") or 6]


def test_gemmas_own_template() -> None:
    """It trims texts and has the system message in the user's turn."""
    template = (ROOT / "runtime" / "parsers" / "templates" / "gemma3.jinja").read_text("utf-8")
    place = "  <start_of_image>" + "<image_soft_token>" * 4 + "<end_of_image>  "
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [image(ONE), {"type": "text", "text": "What? "}, image(TWO)]},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "<start_of_image>?"},
    ]
    with seeing(gemma3(), template) as (calls, reached):
        assert calls.post("/v1/chat/completions", {"messages": messages}).status == 200
    text = Letters().decode(reached[-1].prompt)
    turn = f"<start_of_turn>user Be brief.  {place}What?{place}<end_of_turn> "
    assert text.startswith(turn) and "user <start_of_image>?<end_of_turn>" in text
    begin = FIRST + SPECIAL.index("<start_of_image>")
    assert list(reached[-1].prompt).count(begin) == len(reached[-1].media) == 2


def test_low_detail_reaches_the_processor() -> None:
    with seeing(idefics3()) as (calls, reached):
        for detail, tiles in (("high", 13), ("low", 1)):
            assert calls.post(*openai(image(picture(90, 60), detail=detail))).status == 200
            assert len(reached[-1].media) == tiles
