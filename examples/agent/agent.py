"""An agent: the model calls functions of this program until it has an answer.

    mlcc serve MODEL --port 8000
    python examples/agent/agent.py "How many minutes are 3 hours and 20 minutes?"

MODEL must know tools: Qwen3, Llama 3.2, Gemma 4, ... A server of mlcc holds each call to the
function's JSON Schema, so the arguments need no check of their own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from openai import OpenAI

OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
}


def calculate(operation: str, a: int, b: int) -> int:
    return OPERATIONS[operation](a, b)


def clock() -> str:
    return time.strftime("%H:%M")


FUNCTIONS: Mapping[str, Callable[..., object]] = {"calculate": calculate, "clock": clock}
NUMBER = {"type": "integer", "minimum": 0, "maximum": 9999}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "calculate",
            "description": "Add, subtract or multiply two whole numbers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "operation": {"type": "string", "enum": [*OPERATIONS]},
                    "a": NUMBER,
                    "b": NUMBER,
                },
                "required": ["operation", "a", "b"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "clock",
            "description": "The time of day.",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]


def run(client: OpenAI, model: str, question: str, steps: int, first: str) -> str:
    """The answer, after at most `steps` rounds of calls. first: tool_choice of the first round."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for step in range(steps + 1):
        choice: Any = "none" if step == steps else first if step == 0 else "auto"
        message = (
            client.chat.completions.create(
                model=model, messages=messages, tools=TOOLS, tool_choice=choice, temperature=0
            )
            .choices[0]
            .message
        )
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            assert call.type == "function"
            arguments = json.loads(call.function.arguments)
            result = FUNCTIONS[call.function.name](**arguments)
            print(f"{call.function.name}({arguments}) = {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})
    return message.content or ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question")
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--first", default="auto", choices=("auto", "required"))
    args = parser.parse_args()
    with OpenAI(base_url=args.url, api_key="unused") as client:
        model = client.models.list().data[0].id
        print(run(client, model, args.question, args.steps, args.first))


if __name__ == "__main__":
    main()
