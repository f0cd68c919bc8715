"""What guessing ahead brings: the same prompts with `--speculate` and without, one stream.

    python -m benchmarks.server.speculation FOLDER [--how lookup:8] [--draft FOLDER] [--rounds 5]
        [--llama-server PATH --gguf FILE [--llama-how "--spec-type ngram-simple"]]

Copy-heavy: code that is repeated with an edit, a letter that is read out. Elsewhere: prose,
greedy and sampled, where guesses bring little and should cost nothing. Rounds alternate, and the
median of each is told, in tokens a second after the first; random weights copy nothing, so the
model must be a real one. Whether texts are the same is told: rounding may part them at a tie.
llama-server, if one is given, takes turns with them, without its own guesses and with them.
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
    """(tokens a second behind the first, the text, what was guessed)."""
    stream = engine.completions.create(
        prompt=prompt, max_tokens=TOKENS, temperature=temperature, seed=seed, ignore_eos=True,
        stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    first, text, told = 0.0, "", None
    for chunk in stream:
        first = first or perf_counter()
        if chunk.choices:
            text += chunk.choices[0].text
        else:
            told = chunk.usage.get("completion_tokens_details")
    return (TOKENS - 1) / (perf_counter() - first), text, told


def llama_speed(url: str, prompt: str, temperature: float, seed: int) -> float:
    """The same of llama-server, by its own clock."""
    asked = {
        "prompt": prompt, "n_predict": TOKENS, "temperature": temperature, "seed": seed,
        "ignore_eos": True, "cache_prompt": False,
    }  # fmt: skip
    request = urllib.request.Request(f"{url}/completion", json.dumps(asked).encode())
    with urllib.request.urlopen(request) as answered:
        return float(json.load(answered)["timings"]["predicted_per_second"])


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
    """All cases, a row each."""
    peers = " llama-server off | on | ratio |" if servers else ""
    print(f"| workload | off | {how} | ratio | accepted / rejected | same text |{peers}")
    print("|---|--:|--:|--:|--:|---|" + "--:|--:|--:|" * bool(servers))
    for name, temperature in CASES:
        speeds: list[list[float]] = [[] for _ in (*engines, *servers)]
        same, told = True, None
        for number in range(rounds):
            made = [answer(e, PROMPTS[name], temperature, number) for e in engines]
            theirs = [llama_speed(url, PROMPTS[name], temperature, number) for url in servers]
            for mine, speed in zip(speeds, [*(one[0] for one in made), *theirs], strict=True):
                mine.append(speed)
            same, told = same and made[0][1] == made[1][1], made[1][2] or told
        found = [*map(median, speeds)]
        rows = [
            f" {a:.1f} | {b:.1f} | {b / a:.2f} |"
            for a, b in zip(found[::2], found[1::2], strict=True)
        ]
        counts = " / ".join(map(str, told.values())) if told else "none"
        print(f"| {name}, t = {temperature:g} |{rows[0]} {counts} | "
              f"{'yes' if same else 'up to a tie'} |{''.join(rows[1:])}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
