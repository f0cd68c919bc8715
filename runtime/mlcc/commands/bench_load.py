"""The load of `mlcc bench`: requests one at a time, several at once, or at a rate."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from mlcc.errors import MlccError

MOST_AT_ONCE = 1024
"""Requests that wait for their answers at once; more arrive only once one is answered."""
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Answer:
    """Measurements of one streamed answer."""

    prompt_tokens: int
    tokens: int
    times: tuple[float, ...]
    """Seconds from the request to each piece of text; a piece has one token or more."""

    @property
    def first_token_s(self) -> float:
        """Time to the first token (TTFT)."""
        return self.times[0]

    @property
    def total_s(self) -> float:
        return self.times[-1]

    @property
    def gaps(self) -> list[float]:
        """Seconds between neighbouring pieces."""
        return [late - early for early, late in zip(self.times, self.times[1:], strict=False)]

    @property
    def tokens_per_s(self) -> float:
        """Decode speed: tokens after the first one per second."""
        span = self.total_s - self.first_token_s
        return (self.tokens - 1) / span if self.tokens > 1 and span > 0 else 0.0

    @property
    def prompt_per_s(self) -> float:
        """Prompt tokens per second until the first token."""
        return self.prompt_tokens / self.first_token_s if self.first_token_s > 0 else 0.0


@dataclass(frozen=True)
class Load:
    """The requests of a measurement."""

    requests: int
    concurrency: int = 1
    rate: float | None = None
    """Requests that arrive per second, at random times (a Poisson process of a fixed seed); None =
    the next is sent when one is answered."""


@dataclass(frozen=True)
class Measurement:
    """The answers to a load, in the order of their requests."""

    answers: list[Answer]
    errors: list[str]
    """Messages of the requests that failed."""
    seconds: float
    """From the first request to the last answer."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all answers per second."""
        return sum(answer.tokens for answer in self.answers) / self.seconds

    @property
    def requests_per_s(self) -> float:
        return len(self.answers) / self.seconds


def measure(ask: Callable[[int], Answer], load: Load) -> Measurement:
    """Send a load; `ask(n)` sends request n and waits for its answer, in a thread of its own.
    Raises MlccError if no request is answered."""
    most = load.concurrency if load.rate is None else min(load.requests, MOST_AT_ONCE)
    arrivals = random.Random(0)
    began = time.perf_counter()
    futures: list[Future[Answer]] = []
    with ThreadPoolExecutor(most, "mlcc-bench") as pool:
        at = began
        for number in range(load.requests):
            if load.rate is not None:
                time.sleep(max(0.0, at - time.perf_counter()))
                at += arrivals.expovariate(load.rate)
            futures.append(pool.submit(ask, number))
        answers, errors = _results(futures)
    if not answers:
        raise MlccError(errors[0])
    return Measurement(answers, errors, time.perf_counter() - began)


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed; interpolated. NaN of none."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _results(futures: Sequence[Future[Answer]]) -> tuple[list[Answer], list[str]]:
    answers, errors = list[Answer](), list[str]()
    try:
        for future in futures:
            try:
                answers.append(future.result())
            except MlccError as error:
                errors.append(error.message)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return answers, errors
