"""OpenAI's own Python client against the server: whole answers, streams, usage, many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.helpers.toy.toy_model import Letters

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


def ask(client: OpenAI, text: str = "hello", **options: object) -> str:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": text}]
    answer = client.chat.completions.create(
        model="toy", messages=messages, **{"max_tokens": 20, "temperature": 0, **options}
    )
    return answer.choices[0].message.content or ""


def test_chat_and_its_stream_say_the_same(client: OpenAI) -> None:
    whole = client.chat.completions.create(
        model="toy", messages=QUESTION, max_tokens=20, temperature=0
    )
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].finish_reason in ("length", "stop")
    assert whole.usage and whole.usage.prompt_tokens == len("<user>hello<assistant>")
    chunks = list(
        client.chat.completions.create(
            model="toy",
            messages=QUESTION,
            max_tokens=20,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    usage = chunks[-1].usage
    assert usage and usage.total_tokens == whole.usage.total_tokens and not chunks[-1].choices
    assert usage.prompt_tokens_details
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_a_stream_without_usage_has_none(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(model="toy", messages=QUESTION, max_tokens=2, stream=True)
    )
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason in ("length", "stop")


def test_completions_of_text_ids_and_several_prompts(client: OpenAI) -> None:
    def create(prompt: object) -> list[str]:
        made = client.completions.create(model="toy", prompt=prompt, temperature=0, max_tokens=9)
        return [choice.text for choice in made.choices]

    ids = Letters().encode("once", add_special_tokens=True).tolist()
    once, twice = create("once"), create("twice")
    assert create(ids) == once
    assert create([ids]) == once
    assert create(["once", "twice"]) == once + twice


def test_a_streamed_completion_of_two_prompts(client: OpenAI) -> None:
    texts = ["", ""]
    for chunk in client.completions.create(
        model="toy", prompt=["once", "twice"], temperature=0, max_tokens=9, stream=True
    ):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    made = client.completions.create(
        model="toy", prompt=["once", "twice"], temperature=0, max_tokens=9
    )
    assert texts == [choice.text for choice in made.choices]


def test_default_length_of_a_completion_is_openais(client: OpenAI) -> None:
    made = client.completions.create(
        model="toy", prompt="x", temperature=0, extra_body={"ignore_eos": True}
    )
    assert made.usage and made.usage.completion_tokens == 16


def test_seeds_temperature_and_stop_are_honoured(client: OpenAI) -> None:
    first = ask(client, temperature=1, seed=1)
    assert ask(client, temperature=1, seed=1) == first != ask(client, temperature=1, seed=2)
    greedy = ask(client)
    assert ask(client, seed=1) == ask(client, seed=2) == greedy
    assert len(greedy) > 5
    assert ask(client, stop=greedy[3:5]) == greedy[: greedy.index(greedy[3:5])]
    assert ask(client, stop=["\n\n", greedy[3:5]]) == greedy[: greedy.index(greedy[3:5])]


def test_eight_at_once_answer_as_one_at_a_time(client: OpenAI) -> None:
    questions = [f"question {i} " * (i + 1) for i in range(8)]
    alone = [ask(client, question) for question in questions]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda question: ask(client, question), questions))
    assert together == alone
    assert len(set(alone)) == 8


def test_parts_names_metadata_and_no_ops_are_accepted(client: OpenAI) -> None:
    parts: list[ChatCompletionMessageParam] = [
        {"role": "developer", "content": "be"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    client.chat.completions.create(
        model="toy",
        messages=parts,
        max_completion_tokens=2,
        n=1,
        logprobs=False,
        logit_bias={},
        presence_penalty=0,
        frequency_penalty=0.0,
        response_format={"type": "text"},
        store=False,
        user="me",
        metadata={"a": "b"},
        tools=[],
        tool_choice="auto",
        extra_body={"top_k": 5, "min_p": 0.1, "seed": None},
    )


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").owned_by == "mlcc"
