"""OpenAI's Python client."""

import json

from openai import OpenAI
from pydantic import BaseModel

from tests.e2e.clients.programs.client import CITY, PERSON, QUESTION, TOOL, main


class Person(BaseModel):
    name: str
    age: int


def connect(url):
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def user_message(text):
    return [{"role": "user", "content": text}]


def chat(url):
    answer = connect(url).chat.completions.create(model="scripted", messages=user_message(QUESTION))
    return {"text": answer.choices[0].message.content}


def stream(url):
    chunks = connect(url).chat.completions.create(
        model="scripted", messages=user_message(QUESTION), stream=True
    )
    return {"pieces": [c.choices[0].delta.content or "" for c in chunks if c.choices]}


def tools(url):
    client = connect(url)
    messages = user_message(CITY)
    asked = client.chat.completions.create(model="scripted", messages=messages, tools=[TOOL])
    message = asked.choices[0].message
    call = message.tool_calls[0]
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    answer = client.chat.completions.create(model="scripted", messages=messages, tools=[TOOL])
    arguments = json.loads(call.function.arguments)
    text = answer.choices[0].message.content
    return {"calls": [[call.function.name, arguments]], "text": text}


def streamed_tools(url):
    with connect(url).chat.completions.stream(
        model="scripted", messages=user_message(CITY), tools=[TOOL]
    ) as events:
        final = events.get_final_completion()
    calls = final.choices[0].message.tool_calls
    return {"calls": [[c.function.name, json.loads(c.function.arguments)] for c in calls]}


def structured(url):
    answer = connect(url).chat.completions.parse(
        model="scripted", messages=user_message(PERSON), response_format=Person
    )
    return answer.choices[0].message.parsed.model_dump()


def reasoning(url):
    answer = connect(url).chat.completions.create(
        model="scripted", messages=user_message("think hello")
    )
    message = answer.choices[0].message
    return {"reasoning": message.reasoning_content, "text": message.content}


def responses(url):
    client = connect(url)
    first = client.responses.create(model="scripted", input=QUESTION)
    tool = {"type": "function", **TOOL["function"], "strict": False}
    second = client.responses.create(
        model="scripted", input=CITY, previous_response_id=first.id, tools=[tool]
    )
    call = next(item for item in second.output if item.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    third = client.responses.create(
        model="scripted", input=[result], previous_response_id=second.id, tools=[tool]
    )
    return {
        "calls": [[call.name, json.loads(call.arguments)]],
        "text": third.output_text,
        "first": first.output_text,
    }


def streamed_responses(url):
    with connect(url).responses.stream(model="scripted", input=QUESTION) as events:
        pieces = [e.delta for e in events if e.type == "response.output_text.delta"]
        return {"pieces": pieces, "text": events.get_final_response().output_text}


if __name__ == "__main__":
    main(globals())
