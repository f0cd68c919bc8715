"""The tables of docs/models.md, from the registry, the tests' templates, docs/features.md and the
largest errors recorded by a run of `tests/compiler/models/test_architectures.py --long`.

    python -m tests.models_page [JUNIT]    rewrite them; errors are those of JUNIT
                                           (pytest --junit-xml), else those of the page

`feature_matrix.py` has the features that tests prove; the page's text is written by hand.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from mlcc_compiler.models.closest_architecture import BY_LAYERS
from mlcc_compiler.models.registry import ARCHITECTURES
from tests.feature_matrix import PAGE as FEATURES
from tests.feature_matrix import ROWS, TARGETS, Table, parse, section
from tests.runtime.parsers.model_families import FAMILIES

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "models.md"
SOURCES = "../compiler/mlcc_compiler/models/architectures"
TEMPLATES = {
    "llama": ("llama3", "firefunction"),
    "llama4_text": ("llama4",),
    "mistral": ("mistral_v3", "mistral_small3"),
    "mixtral": ("mixtral",),
    "ministral3": ("ministral3",),
    "qwen2": ("qwen2_5",),
    "qwen2_moe": ("qwen1_5",),
    "qwen3": ("qwen3", "qwen3_2507_thinking"),
    "qwen3_moe": ("qwen3", "qwen3_2507_thinking"),
    "qwen3_next": ("qwen3_2507_thinking",),
    "qwen3_5": ("qwen3_5",),
    "qwen3_5_moe": ("qwen3_5",),
    "gemma": ("gemma2",),
    "gemma2": ("gemma2",),
    "gemma3": ("gemma3",),
    "gemma3n": ("gemma3",),
    "gemma4": ("gemma4",),
    "phi3": ("phi3", "phi4", "phi4_mini"),
    "deepseek_v3": ("deepseek_v3", "deepseek_v3_1", "deepseek_r1", "kimi_k2"),
    "deepseek_v2": ("deepseek_v2",),
    "kimi_linear": ("kimi_linear",),
    "glm4_moe_lite": ("glm4_7",),
    "glm4": ("glm4_0414",),
    "glm4_moe": ("glm4_5",),
    "minimax_m2": ("minimax_m2",),
    "lfm2": ("lfm2", "lfm2_5"),
    "lfm2_moe": ("lfm2", "lfm2_5"),
    "exaone4": ("exaone4",),
    "olmo2": ("olmo2",),
    "olmoe": ("olmo2",),
    "olmo3": ("olmo3",),
    "ernie4_5": ("ernie4_5",),
    "ernie4_5_moe": ("ernie4_5",),
    "granite": ("granite3",),
    "granitemoe": ("granite3",),
    "granitemoehybrid": ("granite4",),
    "gpt_oss": ("gpt_oss",),
    "smollm3": ("smollm3",),
    "nemotron_h": ("nemotron_h",),
    "cohere2": ("command_r7b",),
    "falcon_h1": ("falcon_h1",),
    "hunyuan_v1_dense": ("hunyuan_7b",),
}
"""`model_type` -> templates of tests/runtime/parsers/templates that its checkpoints have."""
Errors = dict[str, float]
"""File of an architecture -> the largest error of its cases."""


def file_of(kind: str) -> str:
    """The name of the module of a `model_type`."""
    return str(ARCHITECTURES[kind].__name__).rpartition(".")[2]


def errors_in(junit: Path) -> Errors:
    """The largest errors of the native library's logits in a run's report."""
    found: Errors = {}
    for case in ET.parse(junit).getroot().iter("testcase"):
        named = re.fullmatch(r"test_native_equals_transformers\[(\w+).*\]", case.attrib["name"])
        if named:
            properties = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
            name = file_of(named[1])
            found[name] = max(found.get(name, 0.0), float(properties["max_abs_error"]))
    return found


def errors_on(page: str) -> Errors:
    """The errors in a page's table."""
    rows = re.findall(r"^\| .*?\[(\w+)\.py\].* \| ([\d.e-]+) \|", page, flags=re.MULTILINE)
    return {name: float(error) for name, error in rows}


def families(errors: Errors, features: Table) -> str:
    """A row for each file: types, file, error, templates and their parsers, targets."""
    lines = ["| models | `model_type` | file | error | templates | runs | compiles |"]
    lines.append("|---" * 7 + "|")
    for row, parts in ROWS.items():
        for name in dict.fromkeys(file_of(part) for part in parts if part in ARCHITECTURES):
            kinds = [kind for kind in ARCHITECTURES if file_of(kind) == name]
            error = f"{errors[name]:.1e}" if name in errors else "–"
            cells = [
                row,
                ", ".join(f"`{kind}`" for kind in kinds),
                f"[{name}.py]({SOURCES}/{name}.py)",
                error,
                "; ".join(template for kind in kinds for template in _templates(kind)) or "–",
                *(_targets(features, row, how) for how in ("runs", "compiles")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _templates(kind: str) -> list[str]:
    """Names of a type's templates, each with the parsers of its calls and reasoning."""
    known = {family.name: family for family in FAMILIES}
    found = [known[name] for name in TEMPLATES.get(kind, ())]
    return [
        f"{family.name} ({', '.join(filter(None, (family.format, family.marks)))})"
        for family in found
    ]


def _targets(features: Table, row: str, how: str) -> str:
    return ", ".join(target for target in TARGETS if features.get((row, target)) == how) or "–"


def refused() -> str:
    """Known but unsupported models, each with the closest supported one."""
    lines = ["| `model_type` | nearest |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{kind}` | `{near}` |" for kind, near in BY_LAYERS.items())])


def rewritten(page: str, errors: Errors) -> str:
    """The page with both tables as they should be."""
    features = parse(section(FEATURES.read_text(encoding="utf-8")))
    for name, text in (("families", families(errors, features)), ("refused", refused())):
        begin, end = f"<!-- {name}: python tests/models_page.py -->", f"<!-- end of {name} -->"
        start, stop = page.index(begin) + len(begin), page.index(end)
        page = f"{page[:start]}\n{text}\n{page[stop:]}"
    return page


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8")
    errors = errors_in(Path(sys.argv[1])) if len(sys.argv) > 1 else errors_on(old)
    PAGE.write_text(rewritten(old, errors), encoding="utf-8")
