"""Pydantic AI, over OpenAI's API."""

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.e2e.clients.programs.client import CITY, PERSON, QUESTION, main

CALLED = []


class Person(BaseModel):
    name: str
    age: int


def connect(url, **options):
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    return Agent(OpenAIChatModel("scripted", provider=provider), **options)


def lookup(city: str) -> str:
    """The weather in a city."""
    CALLED.append(["lookup", {"city": city}])
    return "sunny"


def chat(url):
    return {"text": connect(url).run_sync(QUESTION).output}


def tools(url):
    text = connect(url, tools=[lookup]).run_sync(CITY).output
    return {"text": text, "calls": CALLED}


def required_tool(url):
    return connect(url, output_type=Person).run_sync(PERSON).output.model_dump()


if __name__ == "__main__":
    main(globals())
