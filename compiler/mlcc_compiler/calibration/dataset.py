"""Calibration data: the text named by `--calibrate`, or random tokens if the model can be run on
some before it is compiled.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc.artifact.folder import Artifact
from mlcc.errors import UnsupportedError
from mlcc.model.tokenizer.tokenizer import FileTokenizer
from mlcc_compiler.calibration.text import calibration_text, random_rows, text_rows
from mlcc_compiler.options import NOTHING, RANDOM
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization import scheme


def resolve_calibration(plan: Plan) -> Plan:
    """The plan with `calibrate` resolved: a text, RANDOM, or None.

    Raises UnsupportedError for an option that would have no effect.
    """
    requested, earlier = plan.options.calibrate, plan.options.reuse_weights
    if plan.options.bits is not None and requested in (None, RANDOM, NOTHING):
        raise UnsupportedError(
            f"--bits {plan.options.bits:g}: a text says where bits are worth most; give one with "
            "--calibrate FILE, or --calibrate default"
        )
    if requested is not None and requested != NOTHING:
        if plan.config.source_rows:
            raise UnsupportedError(
                f"--calibrate {requested}: a model that hears is not calibrated on a text; leave "
                "--calibrate out"
            )
        _check(plan, requested)
        return plan
    if earlier is not None:
        how = Artifact.open(earlier, host=False).manifest.quantization
        return _with_calibrate(plan, how.options.get("calibrated"))
    no_text = plan.encoder_head is not None or plan.config.source_rows
    if requested == NOTHING or no_text or not _uses_statistics(plan):
        return _with_calibrate(plan, None)
    if any(".experts." in name for name in plan.traced.names):
        why = "weights are rounded without the sizes of their inputs, as experts are too many"
        note = f"{why} to be run ahead; --calibrate random runs them"
        return _with_calibrate(replace(plan, notes=(*plan.notes, note)), None)
    return _with_calibrate(plan, RANDOM)


def calibration_rows(plan: Plan) -> list[list[int]]:
    """Rows of token ids that the weights of a plan are calibrated on; empty without calibration.

    Raises UnsupportedError for a file that is not a text.
    """
    source = plan.options.calibrate
    if source is None or plan.options.reuse_weights is not None:
        return []
    return token_rows(plan, source)


def token_rows(plan: Plan, source: str) -> list[list[int]]:
    """Rows of a text, or random ones."""
    tokenizer = FileTokenizer(plan.checkpoint.folder / "tokenizer.json", plan.checkpoint.tokenizer)
    if source == RANDOM:
        return random_rows(plan.config.vocab_size, tokenizer, plan.limits.context)
    return text_rows(calibration_text(source), tokenizer, plan.limits.context)


def _with_calibrate(plan: Plan, calibrate: str | None) -> Plan:
    return replace(plan, options=replace(plan.options, calibrate=calibrate))


def _uses_statistics(plan: Plan) -> bool:
    """Whether the recipe's search weights errors by activation statistics: two-level schemes do."""
    how = scheme(plan.options.recipe.linear)
    return how.block > 0 and (how.curve is not None or not how.table)


def _check(plan: Plan, requested: str) -> None:
    options, how = plan.options, scheme(plan.options.recipe.linear)
    if options.reuse_weights is not None:
        option = "--bits" if options.bits is not None else "--calibrate"
        raise UnsupportedError(f"{option} rounds weights, --reuse-weights takes them as they are")
    if options.bits is not None and not (options.recipe.rules and how.block):
        raise UnsupportedError(
            f"--bits {options.bits:g} has nothing to give for --quant {options.quant}, all "
            f"of whose linears are {how.name}; use it with q3, q4, q5 or q6, or leave it out"
        )
    if how.bits >= 8 or (how.table and not how.block):
        raise UnsupportedError(
            f"--calibrate has nothing to do for --quant {options.quant}, whose linears are "
            f"{how.name}; use it with q3, q4, q5 or q6, or leave it out"
        )
    if requested == RANDOM and not _uses_statistics(plan):
        raise UnsupportedError(
            f"--calibrate random has nothing to do for --quant {options.quant}: the sizes of "
            f"inputs decide nothing in {how.name}; use q3, q4, q5 or q6, or --calibrate default"
        )
