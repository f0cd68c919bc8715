"""The number of replicas on a real Ray as the load changes: one stream, many, one, none, one.

    python -m benchmarks.scale.autoscaling [--most 2] [--streams 24] [--step-ms 12]

Scales between zero and `--most` replicas, with Ray's shortest delays. A phase lasts until its
number of replicas is reached and `AFTER_S` longer, or until `TIMEOUT_S`. Prints one JSON line: the
outcomes of `ray_load.OUTCOMES`, the seconds until each phase had its replicas (null = not reached),
and the time to first token of a request without a running replica (`cold_ms`) and of the next one
(`warm_ms`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from itertools import count

from benchmarks.scale.ray_load import RayLoad, ray_load, replicas
from mlcc.scale.options import Scale

TIMEOUT_S, AFTER_S = 120.0, 3.0
LOOKBACK_S, DOWN_S, UP_S = 11.0, 4.0, 1.0
"""Ray requires a look-back longer than the 10 s between two reports of the request count."""


class Phases:
    """Phases of load, in order."""

    def __init__(self, load: RayLoad) -> None:
        self.load, self._numbers = load, count()
        self.seconds: dict[str, float | None] = {}

    async def phase(self, name: str, streams: int, wanted: int) -> None:
        """Run `streams` streams until there are `wanted` replicas."""
        start, reached = time.monotonic(), list[float]()

        def goes_on() -> bool:
            now = time.monotonic()
            if reached or now - start > TIMEOUT_S:
                return bool(reached) and now - reached[0] < AFTER_S
            return True

        async def watch() -> None:
            while goes_on():
                if not reached and len(replicas()) == wanted:
                    reached.append(time.monotonic())
                await asyncio.sleep(0.2)

        await asyncio.gather(self.load.run(self._numbers, streams, goes_on), watch())
        self.seconds[name] = round(reached[0] - start, 1) if reached else None

    async def run(self, many: int, most: int) -> tuple[float, float]:
        """All phases. Returns the ms to first token without a replica, and with one."""
        await self.phase("one", 1, 1)
        await self.phase("many", many, most)
        await self.phase("one again", 1, 1)
        await self.phase("none", 0, 0)
        cold = await self.load.one(next(self._numbers))
        return cold, await self.load.one(next(self._numbers))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=2)
    parser.add_argument("--streams", type=int, default=24)
    parser.add_argument("--step-ms", type=float, default=12)
    args = parser.parse_args()
    scale = Scale(
        autoscale=(0, args.most), lookback_s=LOOKBACK_S, downscale_s=DOWN_S, upscale_s=UP_S
    )
    with ray_load(scale, args.step_ms / 1e3) as load:
        phases = Phases(load)
        cold, warm = asyncio.run(phases.run(args.streams, args.most))
    times = {"took_s": phases.seconds, "cold_ms": round(cold), "warm_ms": round(warm)}
    print(json.dumps({**load.result(), **times}))


if __name__ == "__main__":
    main()
