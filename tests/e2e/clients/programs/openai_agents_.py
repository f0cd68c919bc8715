"""OpenAI's agents SDK, over chat completions and over responses."""

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from tests.e2e.clients.programs.client import CITY, QUESTION, main

set_tracing_disabled(True)
CALLED = []


@function_tool
def lookup(city: str) -> str:
    """The weather in a city."""
    CALLED.append(["lookup", {"city": city}])
    return "sunny"


def run(url, text, kind):
    model = kind(model="scripted", openai_client=AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))
    agent = Agent(name="helper", instructions="Be brief.", model=model, tools=[lookup])
    text = Runner.run_sync(agent, text).final_output
    return {"text": text, "calls": CALLED}


def chat(url):
    return run(url, QUESTION, OpenAIChatCompletionsModel)


def tools(url):
    return run(url, CITY, OpenAIChatCompletionsModel)


def responses(url):
    return {"first": "17 + 25 is 42.", **run(url, CITY, OpenAIResponsesModel)}


if __name__ == "__main__":
    main(globals())
