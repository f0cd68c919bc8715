"""huggingface_hub's InferenceClient: TGI's routes, and chats through OpenAI's."""

import json

from huggingface_hub import InferenceClient

from tests.e2e.clients.programs.client import CITY, PERSON, QUESTION, TOOL, main

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def user_message(text):
    return [{"role": "user", "content": text}]


def chat(url):
    answer = InferenceClient(url).chat_completion(user_message(QUESTION), model="scripted")
    return {"text": answer.choices[0].message.content}


def stream(url):
    client = InferenceClient(url)
    chunks = client.chat_completion(user_message(QUESTION), model="scripted", stream=True)
    return {"pieces": [c.choices[0].delta.content or "" for c in chunks if c.choices]}


def tools(url):
    client, messages = InferenceClient(url), user_message(CITY)
    message = client.chat_completion(messages, tools=[TOOL], model="scripted").choices[0].message
    call = message.tool_calls[0]
    messages += [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    text = (
        client.chat_completion(messages, tools=[TOOL], model="scripted").choices[0].message.content
    )
    return {"calls": [[call.function.name, json.loads(call.function.arguments)]], "text": text}


def structured(url):
    grammar = {"type": "json", "value": SCHEMA}
    prompt = TURN.format(PERSON)
    text = InferenceClient(url).text_generation(prompt, grammar=grammar, max_new_tokens=200)
    return json.loads(text)


def generate(url):
    details = InferenceClient(url).text_generation(TURN.format(QUESTION), details=True)
    return {"text": details.generated_text, "reason": details.details.finish_reason}


def streamed_generate(url):
    client = InferenceClient(url)  # which closes its streams when it is gone
    events = client.text_generation(TURN.format(QUESTION), stream=True, details=True)
    return {"pieces": [e.token.text for e in events if not e.token.special]}


if __name__ == "__main__":
    main(globals())
