"""Prefill and decode apart where Ray's object store is full (`--long`, on a `ray start` with the
smallest one that there may be): first it spills what it has to the disk, and where it may not, what
was computed is not handed on, but computed again. The same answers as together, only later."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from ray_cluster import Cluster, Served, environment, ray_head, serving

pytestmark = pytest.mark.long
pytest.importorskip("ray")
PROMPTS = [f"{'Count the words of this. ' * 40}{number} and one?" for number in range(3)]
NO_DISK = {
    "RAY_automatic_object_spilling_enabled": "0",
    "RAY_local_fs_capacity_threshold": "0.0",  # nor objects beside the store, as files of /tmp
}
FILL = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False)
held, ends = [], set()
for size in (1 << 20, 1 << 14, 1 << 10):
    try:
        for _ in range(300):
            held.append(ray.put(bytes(size)))
        ends.add("room")
    except ray.exceptions.RayError as error:
        ends.add(type(error).__name__)
print(*ends, flush=True)
sys.stdin.read()
"""
"""Puts 300 MiB, and ever smaller ones into what is left; says how that ended, and holds them until
its input ends."""


@contextmanager
def filled(on: Cluster) -> Iterator[str]:
    """With much in the store that is somebody's, or as much as it takes."""
    command = [sys.executable, "-c", FILL, on.address]
    pipe, env = subprocess.PIPE, environment(on.token)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) as process:
        assert process.stdout and process.stdin
        yield process.stdout.readline().strip()
        process.stdin.close()


def asked(of: Served) -> tuple[list[object], int]:
    """The answers, and the tokens that engines computed for them."""
    before = computed(of)
    answers = [of.chat(prompt, 8)["choices"] for prompt in PROMPTS]
    return answers, computed(of) - before


def computed(of: Served) -> int:
    """Once each has told its numbers since, which it does once a second."""
    time.sleep(3)
    told = re.findall(r"mlcc_engine_computed_tokens_total\{[^}]*\} (\d+)", of.metrics())
    return sum(map(int, told))


@pytest.mark.parametrize("spills", [True, False], ids=["spills", "full"])
def test_answers_are_those_of_one_engine(
    spills: bool, compiled_demo: Callable[[str, str], Path]
) -> None:
    model = compiled_demo("f32", "cpu")
    more = {} if spills else NO_DISK
    with ray_head("--include-dashboard=false", **more) as cluster:
        with serving(model, on=cluster) as together:
            expected, once = asked(together)
        with ExitStack() as stack:
            apart = stack.enter_context(serving(model, "--prefill", "1", on=cluster))
            ends = stack.enter_context(filled(cluster))
            assert ends == "room" if spills else ends in ("OutOfDiskError", "ObjectStoreFullError")
            found, more_often = asked(apart)
    assert found == expected
    if spills:
        assert more_often < 1.5 * once
    else:
        assert more_often > 1.5 * once, "what was computed went by a store that has no room"
