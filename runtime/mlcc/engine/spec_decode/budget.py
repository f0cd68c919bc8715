"""Budget of speculation: bounds the time that rejected draft tokens may cost.

`speculator.py` decides how many tokens to draft from acceptance rates and token costs. Both are
estimates, and can be wrong for long: on text that is hard to predict, or on a device where the
second token of a step costs as much as the first. So each step with draft tokens is compared with
the measured time that its tokens take without drafting. Losses are paid from a balance that gains
`SHARE` of all time; while the balance is spent, nothing is drafted. Outputs therefore take at most
1 + SHARE of their time without speculation, plus `START` steps.

`StepCost` fits a line to the times of decode-only steps (least squares with decaying weights): a
part that every step takes (weights are read), and a part per token. Until steps of several sizes
were seen, the slope is the assumed one. Times are in any unit.
"""

from __future__ import annotations

ASSUMED_SHARE = 0.12
"""Time that each further token adds until it is measured, as a share of a one-token step."""
_DECAY = 0.98
_PRIOR_WEIGHT = 2.0
"""Weight of the assumed slope, in measured steps."""
_MIN_SHARE = 0.01
"""Least share of a step that a token adds: measurements are noisy."""


class StepCost:
    """Linear model of step time over tokens."""

    def __init__(self) -> None:
        self._weight = self._tokens = self._squares = self._times = self._products = 0.0

    def observe(self, tokens: int, seconds: float | None) -> None:
        """A decode-only step of this many tokens. seconds: None = not measured."""
        if seconds is None or seconds <= 0:
            return
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
        if not self._weight:
            return ASSUMED_SHARE / (1 - ASSUMED_SHARE + ASSUMED_SHARE * tokens)
        mean, time = self._tokens / self._weight, self._times / self._weight
        spread = self._squares / self._weight - mean * mean
        slope = self._products / self._weight - mean * time
        assumed = time * ASSUMED_SHARE / (1 - ASSUMED_SHARE + ASSUMED_SHARE * mean)
        doubt = _PRIOR_WEIGHT / self._weight
        slope = (slope + assumed * doubt) / (spread + doubt)
        slope = min(max(slope, _MIN_SHARE * time), time / mean)
        whole = time + slope * (tokens - mean)
        return min(1.0, max(_MIN_SHARE, slope / whole)) if whole > 0 else 1.0


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
        self._credit(START * seconds if first else SHARE * seconds, seconds)

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
        self._credit(plain_time - seconds + SHARE * plain_time, plain)

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
