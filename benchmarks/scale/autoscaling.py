"""How the number of replicas on a real Ray follows the load: one stream, many, one, none, one.

    python -m benchmarks.scale.autoscaling [--most 2] [--streams 24] [--step-ms 12]

Scales from none to `--most`, with Ray's shortest delays for that. Each phase goes on until as many
replicas are there as it wants, and a little longer, or gives up after `PATIENCE_S`. Prints one JSON
line: the ends of requests as `ray_storm.ENDS` has them, the seconds that each phase took to its
number of replicas (null = it was not reached), and the time to the first token of one request that
found no replica (`cold_ms`), and of one after it (`warm_ms`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from itertools import count

from benchmarks.scale.ray_load import Storm, replicas, storming
from mlcc.scale.options import Scale

PATIENCE_S, AFTER_S = 120.0, 3.0
LOOKBACK_S, DOWN_S, UP_S = 11.0, 4.0, 1.0
"""Ray wants to look back for longer than the 10 s after which requests are told to it again."""


class Phases:
    """One after another, in one storm."""

    def __init__(self, storm: Storm) -> None:
        self.storm, self._numbers = storm, count()
        self.took: dict[str, float | None] = {}

    async def phase(self, name: str, streams: int, wanted: int) -> None:
        """So many streams until there are so many replicas."""
        began, there = time.monotonic(), list[float]()

        def goes_on() -> bool:
            now = time.monotonic()
            if there or now - began > PATIENCE_S:
                return bool(there) and now - there[0] < AFTER_S
            return True

        async def look() -> None:
            while goes_on():
                if not there and len(replicas()) == wanted:
                    there.append(time.monotonic())
                await asyncio.sleep(0.2)

        await asyncio.gather(self.storm.run(self._numbers, streams, goes_on), look())
        self.took[name] = round(there[0] - began, 1) if there else None

    async def run(self, many: int, most: int) -> tuple[float, float]:
        """All of them. Returns the ms to a first token without replicas, and with one."""
        await self.phase("one", 1, 1)
        await self.phase("many", many, most)
        await self.phase("one again", 1, 1)
        await self.phase("none", 0, 0)
        cold = await self.storm.one(next(self._numbers))
        return cold, await self.storm.one(next(self._numbers))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=2)
    parser.add_argument("--streams", type=int, default=24)
    parser.add_argument("--step-ms", type=float, default=12)
    args = parser.parse_args()
    scale = Scale(
        autoscale=(0, args.most), lookback_s=LOOKBACK_S, downscale_s=DOWN_S, upscale_s=UP_S
    )
    with storming(scale, args.step_ms / 1e3) as storm:
        phases = Phases(storm)
        cold, warm = asyncio.run(phases.run(args.streams, args.most))
    told = {"took_s": phases.took, "cold_ms": round(cold), "warm_ms": round(warm)}
    print(json.dumps({**storm.found(), **told}))


if __name__ == "__main__":
    main()
