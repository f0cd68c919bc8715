"""Replicas that come and go on a real Ray while requests are answered: up, down, none, and again.

    python benchmarks/autoscale.py [--most 3] [--streams 24]

The model is the toy of `kills.py`, whose answers are compared as there; the delays are seconds
where `mlcc serve --ray --autoscale` has a minute. Prints one JSON line: how many requests were
`whole` (and what else became of them: nothing else should), the seconds until there were `--most`
replicas, until under a few streams one was left, and without any until none was, and how long the
next request took then, the cold start, beside the one after it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kills import Storm, answers, open_toy, replicas_below

from mlcc.scale.options import Scale
from mlcc.scale.serving import RayEngine
from mlcc.server.adapter import Settings

LONGEST_S = 120.0


def there() -> int:
    """Replicas' processes."""
    return len(replicas_below(os.getpid()))


async def until(storm: Storm, streams: int, done: Callable[[], bool]) -> float:
    """Seconds of so many streams until it is so. Raises TimeoutError."""
    began, over = time.perf_counter(), False

    async def stream(number: int) -> None:
        while not over:
            await storm.one(number)
            number += streams

    running = [asyncio.ensure_future(stream(number)) for number in range(streams)]
    try:
        while not done():
            if time.perf_counter() - began > LONGEST_S:
                raise TimeoutError(f"{there()} replicas after {LONGEST_S} s")
            await asyncio.sleep(0.2)
    finally:
        over = True
        await asyncio.gather(*running)
    return time.perf_counter() - began


async def measure(storm: Storm, most: int, streams: int) -> dict[str, Any]:
    """Up, down, none, and again."""
    found = {"up_s": await until(storm, streams, lambda: there() >= most)}
    found["down_s"] = await until(storm, 2, lambda: there() == 1)
    found["none_s"] = await until(storm, 0, lambda: there() == 0)
    for name in ("cold_ms", "warm_ms"):
        await storm.one(0)
        found[name] = storm.times[-1]
    return {name: round(value, 1) for name, value in found.items()} | dict(storm.ends)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=3)
    parser.add_argument("--streams", type=int, default=24)
    args = parser.parse_args()
    scale = Scale(
        autoscale=(0, args.most), ongoing=4, upscale_s=1, downscale_s=3, lookback_s=3, drain_s=30
    )
    for who in ("HANDLE", "REPLICA"):  # 10 s, where seconds are measured
        os.environ.setdefault(f"RAY_SERVE_{who}_AUTOSCALING_METRIC_PUSH_INTERVAL_S", "1")
    expected, opener = answers(), partial(open_toy, 0.01)
    behind = RayEngine(opener, Settings(max_queue=256), "", scale)
    try:
        storm = Storm(behind.client, expected)
        found = asyncio.run(measure(storm, args.most, args.streams))
    finally:
        behind.close()
    print(json.dumps(found | {"load": round(os.getloadavg()[0], 1), "odd": storm.odd[:5]}))


if __name__ == "__main__":
    main()
