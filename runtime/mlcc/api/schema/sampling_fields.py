"""Sampling fields beyond OpenAI's, named and bounded as in llama.cpp; the two cutoffs as in Hugging
Face transformers. `mlcc.engine.batch.filters` defines what each does, and their order.
"""

from __future__ import annotations

from mlcc.api.schema.schema import (
    Custom,
    Integer,
    Json,
    Many,
    Number,
    Text,
    not_built,
    refuse,
    sampling,
)
from mlcc.engine.request import LEAST
from mlcc.errors import UnsupportedError

ORDER = (
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature",
)  # fmt: skip
"""llama.cpp's default of `samplers`, the only order supported here."""
LAST_TOKENS = Integer(-1, 2**31 - 1)
MOST_BREAKERS = 64
_SHARE = Number(0, 1)


def _version(value: Json, where: str) -> int:
    if isinstance(value, bool) or value not in (0, 1, 2) or isinstance(value, float):
        raise refuse(MIROSTAT, value, where)
    if value == 1:
        raise UnsupportedError(
            f"'{where}' is 1, and only version 2 is built; send 2",
            param=where,
            code="unsupported_parameter",
        )
    return int(value)


MIROSTAT = Custom("0 or 2", _version, (Integer(0, 2),))

FILTERS = (
    sampling(
        "top_n_sigma",
        Number(-1, 1e6),
        "Keep logits within this many standard deviations of the largest; 0 and below keep all.",
        made=lambda sigmas: max(sigmas, 0.0),
    ),
    sampling(
        "typical_p",
        _SHARE,
        "Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all.",
        made=lambda mass: max(mass, LEAST),
        recommended=True,
    ),
    sampling("epsilon_cutoff", _SHARE, "Drop tokens below this probability.", recommended=True),
    sampling(
        "eta_cutoff",
        _SHARE,
        "Drop tokens below this probability; the threshold falls with the entropy.",
        recommended=True,
    ),
    sampling(
        "xtc_probability",
        _SHARE,
        "How often all tokens from `xtc_threshold` on are excluded but the least likely of them.",
    ),
    sampling(
        "xtc_threshold",
        _SHARE,
        "The least probability of a top choice.",
        made=lambda share: max(share, LEAST),
    ),
    sampling(
        "dynatemp_range",
        Number(0, 100),
        "Range of the temperature: lower at low entropy, higher at high entropy.",
    ),
    sampling(
        "dynatemp_exponent", Number(0, 100), "Exponent of the map from entropy to that range."
    ),
    sampling(
        "mirostat",
        MIROSTAT,
        "2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters.",
    ),
    sampling("mirostat_tau", Number(0, 100), "Target surprise of a token, in bits."),
    sampling("mirostat_eta", _SHARE, "Learning rate of mirostat."),
    sampling(
        "dry_multiplier",
        Number(0, 100),
        "Above 0, penalizes a token that would extend a repetition, more for a longer one.",
    ),
    sampling("dry_base", Number(1, 100), "Growth of the penalty with the repetition's length."),
    sampling("dry_allowed_length", Integer(0, 2**31 - 1), "Longest repetition without a penalty."),
    sampling("dry_penalty_last_n", LAST_TOKENS, "Window of the penalty in tokens; -1 = all."),
    sampling(
        "dry_sequence_breakers",
        Many(Text(allow_empty=False), 0, MOST_BREAKERS),
        "A repetition does not extend over a token that contains one of these.",
        made=tuple,
    ),
    not_built("samplers", [*ORDER], advice="leave it out: the order is llama.cpp's default"),
)
