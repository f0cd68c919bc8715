"""What guessing ahead brings: the same prompts with `--speculate` and without, one stream.

    python benchmarks/speculation.py FOLDER [--how lookup:8] [--draft FOLDER] [--rounds 5]

Copy-heavy: code that is repeated with an edit, a letter that is read out. Elsewhere: prose,
greedy and sampled, where guesses bring little and should cost nothing. Rounds alternate, and the
median of each is told, in tokens a second after the first; random weights copy nothing, so the
model must be a real one. Whether texts are the same is told: rounding may part them at a tie.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter
from typing import Any

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


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--how", default=None, help="lookup[:N] or draft[:N]")
    parser.add_argument("--draft", default=None)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    how = given.how or ("draft" if given.draft else "lookup")
    engines = [
        Engine(given.model, prefix_cache=False),
        Engine(given.model, prefix_cache=False, speculate=how, draft=given.draft),
    ]
    print(f"| workload | off | {how} | ratio | accepted / rejected | same text |")
    print("|---|--:|--:|--:|--:|---|")
    for name, temperature in CASES:
        speeds: list[list[float]] = [[], []]
        same, told = True, None
        for number in range(given.rounds):
            made = [answer(e, PROMPTS[name], temperature, number) for e in engines]
            for mine, (speed, _, _) in zip(speeds, made, strict=True):
                mine.append(speed)
            same, told = same and made[0][1] == made[1][1], made[1][2] or told
        off, on = map(median, speeds)
        counts = " / ".join(map(str, told.values())) if told else "none"
        print(f"| {name}, t = {temperature:g} | {off:.1f} | {on:.1f} | {on / off:.2f} | {counts} | "
              f"{'yes' if same else 'up to a tie'} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
