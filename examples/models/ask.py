"""Several models behind one address: each is loaded by its first request.

mlcc serve MODEL ANOTHER --config examples/models/models.toml
python examples/models/ask.py "What is 17 + 25?"
"""

from __future__ import annotations

import argparse

from openai import OpenAI


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question")
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    args = parser.parse_args()
    with OpenAI(base_url=args.url, api_key="unused") as client:
        for model in client.models.list().data:
            answer = client.chat.completions.create(
                model=model.id,
                messages=[{"role": "user", "content": args.question}],
                temperature=0,
                max_tokens=40,
            )
            state = client.models.retrieve(model.id).model_dump()["state"]
            print(f"{model.id} ({state}): {answer.choices[0].message.content}")


if __name__ == "__main__":
    main()
