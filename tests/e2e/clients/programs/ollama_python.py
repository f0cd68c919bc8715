"""Ollama's Python client."""

import json

from ollama import Client
from pydantic import BaseModel

from tests.e2e.clients.programs.client import CITY, PERSON, QUESTION, TOOL, main


class Person(BaseModel):
    name: str
    age: int


def request(text):
    return {"model": "scripted", "messages": [{"role": "user", "content": text}]}


def chat(url):
    return {"text": Client(url).chat(**request(QUESTION)).message.content}


def stream(url):
    return {
        "pieces": [c.message.content for c in Client(url).chat(**request(QUESTION), stream=True)]
    }


def tools(url):
    client, asked = Client(url), request(CITY)
    message = client.chat(**asked, tools=[TOOL]).message
    call = message.tool_calls[0].function
    asked["messages"] += [message, {"role": "tool", "tool_name": call.name, "content": "sunny"}]
    text = client.chat(**asked, tools=[TOOL]).message.content
    return {"calls": [[call.name, dict(call.arguments)]], "text": text}


def streamed_tools(url):
    chunks = Client(url).chat(**request(CITY), tools=[TOOL], stream=True)
    calls = [call.function for chunk in chunks for call in chunk.message.tool_calls or ()]
    return {"calls": [[call.name, dict(call.arguments)] for call in calls]}


def structured(url):
    answer = Client(url).chat(**request(PERSON), format=Person.model_json_schema())
    return json.loads(answer.message.content)


def reasoning(url):
    message = Client(url).chat(**request("think hello"), think=True).message
    return {"reasoning": message.thinking.strip(), "text": message.content}


if __name__ == "__main__":
    main(globals())
