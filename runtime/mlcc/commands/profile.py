"""`mlcc profile MODEL`: time by kernel and share of the memory bandwidth, slowest first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mlcc.commands.grouped_help import GroupedCommand
from mlcc.commands.options import load_model, model_options, note
from mlcc.engine_args import EngineArgs

if TYPE_CHECKING:
    from mlcc.eval.profiling import Phase, Profile

_BAR = 30


@click.command("profile", cls=GroupedCommand)
@model_options
@click.option(
    "--length",
    type=click.IntRange(1),
    metavar="N",
    default=256,
    show_default=True,
    help="Tokens to prefill.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    metavar="N",
    default=1,
    show_default=True,
    help="Sequences to decode.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    default=12,
    show_default=True,
    help="Number of kernels shown.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def profile_command(args: EngineArgs, length: int, batch: int, top: int, as_json: bool) -> None:
    """Show where a model's time goes.

    Prefills LENGTH tokens, then decodes BATCH sequences from there.
    """
    model = load_model(args)
    from mlcc.eval.profiling import log_of, profile

    try:
        found = profile(
            model.executor,
            log_of(model.executor),
            context=length,
            batch=batch,
            progress=lambda what: note(f"measuring {what}"),
        )
    finally:
        model.close()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
        return
    for line in report(found, top):
        click.echo(line)


def report(profile: Profile, top: int) -> Iterator[str]:
    """The lines of the table."""
    yield f"times by {profile.clock}; a copy on this device moves {profile.copy_gb_s:.1f} GB/s"
    for phase in profile.phases:
        yield ""
        yield from _phase(phase, profile.copy_gb_s, top)


def _phase(phase: Phase, copy_gb_s: float, top: int) -> Iterator[str]:
    yield (
        f"{phase.name}: {phase.tokens} tokens a step, {phase.step_ms:.2f} ms a step, its kernels "
        f"one by one {phase.kernel_ms:.2f} ms; {1e3 * phase.tokens / phase.step_ms:.0f} tokens/s"
    )
    yield f"{'kernel':<30} {'calls':>5} {'ms':>9} {'share':>6} {'GB/s':>7} {'of copy':>8}"
    total = sum(use.nanoseconds for use in phase.kernels) or 1
    for use in phase.kernels[:top]:
        share = use.nanoseconds / total
        speed = use.bytes / use.nanoseconds if use.nanoseconds else 0.0
        name = f"{use.name} {use.shape}"
        yield (
            f"{name:<30.30} {use.calls // phase.steps:>5} "
            f"{use.nanoseconds / 1e6 / phase.steps:>9.3f} {share:>6.1%} {speed:>7.1f} "
            f"{speed / copy_gb_s:>8.1%} {'#' * round(_BAR * share)}"
        )
    if rest := phase.kernels[top:]:
        spent = sum(use.nanoseconds for use in rest)
        name = f"{len(rest)} others"
        yield f"{name:<36} {spent / 1e6 / phase.steps:>9.3f} {spent / total:>6.1%}"
