"""Questions about a folder of texts: the passages that fit a question go into the prompt.

    python examples/rag/rag.py examples/rag/texts "What does Drazix have?" \\
        --encoder all-minilm --model examples/demo/model

Each paragraph is a passage. An encoder finds the passages that are near the question (embeddings),
ranks them (rerank), and a language model answers from the best.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mlcc import Engine


def passages_of(folder: Path) -> list[tuple[str, str]]:
    """(file name, paragraph) of all texts of a folder."""
    return [
        (path.name, " ".join(paragraph.split()))
        for path in sorted(folder.rglob("*.txt"))
        for paragraph in path.read_text(encoding="utf-8").split("\n\n")
        if paragraph.strip()
    ]


def nearest(encoder: Engine, question: str, passages: list[str], count: int) -> list[str]:
    """The passages whose embeddings are nearest to the question's."""
    rows = [row.embedding for row in encoder.embeddings.create(input=[question, *passages]).data]
    likeness = [sum(a * b for a, b in zip(rows[0], row, strict=True)) for row in rows[1:]]
    best = sorted(range(len(passages)), key=lambda i: -likeness[i])[:count]
    return [passages[i] for i in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("question")
    parser.add_argument("--encoder", required=True, help="a model that makes embeddings")
    parser.add_argument("--model", required=True, help="a model that answers")
    parser.add_argument("--passages", type=int, default=2)
    args = parser.parse_args()

    found = passages_of(args.folder)
    if not found:
        parser.error(f"{args.folder} has no *.txt with text")
    file_of = {passage: name for name, passage in found}
    with Engine(args.encoder) as encoder:
        near = nearest(encoder, args.question, [*file_of], 4 * args.passages)
        ranking = encoder.rerank.create(query=args.question, documents=near, top_n=args.passages)
        chosen = [near[row.index] for row in ranking.results]
    for row in ranking.results:
        passage = near[row.index]
        print(f"{row.relevance_score:.2f}  {file_of[passage]}: {passage}")

    prompt = f"{' '.join(chosen)} {args.question}"
    with Engine(args.model) as model:
        messages = [{"role": "user", "content": prompt}]
        for piece in model.chat.completions.create(messages=messages, temperature=0, stream=True):
            print(piece.choices[0].delta.get("content") or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
