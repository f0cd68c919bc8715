"""Budget of speculation: bounds the time that rejected draft tokens may cost.

`speculator.py` decides how many tokens to draft from acceptance rates and token costs. Both are
estimates, and can be wrong for long: on text that is hard to predict, or on a device where the
second token of a step costs as much as the first. So each step with draft tokens is compared with
the measured time that its tokens take without drafting. Losses are paid from a balance that gains
`SHARE` of all time; while the balance is spent, nothing is drafted. Outputs therefore take at most
1 + SHARE of their time without speculation, plus `START` steps. Of several sequences at once both
are divided by the square root of their number: each step shows more drafts then.

`StepCost` knows the times of decode-only steps by their tokens, and beside them a line (least
squares with decaying weights) for numbers that were not measured lately: a part that every step
takes (weights are read), and a part per token. Until steps of several sizes were seen, the slope
is the assumed one. Times are in any unit.
"""

from __future__ import annotations

from math import sqrt

ASSUMED_SHARE = 0.12
"""Time that each further token adds until it is measured, as a share of a one-token step."""
_DECAY = 0.98
_PRIOR_WEIGHT = 2.0
"""Weight of the assumed slope, in measured steps."""
_MIN_SHARE = 0.01
"""Least share of a step that a token adds: measurements are noisy."""


_GUESS_WEIGHT = 2.0
"""Weight of a guess beside the measured steps of as many tokens, which fade like all others."""
_NEAR = 8
"""Tokens from a number to those that help to guess its time."""
_MOST_WEIGHT = 8.0
"""Most weight of those steps."""
_NEW_TOKENS = 4
"""Tokens by which a step may exceed all measured ones; of larger steps, a fourth of them."""
_SURPRISE = 1.5
"""Largest ratio of a time to the expected one that is learned at once."""


