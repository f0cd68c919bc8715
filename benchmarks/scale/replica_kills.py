"""Requests on a real Ray while replicas are killed at random, and how each request ended.

    python -m benchmarks.scale.replica_kills [--requests 5000] [--kills 0] [--first 0]
        [--replicas 3] [--streams 32] [--kill-s 8] [--seconds 600]

Every `--kill-s` seconds on average a replica's process is killed (SIGKILL), or in one case of four
its engine's process. The last replica is spared, because the run would otherwise show little but
the time of starting one. Prints one JSON line: the outcomes of `ray_load.OUTCOMES`, and the kills.
A long run can be split: `--first` numbers the requests and seeds the kills.
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

from benchmarks.scale.ray_load import RayLoad, engine_of, ray_load, replicas
from mlcc.scale.options import Scale


async def kill(mean_s: float, seed: int, kills: Counter[str]) -> None:
    """Kill a process at random times, until cancelled."""
    rng = random.Random(seed)
    while True:
        await asyncio.sleep(rng.expovariate(1 / mean_s))
        if len(pids := replicas()) < 2:
            continue
        pid, kind = rng.choice(pids), "replica"
        if rng.random() < 0.25 and (engine := engine_of(pid)):
            pid, kind = engine, "engine"
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            kills[kind] += 1


async def run(load: RayLoad, args: argparse.Namespace, kills: Counter[str]) -> None:
    """Send all requests, and more until enough replicas were killed, for `--seconds` at most."""
    end, sent = time.monotonic() + args.seconds, 0

    def goes_on() -> bool:
        nonlocal sent
        needed = sent < args.requests or kills.total() < args.kills
        sent += needed
        return needed and time.monotonic() < end

    killing = asyncio.ensure_future(kill(args.kill_s, args.first, kills))
    await load.run(count(args.first), args.streams, goes_on)
    killing.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument(
        "--kills", type=int, default=0, help="send more requests until this many kills"
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--kill-s", type=float, default=8)
    parser.add_argument("--step-ms", type=float, default=12)
    parser.add_argument(
        "--seconds", type=float, default=600, help="send requests for at most this long"
    )
    args = parser.parse_args()
    kills = Counter[str]()
    with ray_load(Scale(args.replicas), args.step_ms / 1e3) as load:
        start = time.monotonic()
        asyncio.run(run(load, args, kills))
        seconds = round(time.monotonic() - start, 1)
    print(json.dumps({**load.result(), "kills": dict(kills), "seconds": seconds}))


if __name__ == "__main__":
    main()
