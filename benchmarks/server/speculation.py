"""Speculative decoding: the same prompts with `--speculate` and without, one stream.

    python -m benchmarks.server.speculation FOLDER [--how lookup:8] [--draft FOLDER] [--rounds 5]
        [--llama-server PATH --gguf FILE [--llama-how "--spec-type ngram-simple"]]

Copy-heavy prompts: code that is repeated with an edit, a letter that is read out. Others: prose,
greedy and sampled, where draft tokens gain little and should cost nothing. Rounds alternate; the
table has medians, in tokens a second after the first. Random weights repeat nothing, so the model
must be a real one. The table also says whether texts are equal: rounding may change a tie.
llama-server, if given, takes turns with the engines, without and with its own speculation.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.server.serve import serving
from mlcc import Engine

CODE = '''class Account:
    """What a customer has."""

    def __init__(self, owner: str, balance: int = 0) -> None:
        self.owner = owner
        self.balance = balance

    def deposit(self, amount: int) -> None:
        if amount <= 0:
            raise ValueError("the amount must be above 0")
        self.balance += amount

    def withdraw(self, amount: int) -> None:
        if amount > self.balance:
            raise ValueError("the balance is too small")
        self.balance -= amount
'''
LETTER = (
    "Invoice 4711 of 3 March 2026, Miller Tools Ltd, 12 Harbour Street, Bristol. 40 drill bits of "
    "6 mm at 2.10, 12 hammers with fibreglass handles at 14.50, 3 workbenches of beech at 189.00."
)
PROMPTS = {
    "code edit": f"The file:\n{CODE}\nIt with the class renamed to Wallet:\nclass Wallet:",
    "extraction": f"{LETTER}\n{LETTER}\nOnce more, word for word:\n",
    "prose": "The history of the city of Vienna begins with",
}
CASES = (("code edit", 0.0), ("extraction", 0.0), ("prose", 0.0), ("prose", 1.0))
TOKENS = 128


def answer(engine: Engine, prompt: str, temperature: float, seed: int) -> tuple[float, str, Any]:
    """(tokens a second after the first, the text, counts of accepted and rejected draft tokens)."""
    stream = engine.completions.create(
        prompt=prompt, max_tokens=TOKENS, temperature=temperature, seed=seed, ignore_eos=True,
        stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    first, text, drafted = 0.0, "", None
    for chunk in stream:
        first = first or perf_counter()
        if chunk.choices:
            text += chunk.choices[0].text
        else:
            drafted = chunk.usage.get("completion_tokens_details")
    return (TOKENS - 1) / (perf_counter() - first), text, drafted


def llama_speed(url: str, prompt: str, temperature: float, seed: int) -> float:
    """Tokens a second of llama-server, by its own clock."""
    fields = {
        "prompt": prompt, "n_predict": TOKENS, "temperature": temperature, "seed": seed,
        "ignore_eos": True, "cache_prompt": False,
    }  # fmt: skip
    request = urllib.request.Request(f"{url}/completion", json.dumps(fields).encode())
    with urllib.request.urlopen(request) as response:
        return float(json.load(response)["timings"]["predicted_per_second"])


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--how", default=None, help="lookup[:N] or draft[:N]")
    parser.add_argument("--draft", default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-server", help="its command")
    parser.add_argument("--gguf")
    parser.add_argument("--llama-how", default="--spec-type ngram-simple", help="its options")
    given = parser.parse_args()
    how = given.how or ("draft" if given.draft else "lookup")
    with ExitStack() as stack:
        servers: list[str] = []
        for options in ("", given.llama_how) if given.llama_server else ():
            command = [*given.llama_server.split(), "-m", given.gguf, "-t", "2", "-np", "1"]
            command += ["-c", "2048", "--no-webui", *options.split()]
            start = serving(lambda port, command=command: [*command, "--port", str(port)])
            servers.append(stack.enter_context(start))
        engines = [
            stack.enter_context(Engine(given.model, prefix_cache=False)),
            stack.enter_context(
                Engine(given.model, prefix_cache=False, speculate=how, draft=given.draft)
            ),
        ]
        compare(engines, servers, how, given.rounds)


def compare(engines: list[Engine], servers: list[str], how: str, rounds: int) -> None:
    """Print a row for each case."""
    peers = " llama-server off | on | ratio |" if servers else ""
    print(f"| workload | off | {how} | ratio | accepted / rejected | same text |{peers}")
    print("|---|--:|--:|--:|--:|---|" + "--:|--:|--:|" * bool(servers))
    for name, temperature in CASES:
        speeds: list[list[float]] = [[] for _ in (*engines, *servers)]
        same, drafted = True, None
        for number in range(rounds):
            results = [answer(e, PROMPTS[name], temperature, number) for e in engines]
            llama = [llama_speed(url, PROMPTS[name], temperature, number) for url in servers]
            for row, speed in zip(
                speeds, [*(result[0] for result in results), *llama], strict=True
            ):
                row.append(speed)
            same = same and results[0][1] == results[1][1]
            drafted = results[1][2] or drafted
        medians = [*map(median, speeds)]
        rows = [
            f" {a:.1f} | {b:.1f} | {b / a:.2f} |"
            for a, b in zip(medians[::2], medians[1::2], strict=True)
        ]
        counts = " / ".join(map(str, drafted.values())) if drafted else "none"
        print(f"| {name}, t = {temperature:g} |{rows[0]} {counts} | "
              f"{'yes' if same else 'up to a tie'} |{''.join(rows[1:])}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