class StepCost:
    """Step time by the number of tokens: products take rows in tiles of several heights, so times
    have steps, where a line through them has none."""

    def __init__(self) -> None:
        self._weight = self._tokens = self._squares = self._times = self._products = 0.0
        self._measured: dict[int, tuple[float, float, int]] = {}
        """By tokens: weight, mean time, and the number of the step when it was measured last."""
        self._steps = 0
        self._known: dict[int, float] = {}
        """Times computed since the last step."""
        self._largest = 0
        """Most tokens of any measured step."""

    def observe(self, tokens: int, seconds: float | None) -> None:
        """A decode-only step of this many tokens. seconds: None = not measured."""
        if seconds is None or seconds <= 0:
            return
        self._steps += 1
        self._measure(tokens, seconds)
        self._known, self._largest = {}, max(self._largest, tokens)
        sums = self._weight, self._tokens, self._squares, self._times, self._products
        new = 1.0, tokens, tokens * tokens, seconds, tokens * seconds
        faded = [old * _DECAY + more for old, more in zip(sums, new, strict=True)]
        self._weight, self._tokens, self._squares, self._times, self._products = faded

    @property
    def time(self) -> float:
        """Mean time of the measured steps; 0 = none."""
        return self._times / self._weight if self._weight else 0.0

    def marginal_share(self, tokens: int) -> float:
        """Time that one more token adds to a step of `tokens`, as a share of the step: 0.01 to
        1."""
        share = self.time_of(tokens + 1) / self.time_of(tokens) - 1
        return min(1.0, max(_MIN_SHARE, share))

    def most_more(self, tokens: int, most: int) -> int:
        """How many of `most` more tokens a step may have: few more than any that was measured, as
        times of larger ones may be far from the line."""
        new = max(_NEW_TOKENS, self._largest // 4)
        return min(most, max(self._largest + new - tokens, 0)) if self._largest else most

    def time_of(self, tokens: int) -> float:
        """Expected time of a step of `tokens`; of an unknown device in any unit."""
        if (found := self._known.get(tokens)) is None:
            found = self._known[tokens] = self._estimate(tokens)
        return found

    def _measure(self, tokens: int, seconds: float) -> None:
        weight, mean = 0.0, 0.0
        if self._weight:
            expected = self.time_of(tokens)
            seconds = min(max(seconds, expected / _SURPRISE), expected * _SURPRISE)
            weight, mean, _ = self._measured.get(tokens, (0.0, 0.0, 0))
        weight = min(weight + 1, _MOST_WEIGHT)
        self._measured[tokens] = weight, mean + (seconds - mean) / weight, self._steps

    def _estimate(self, tokens: int) -> float:
        if tokens not in self._measured:
            return self._guess(tokens)
        guess = self._line(tokens)
        weight, mean, step = self._measured[tokens]
        weight *= _DECAY ** (self._steps - step)
        return (weight * mean + _GUESS_WEIGHT * guess) / (weight + _GUESS_WEIGHT)

    def _guess(self, tokens: int) -> float:
        """The line's time, or less where one of some tokens fewer was measured: as much as that one
        takes this may, too, which only such a step can show."""
        near = range(tokens - 1, max(tokens - _NEAR, 0), -1)
        below = next((n for n in near if n in self._measured), None)
        if below is None:
            return self._line(tokens)
        guess = self.time_of(below)
        for n in range(below + 1, tokens + 1):
            guess = (guess + self._line(n)) / 2
        return guess

    def _line(self, tokens: int) -> float:
        if not self._weight:
            return 1 - ASSUMED_SHARE + ASSUMED_SHARE * tokens
        mean, time = self._tokens / self._weight, self._times / self._weight
        spread = self._squares / self._weight - mean * mean
        slope = self._products / self._weight - mean * time
        assumed = time * ASSUMED_SHARE / (1 - ASSUMED_SHARE + ASSUMED_SHARE * mean)
        doubt = _PRIOR_WEIGHT / self._weight
        slope = (slope + assumed * doubt) / (spread + doubt)
        slope = min(max(slope, _MIN_SHARE * time), time / mean)
        return max(time + slope * (tokens - mean), _MIN_SHARE * time)


SHARE = 0.02
"""Share of the time of steps that speculation may lose."""
START = 2.0
"""Initial balance, in steps without drafts."""
_MAX_BALANCE = 8.0
"""Most such steps in the balance: old gains do not pay for a long loss."""
REFRESH = 64
"""After this many steps comes one without drafts: the baseline changes as sequences get longer."""
_LEARNING_RATE = 0.2
"""Weight of the latest measurement."""
_OUTLIER = 4.0
"""Largest ratio to the expected time; more is an outlier."""


class DraftBudget:
    """The budget of one engine. Times are in any unit; without measurements, drafting is always
    allowed."""

    def __init__(self) -> None:
        self._measured = False
        self._balance = 0.0
        self._steps = 0
        self._plain: dict[int, float] = {}
        """Time of a step without drafts, by the number of decoding sequences."""
        self._seen: dict[int, int] = {}
        """Step at which that was last measured."""

    def allows(self, decodes: int) -> bool:
        """Whether a step with `decodes` decoding sequences may have draft tokens."""
        if not self._measured:
            return True
        known = decodes in self._plain and self._steps - self._seen[decodes] < REFRESH
        return known and not self.spent

    @property
    def spent(self) -> bool:
        """Whether nothing may be drafted until the balance has grown."""
        return self._measured and self._balance <= 0

    def observe_plain(self, decodes: int, seconds: float | None) -> None:
        """A step with `decodes` decoding sequences and no drafts."""
        if seconds is None or seconds <= 0:
            return
        first, self._measured = not self._plain, True
        old = self._plain.get(decodes, seconds)
        seconds = min(max(seconds, old / _OUTLIER), old * _OUTLIER)
        self._plain[decodes] = old + _LEARNING_RATE * (seconds - old)
        self._steps += 1
        self._seen[decodes] = self._steps
        share = START if first else SHARE
        self._credit(share / sqrt(decodes) * seconds, seconds)

    def observe_drafted(self, decodes: int, tokens: float, seconds: float | None) -> None:
        """A step that yielded `tokens` output tokens for `decodes` decoding sequences, with draft
        tokens or with a sequence that waited to draft."""
        if seconds is None or seconds <= 0:
            return
        self._steps += 1
        if (plain := self._plain.get(decodes)) is None:  # no baseline yet
            self._measured = True
            return
        plain_time = tokens * plain / decodes
        seconds = min(seconds, _OUTLIER * max(plain, plain_time))
        self._credit(plain_time - seconds + SHARE / sqrt(decodes) * plain_time, plain)

    def observe_mixed(
        self, decodes: int, drafted: int, accepted: int, marginal_share: float
    ) -> None:
        """A step that also computes prompts, whose time does not show the cost of drafting: each
        draft token is charged `share` of a step."""
        if plain := self._plain.get(decodes):
            self._credit(plain * (accepted / decodes - marginal_share * drafted), plain)

    def spend(self, seconds: float | None) -> None:
        """Charge the time of making drafts."""
        if seconds is not None and self._measured:
            self._balance -= max(seconds, 0.0)

    def _credit(self, seconds: float, plain: float) -> None:
        self._balance = min(self._balance + seconds, _MAX_BALANCE * plain)
