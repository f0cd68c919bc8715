"""Requests on a real Ray while its replicas are killed at random: how each of them ended.

    python -m benchmarks.scale.replica_kills [--requests 5000] [--kills 0] [--first 0]
        [--replicas 3] [--streams 32] [--kill-s 8] [--seconds 600]

Every `--kill-s` seconds, on the average, a replica's process is killed (SIGKILL), or one time in
four the engine's below it; the last one that is there is spared, or the time that starting one
takes here would be all that is seen. Prints one JSON line: the ends as `ray_storm.ENDS` has them,
and the kills. Long storms may come in pieces: `--first` numbers the requests, and the kills follow
it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from itertools import count

from benchmarks.scale.ray_load import Storm, engine_of, replicas, storming
from mlcc.scale.options import Scale


async def kill(mean_s: float, seed: int, kills: Counter[str]) -> None:
    """One after another, until it is cancelled."""
    rng = random.Random(seed)
    while True:
        await asyncio.sleep(rng.expovariate(1 / mean_s))
        if len(there := replicas()) < 2:
            continue
        pid, what = rng.choice(there), "replica"
        if rng.random() < 0.25 and (engine := engine_of(pid)):
            pid, what = engine, "engine"
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            kills[what] += 1


async def rage(storm: Storm, args: argparse.Namespace, kills: Counter[str]) -> None:
    """All requests, and more while too few replicas were killed; or those begun by then."""
    end, asked = time.monotonic() + args.seconds, 0

    def goes_on() -> bool:
        nonlocal asked
        lacks = asked < args.requests or kills.total() < args.kills
        asked += lacks
        return lacks and time.monotonic() < end

    killing = asyncio.ensure_future(kill(args.kill_s, args.first, kills))
    await storm.run(count(args.first), args.streams, goes_on)
    killing.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=0, help="ask more until there were so many")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--kill-s", type=float, default=8)
    parser.add_argument("--step-ms", type=float, default=12)
    parser.add_argument("--seconds", type=float, default=600, help="ask no longer than that")
    args = parser.parse_args()
    kills = Counter[str]()
    with storming(Scale(args.replicas), args.step_ms / 1e3) as storm:
        began = time.monotonic()
        asyncio.run(rage(storm, args, kills))
        seconds = round(time.monotonic() - began, 1)
    print(json.dumps({**storm.found(), "kills": dict(kills), "seconds": seconds}))


if __name__ == "__main__":
    main()
