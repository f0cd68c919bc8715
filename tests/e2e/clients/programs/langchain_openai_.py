"""LangChain over OpenAI's API."""

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from tests.e2e.clients.programs.client import CITY, PERSON, QUESTION, TOOL, main


class Person(BaseModel):
    name: str
    age: int


def connect(url):
    return ChatOpenAI(model="scripted", base_url=f"{url}/v1", api_key="none", max_retries=0)


def chat(url):
    return {"text": connect(url).invoke(QUESTION).text}


def stream(url):
    return {"pieces": [chunk.text for chunk in connect(url).stream(QUESTION)]}


def tools(url):
    model = connect(url).bind_tools([TOOL])
    messages = [HumanMessage(CITY)]
    message = model.invoke(messages)
    call = message.tool_calls[0]
    messages += [message, ToolMessage("sunny", tool_call_id=call["id"])]
    return {"calls": [[call["name"], call["args"]]], "text": model.invoke(messages).text}


def streamed_tools(url):
    whole = None
    for chunk in connect(url).bind_tools([TOOL]).stream(CITY):
        whole = chunk if whole is None else whole + chunk
    return {"calls": [[call["name"], call["args"]] for call in whole.tool_calls]}


def structured(url):
    return connect(url).with_structured_output(Person).invoke(PERSON).model_dump()


if __name__ == "__main__":
    main(globals())
