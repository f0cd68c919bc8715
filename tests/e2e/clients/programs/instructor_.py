"""Instructor: structured output by schema, and by a tool that must be called."""

import instructor
from openai import OpenAI
from pydantic import BaseModel

from tests.e2e.clients.programs.client import PERSON, main


class Person(BaseModel):
    name: str
    age: int


def ask(url, mode):
    client = instructor.from_openai(OpenAI(base_url=f"{url}/v1", api_key="none"), mode=mode)
    messages = [{"role": "user", "content": PERSON}]
    return client.chat.completions.create(
        model="scripted", messages=messages, response_model=Person, max_retries=0
    ).model_dump()


def structured(url):
    return ask(url, instructor.Mode.JSON_SCHEMA)


def required_tool(url):
    return ask(url, instructor.Mode.TOOLS)


if __name__ == "__main__":
    main(globals())
