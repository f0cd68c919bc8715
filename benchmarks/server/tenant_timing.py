"""Does the time of an answer tell one API key what another key asked?

    python -m benchmarks.server.tenant_timing ARTIFACT [--rounds 300] [--tokens 512]

In each round the key `victim` sends a random prompt. Then `attacker` sends the same prompt and a
new one, in random order; each request asks for one token. As a control, `victim` then sends both
kinds too: that is how much a hit in the prefix cache would show. Prints for each key the median
difference of the times (new prompt minus known prompt) with a 95 % interval of the median by
bootstrap, how often the known prompt was the faster of a pair, and the largest number of cached
tokens that the answers reported. 50 % is what guessing gives.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from benchmarks.server.serve import serving

KEYS = ("victim", "attacker")
RESAMPLES = 2000


@dataclass
class Pairs:
    """Times of pairs of a prompt that the victim had sent and one that it had not."""

    differences: list[float] = field(default_factory=list)
    """Milliseconds: unknown minus known."""
    cached: int = 0
    """Most cached tokens that an answer reported."""

    def report(self, rng: random.Random) -> dict[str, object]:
        """The figures of the module's docstring."""
        values = self.differences
        medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
        low, high = medians[RESAMPLES // 40], medians[-RESAMPLES // 40]
        return {
            "median_ms": round(median(values), 3),
            "interval_ms": [round(low, 3), round(high, 3)],
            "known_is_faster": round(sum(value > 0 for value in values) / len(values), 3),
            "cached_tokens": self.cached,
        }


class Timing:
    """One connection for each key."""

    def __init__(self, url: str, vocab: int, tokens: int, seed: int = 3) -> None:
        host = urlsplit(url).netloc
        self._connections = {key: http.client.HTTPConnection(host, timeout=60) for key in KEYS}
        self._rng, self._vocab, self._tokens = random.Random(seed), vocab, tokens
        self.pairs = {key: Pairs() for key in KEYS}

    def round(self) -> None:
        """The victim's prompt, then a pair of each key."""
        known = self._prompt()
        self._send("victim", known)
        for key in reversed(KEYS):
            prompts = {"known": known, "unknown": self._prompt()}
            times = {}
            for name in self._rng.sample([*prompts], 2):
                times[name], cached = self._send(key, prompts[name])
                self.pairs[key].cached = max(self.pairs[key].cached, cached)
            self.pairs[key].differences.append(times["unknown"] - times["known"])

    def _prompt(self) -> list[int]:
        return [self._rng.randrange(1, self._vocab) for _ in range(self._tokens)]

    def _send(self, key: str, prompt: list[int]) -> tuple[float, int]:
        """Milliseconds of an answer of one token, and its cached tokens."""
        body = json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        connection, start = self._connections[key], time.perf_counter()
        connection.request("POST", "/v1/completions", body, headers)
        answer = json.loads(connection.getresponse().read())
        milliseconds = 1000 * (time.perf_counter() - start)
        return milliseconds, answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=512)
    given = parser.parse_args()
    vocab = json.loads((given.artifact / "mlcc.json").read_text())["model"]["vocab_size"]
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        keys.write_text(json.dumps({"keys": [{"name": key, "key": key} for key in KEYS]}))
        command = [sys.executable, "-m", "mlcc", "serve", str(given.artifact)]
        command += ["--api-keys", str(keys), "--port"]
        with serving(lambda port: [*command, str(port)]) as url:
            timing = Timing(url, vocab, given.tokens)
            for _ in range(given.rounds):
                timing.round()
    rng = random.Random(given.rounds)
    print(json.dumps({key: pairs.report(rng) for key, pairs in timing.pairs.items()}))


if __name__ == "__main__":
    main()
