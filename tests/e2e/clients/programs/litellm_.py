"""LiteLLM, as a library."""

import json

import litellm

from tests.e2e.clients.programs.client import CITY, QUESTION, TOOL, main


def asked(url, text):
    return {
        "model": "openai/scripted",
        "api_base": f"{url}/v1",
        "api_key": "none",
        "messages": [{"role": "user", "content": text}],
    }


def chat(url):
    return {"text": litellm.completion(**asked(url, QUESTION)).choices[0].message.content}


def stream(url):
    chunks = litellm.completion(**asked(url, QUESTION), stream=True)
    return {"pieces": [chunk.choices[0].delta.content or "" for chunk in chunks]}


def tools(url):
    request = asked(url, CITY)
    message = litellm.completion(**request, tools=[TOOL]).choices[0].message
    call = message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    request["messages"] += [message.model_dump(), result]
    text = litellm.completion(**request, tools=[TOOL]).choices[0].message.content
    return {"calls": [[call.function.name, json.loads(call.function.arguments)]], "text": text}


def reasoning(url):
    message = litellm.completion(**asked(url, "think hello")).choices[0].message
    return {"reasoning": message.reasoning_content, "text": message.content}


if __name__ == "__main__":
    main(globals())
