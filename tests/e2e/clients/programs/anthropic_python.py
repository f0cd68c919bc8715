"""Anthropic's Python client."""

from anthropic import Anthropic

from tests.e2e.clients.programs.client import CITY, QUESTION, TOOL, main

SPEC = TOOL["function"]
TOOLS = [
    {"name": SPEC["name"], "description": SPEC["description"], "input_schema": SPEC["parameters"]}
]


def connect(url):
    return Anthropic(base_url=url, api_key="none", max_retries=0)


def request(text):
    return {"model": "scripted", "max_tokens": 500, "messages": [{"role": "user", "content": text}]}


def chat(url):
    return {"text": connect(url).messages.create(**request(QUESTION)).content[0].text}


def stream(url):
    with connect(url).messages.stream(**request(QUESTION)) as events:
        return {"pieces": list(events.text_stream)}


def tools(url):
    client, asked = connect(url), request(CITY)
    first = client.messages.create(**asked, tools=TOOLS)
    call = next(block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    asked["messages"] += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(**asked, tools=TOOLS)
    return {"calls": [[call.name, call.input]], "text": second.content[0].text}


def streamed_tools(url):
    with connect(url).messages.stream(**request(CITY), tools=TOOLS) as events:
        final = events.get_final_message()
    return {"calls": [[b.name, b.input] for b in final.content if b.type == "tool_use"]}


def reasoning(url):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    asked = {**request("think hello"), "max_tokens": 2048}
    blocks = connect(url).messages.create(**asked, thinking=thinking).content
    return {"reasoning": blocks[0].thinking.strip(), "text": blocks[1].text}


if __name__ == "__main__":
    main(globals())
