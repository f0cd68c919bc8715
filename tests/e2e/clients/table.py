"""The table of clients and features in docs/clients.md, from test outcomes.

    python3 dev.py clients     install all clients, test them, and write the table

The standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs" / "clients.md"
BEGIN, END = "<!-- clients: python3 dev.py clients -->", "<!-- end of clients -->"
FEATURES = {
    "chat": "chat",
    "stream": "stream",
    "tools": "tools",
    "streamed_tools": "tools, streamed",
    "required_tool": "a required tool",
    "structured": "structured output",
    "reasoning": "reasoning",
    "responses": "responses",
    "streamed_responses": "responses, streamed",
    "generate": "text generation",
    "streamed_generate": "text generation, streamed",
    "embeddings": "embeddings",
    "scores": "scores, classes",
    "models": "loads models",
    "edit": "edits a file",
}
"""Name in the programs -> heading."""

Outcomes = Mapping[tuple[str, str], str]
"""(client, feature) -> pytest's outcome."""


def render(outcomes: Outcomes) -> str:
    """Markdown. An empty cell: the client has no such thing, or it was not tried."""
    clients = list(dict.fromkeys(client for client, _ in outcomes))
    lines = [f"| | {' | '.join(FEATURES.values())} |", "|---" * (len(FEATURES) + 1) + "|"]
    words = {"passed": "yes", "failed": "**no**", "skipped": "not tried"}
    for client in clients:
        cells = [words.get(outcomes.get((client, feature), ""), "") for feature in FEATURES]
        lines.append(f"| {client} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(outcomes: Outcomes) -> None:
    """Write the table into docs/clients.md."""
    text = DOCS.read_text(encoding="utf-8")
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    DOCS.write_text(f"{text[:start]}\n{render(outcomes)}\n{text[stop:]}", encoding="utf-8")
