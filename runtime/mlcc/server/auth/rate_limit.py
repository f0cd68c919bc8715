"""Rate limits per API key: token buckets (RFC 2697) for requests and for tokens, by key name.

A request is admitted while the token bucket is not empty, and charged when it ends, because the
length of an answer is not known before. Concurrent requests can therefore overdraw the bucket;
later ones wait until it is refilled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from mlcc.api.errors import RateLimitError
from mlcc.server.auth.key_file import ApiKey
from mlcc.service.observer import FinishedRequest

_MINUTE_S = 60.0


@dataclass
class TokenBucket:
    """Refills by `per_minute` a minute, up to that level."""

    per_minute: float
    level: float
    at: float

    def fill(self, now: float) -> None:
        """Add what has accrued since the last call."""
        gained = (now - self.at) * self.per_minute / _MINUTE_S
        self.level, self.at = min(self.per_minute, self.level + gained), now

    def wait(self, level: float) -> float:
        """Return the seconds until the bucket reaches a level; 0 = it has."""
        return max(0.0, level - self.level) * _MINUTE_S / self.per_minute


class RateLimiter:
    """The buckets of all keys. As an `Observer` of the engine, it learns the token usage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def enter(self, key: ApiKey) -> dict[str, str]:
        """Admit a request of a key. Returns the rate limit headers; raises RateLimitError, and
        charges nothing, if the limit is reached."""
        requests = self._bucket(key.name, "requests", key.requests_per_minute)
        tokens = self._bucket(key.name, "tokens", key.tokens_per_minute)
        for what, bucket, least in (("requests", requests, 1.0), ("tokens", tokens, 0.0)):
            if bucket is not None and (bucket.level < least or bucket.level <= 0):
                wait = max(1, math.ceil(bucket.wait(max(least, 1.0))))
                raise RateLimitError(
                    f"the API key '{key.name}' has used its {bucket.per_minute:g} {what} a minute; "
                    f"try again in {wait} s",
                    wait,
                )
        if requests is not None:
            requests.level -= 1
        return self.headers(key)

    def headers(self, key: ApiKey) -> dict[str, str]:
        """Return the remaining limits of a key, as OpenAI's headers."""
        found: dict[str, str] = {}
        for what, limit in (
            ("requests", key.requests_per_minute),
            ("tokens", key.tokens_per_minute),
        ):
            if (bucket := self._bucket(key.name, what, limit)) is not None:
                found[f"x-ratelimit-limit-{what}"] = f"{bucket.per_minute:g}"
                found[f"x-ratelimit-remaining-{what}"] = str(max(0, math.floor(bucket.level)))
                found[f"x-ratelimit-reset-{what}"] = f"{bucket.wait(bucket.per_minute):.3f}s"
        return found

    def first_token(self, tenant: str, seconds: float, /) -> None:
        pass

    def done(self, done: FinishedRequest, /) -> None:
        """Charge the key for the prompt and completion tokens of an answer, complete or not. The
        lines of a batch cost nothing: they run while nothing else does."""
        if done.background:
            return
        if (bucket := self._buckets.get((done.tenant, "tokens"))) is not None:
            bucket.fill(self._clock())
            bucket.level -= done.prompt_tokens + done.completion_tokens

    def restarted(self) -> None:
        pass

    def _bucket(self, name: str, what: str, per_minute: float | None) -> TokenBucket | None:
        """Return the refilled bucket. A changed limit starts a new bucket."""
        if per_minute is None:
            self._buckets.pop((name, what), None)
            return None
        now = self._clock()
        bucket = self._buckets.get((name, what))
        if bucket is None or bucket.per_minute != per_minute:
            bucket = self._buckets[name, what] = TokenBucket(per_minute, per_minute, now)
        bucket.fill(now)
        return bucket
