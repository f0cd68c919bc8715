"""Labels for many texts: a batch of requests whose answers are held to the labels.

    python examples/label/label.py examples/label/texts.txt --model examples/demo/model \\
        --question "What sound does the {} make?" --labels moo,woof,meow,cluck,quack

Writes the requests, runs `mlcc batch` (which goes on where it was if it is stopped) and prints each
text with its label. The same file of requests can be sent to a server: /v1/batches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path


def requests_of(texts: list[str], question: str, labels: list[str]) -> str:
    """JSON lines of OpenAI's batch format."""
    lines = []
    for number, text in enumerate(texts):
        body = {
            "messages": [{"role": "user", "content": question.replace("{}", text)}],
            "structured_outputs": {"choice": labels},
            "temperature": 0,
        }
        lines.append({"custom_id": f"{number}", "url": "/v1/chat/completions", "body": body})
    return "".join(json.dumps(line) + "\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, help="a text in each line")
    parser.add_argument("--model", required=True)
    parser.add_argument("--question", required=True, help="{} is the text")
    parser.add_argument("--labels", required=True, help="separated by commas")
    args = parser.parse_args()
    texts = args.texts.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        asked.write_text(requests_of(texts, args.question, args.labels.split(",")), "utf-8")
        command = [sys.executable, "-m", "mlcc", "batch", args.model, str(asked), "-o"]
        subprocess.run([*command, str(answered)], check=True)
        counts: Counter[str] = Counter()
        with answered.open(encoding="utf-8") as lines:
            for text, line in zip(texts, lines, strict=True):
                body = json.loads(line)["response"]["body"]
                label = body["choices"][0]["message"]["content"]
                print(f"{label}\t{text}")
                counts[label] += 1
    print(", ".join(f"{count} {label}" for label, count in counts.most_common()))


if __name__ == "__main__":
    main()
