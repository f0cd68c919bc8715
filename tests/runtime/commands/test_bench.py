"""`mlcc bench`: the load that it sends, its figures, a model here and a server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from mlcc.cli import cli
from mlcc.commands.bench_load import Answer, Load, measure, percentile
from mlcc.commands.bench_plot import distributions
from mlcc.errors import InvalidRequestError, MlccError

ANSWER = Answer(8, 3, (0.1, 0.3, 0.6))


def output(*words: str) -> str:
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_figures_of_an_answer() -> None:
    assert ANSWER.first_token_s == 0.1 and ANSWER.total_s == 0.6
    assert ANSWER.gaps == pytest.approx([0.2, 0.3])
    assert ANSWER.tokens_per_s == pytest.approx(4) and ANSWER.prompt_per_s == pytest.approx(80)


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_percentiles_are_numpys(count: int) -> None:
    values = np.random.default_rng(count).random(count).tolist()
    for percent in (0, 50, 90, 99, 100):
        assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))


@pytest.mark.parametrize(("load", "most"), [(Load(9, 1), 1), (Load(9, 4), 4), (Load(9, 1, 1e6), 9)])
def test_so_many_requests_run_at_once(load: Load, most: int) -> None:
    """Each waits until as many run as the load allows, so fewer would be a deadlock."""
    running, peak, lock = set[int](), [0], threading.Condition()

    def ask(number: int) -> Answer:
        with lock:
            running.add(number)
            peak[0] = max(peak[0], len(running))
            lock.notify_all()
            lock.wait_for(lambda: peak[0] >= most, 60)
            running.remove(number)
        return ANSWER

    found = measure(ask, load)
    assert len(found.answers) == 9 and peak == [most]


def test_requests_of_a_rate_do_not_wait_for_answers() -> None:
    """The second request arrives while the first is not answered."""
    second = threading.Event()

    def ask(number: int) -> Answer:
        if number == 1:
            second.set()
        assert second.wait(60)
        return ANSWER

    began = time.monotonic()
    assert len(measure(ask, Load(2, rate=50)).answers) == 2 and time.monotonic() > began


def test_failures_are_counted() -> None:
    def ask(number: int) -> Answer:
        if number % 2:
            raise MlccError(f"request {number} failed")
        return ANSWER

    found = measure(ask, Load(5))
    assert len(found.answers) == 3 and found.errors == ["request 1 failed", "request 3 failed"]

    def fail(number: int) -> Answer:
        raise MlccError("no server")

    with pytest.raises(MlccError, match="no server"):
        measure(fail, Load(2))


def test_the_plot_is_svg_and_escapes_names() -> None:
    text = distributions("<b>&", {"first token": [5.0, 1.0, 3.0], "between tokens": [0.0]})
    root = ElementTree.fromstring(text)
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "<b>&" in words and "5.0 ms" in words and "3.0" in words  # the slowest, the median
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 2


def test_a_model_here(compiled_demo: Callable[[str, str], Path], tmp_path: Path) -> None:
    model, plot = str(compiled_demo("q4", "cpu")), tmp_path / "times.svg"
    options = ("--tokens", "4", "--prompt-tokens", "8", "--threads", "1")
    found = json.loads(
        output("bench", model, *options, "--concurrency", "2", "--plot", str(plot), "--json")
    )
    assert found["model"] == "demo" and len(found["runs"]) == 8 and found["failed"] == 0
    for run in found["runs"]:
        assert (run["prompt_tokens"], run["tokens"]) == (8, 4)
        assert 0 < run["first_token_s"] <= run["total_s"] and run["times"] == sorted(run["times"])
    assert found["first_token_ms"]["p50"] <= found["first_token_ms"]["p99"]
    assert plot.read_text().startswith("<svg")
    table = output("bench", model, *options, "--runs", "2")
    assert "demo: 2 answers, 1 at once" in table and "requests/s" in table


def test_options_that_mean_nothing_are_refused() -> None:
    url = ("--url", "http://127.0.0.1:9")
    for words, reason in (
        ((*url, "--threads", "2", "--kv", "f16"), "--threads, --kv: is for a MODEL"),
        ((".", *url), "one of them"),
        ((".", "--rate", "3", "--concurrency", "2"), "two kinds of load"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            CliRunner().invoke(cli, ["bench", *words], catch_exceptions=False)
