"""Disaggregated prefill and decode while Ray's object store is full (`--long`, on a `ray start`
with the smallest possible store), so that it spills to disk: equal answers, only later.
test_disaggregated.py has the case of a full disk, without Ray."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.runtime.scale.ray_cluster import Cluster, Served, environment, ray_head, serving

pytestmark = pytest.mark.long
pytest.importorskip("ray", reason="needs ray: pip install mlcc[ray]")
PROMPTS = [f"{'Count the words of this. ' * 40}{number} and one?" for number in range(3)]
FILL = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False)
held = [ray.put(bytes(1 << 20)) for _ in range(300)]
print(len(held), flush=True)
sys.stdin.read()
"""
"""Puts 300 MiB into it, and holds them until its input ends."""


@contextmanager
def filled(on: Cluster) -> Iterator[str]:
    """A store that already contains more than it has space for."""
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
    """The total after each replica has reported its counters again, which takes a second."""
    time.sleep(3)
    counts = re.findall(r"mlcc_engine_computed_tokens_total\{[^}]*\} (\d+)", of.metrics())
    return sum(map(int, counts))


def test_answers_are_those_of_one_engine(compiled_demo: Callable[[str, str], Path]) -> None:
    model = compiled_demo("f32", "cpu")
    with ray_head("--include-dashboard=false") as cluster:
        with serving(model, on=cluster) as together:
            expected, once = asked(together)
        with ExitStack() as stack:
            apart = stack.enter_context(serving(model, "--prefill", "1", on=cluster))
            assert stack.enter_context(filled(cluster)) == "300"
            found, apart_once = asked(apart)
    assert found == expected
    assert apart_once < 1.5 * once, "prompts were computed twice"
