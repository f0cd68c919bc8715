"""The table of features and targets in docs/features.md, written from what the tests proved.

A test says what it proves with the marker `feature(part, target, how)`; how is one of HOW. A cell
claims the most that all of its tests of that kind have passed; where a test was skipped that might
say more (no Vulkan driver here, no nvcc), the cell is unsettled: it is neither compared nor
rewritten, so every machine checks the cells that it can test, and no skipped test passes as proof.
So is a cell that only the long tail would settle, unless it ran.

    python3 dev.py matrix     rewrite the table after a full run of the tests, best with --long

The standard library only. `conftest.py` collects the outcomes and calls `differences`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "features.md"
RESULTS = ROOT / "build" / "features.json"
"""Outcomes of the last full run; ignored by git."""
BEGIN, END = "<!-- features: python3 dev.py matrix -->", "<!-- end of features -->"

HOW = ("runs", "compiles", "refused")
"""Kinds of claims, the strongest first. `refused`: the user gets an error, which the test records
as its property "refusal" and the table shows as a footnote."""
TARGETS = ("cpu", "vulkan", "cuda", "metal", "android", "ios", "webgpu", "reference")
TARGETS += ("windows", "macos")
"""Targets, and other systems than Linux for target `cpu`: Windows as far as wine shows it."""
ROWS: dict[str, tuple[str, ...]] = {
    "Llama 2, 3": ("llama",),
    "Mistral": ("mistral",),
    "Qwen2": ("qwen2",),
    "Qwen3": ("qwen3",),
    "Qwen3-MoE": ("qwen3_moe",),
    "Mixtral": ("mixtral",),
    "Qwen2-MoE": ("qwen2_moe",),
    "OLMoE": ("olmoe",),
    "Granite 3 MoE": ("granitemoe", "granitemoeshared"),
    "GLM-4.5 (MoE)": ("glm4_moe",),
    "ERNIE 4.5 MoE": ("ernie4_5_moe",),
    "Llama 4 (text, 8k)": ("llama4_text",),
    "gpt-oss": ("gpt_oss",),
    "MiniMax M2": ("minimax_m2",),
    "Qwen3-Next": ("qwen3_next",),
    "Gemma 2": ("gemma2",),
    "Gemma 3 (text)": ("gemma3",),
    "Gemma 3n (text)": ("gemma3n",),
    "Gemma 4 (text)": ("gemma4",),
    "Phi-3": ("phi3",),
    "Gemma 1": ("gemma",),
    "OLMo 2, 3": ("olmo2", "olmo3"),
    "SmolLM3": ("smollm3",),
    "Granite 3": ("granite",),
    "EXAONE 4": ("exaone4",),
    "HunYuan dense": ("hunyuan_v1_dense",),
    "Ministral, Ministral 3": ("ministral", "ministral3"),
    "GLM-4": ("glm", "glm4"),
    "ERNIE 4.5 dense": ("ernie4_5",),
    "Command R7B, A (Cohere 2)": ("cohere2",),
    "StarCoder 2": ("starcoder2",),
    "Nemotron dense": ("nemotron",),
    "DeepSeek V2, V2-Lite": ("deepseek_v2",),
    "DeepSeek V3, R1, Kimi K2": ("deepseek_v3",),
    "Mistral 4 (text)": ("mistral4",),
    "Kimi Linear": ("kimi_linear",),
    "GLM-4.7-Flash": ("glm4_moe_lite",),
    "Mamba 2": ("mamba2",),
    "LFM2": ("lfm2",),
    "LFM2-MoE": ("lfm2_moe",),
    "Falcon-H1": ("falcon_h1",),
    "Nemotron-H": ("nemotron_h",),
    "Qwen3.5, dense (text)": ("qwen3_5",),
    "Qwen3.5-MoE (text)": ("qwen3_5_moe",),
    "Granite 4": ("granitemoehybrid",),
    "images: SmolVLM, Idefics 3": ("smolvlm",),
    "images: Gemma 3": ("gemma3-images",),
    "images: Gemma 4": ("gemma4-images",),
    "images: Llama 4": ("llama4-images",),
    "images: LLaVA 1.5": ("llava",),
    "images: LLaVA-OneVision": ("llava-onevision",),
    "images: InternVL 3": ("internvl",),
    "images: Mistral 3, Pixtral": ("mistral3-images",),
    "images: Qwen2-VL": ("qwen2-vl",),
    "images: Qwen2.5-VL": ("qwen2.5-vl",),
    "images: Qwen3-VL": ("qwen3-vl",),
    "images: Qwen3-VL, experts": ("qwen3-vl-moe",),
    "images: Qwen3.5": ("qwen3.5-images",),
    "images in apps: `mlcc.h`, Kotlin, Swift": ("c-images", "kotlin-images", "swift-images"),
    "sound in apps: `mlcc.h`, Kotlin, Swift": ("c-sound", "kotlin-sound", "swift-sound"),
    "sound: Whisper": ("whisper",),
    "sound: times of words": ("word-times",),
    "sound in prompts: Qwen2-Audio": ("qwen2-audio",),
    "sound in prompts: Qwen2.5-Omni": ("qwen2.5-omni",),
    "sound in prompts: Voxtral": ("voxtral",),
    "sound in prompts: Gemma 3n": ("gemma3n-sound",),
    "sound in prompts: Gemma 4": ("gemma4-sound",),
    "weights `f32`": ("f32",),
    "weights `f16`, `bf16`": ("f16", "bf16"),
    "weights `q8`, `q4`": ("q8", "q4"),
    "two-level: `q3`, `q5`, `q6`": ("q3", "q5", "q6"),
    "rounding weighted by activation statistics": ("sized",),
    "GPTQ on a text: `--calibrate`": ("calibrated",),
    "16-bit activations: `--activations`": ("activations-16",),
    "8-bit activations, packed products": ("activations-8",),
    "asymmetric: `q8a`, `q4a`": ("q8a", "q4a"),
    "mixed schemes (two-level, tables), merged projections": ("mixed-schemes",),
    "GGUF files, formats kept": ("gguf",),
    "AWQ, GPTQ, compressed-tensors, nf4, fp8, MLX": ("packed",),
    "fp8 weights (E4M3), kept": ("fp8-kept",),
    "fp8 activations: `--activations 8`": ("fp8-activations",),
    "NVFP4 weights, kept": ("nvfp4-kept",),
    "float16 KV cache": ("f16-kv",),
    "8-bit KV cache: `--kv int8`": ("int8-kv",),
    "KV cache of 8-bit floats: `--kv fp8`": ("fp8-kv",),
    "sliding window": ("window",),
    "experts larger than memory": ("streamed",),
    "continuous batching": ("batching",),
    "encoders: BERT, RoBERTa": ("bert", "roberta"),
    "encoders: XLM-R": ("xlm-roberta",),
    "encoders: ModernBERT": ("modernbert",),
    "encoders: Qwen3-Embedding, EmbeddingGemma": ("qwen3-embedding", "embeddinggemma"),
    "`/v1/embeddings`": ("embeddings",),
    "rerankers, `/v1/rerank`": ("rerank",),
    "classifiers, `/classify`": ("classify",),
    "batches: `/v1/batches`, `mlcc batch`": ("batches",),
    "prefix cache": ("prefix",),
    "KV transfer between engines": ("moving",),
    "tensor parallelism: `--tp`": ("ranks",),
    "speculation: n-gram lookup": ("speculation",),
    "speculation: a draft model": ("drafts",),
    "speculation: multi-token prediction": ("mtp",),
    "`n`, `best_of`": ("answers",),
    "LoRA adapters": ("adapters",),
    "`priority`, `timeout`": ("scheduling",),
    "temperature, top-k, top-p, min-p": ("sampling",),
    "penalties, DRY, `logit_bias`, `bad_words`, `min_tokens`": ("adjust",),
    "typical-p, top-n-sigma, cutoffs, XTC, mirostat, dynamic temperature": ("samplers",),
    "structured output": ("structured",),
    "tool calls": ("tools",),
    "`logprobs`, `top_logprobs`": ("logprobs",),
    "GPUs there by wgpu-native: `--target vulkan --os`": ("desktop-gpu",),
    "chat and OpenAI server": ("server",),
    "several models in one server": ("several-models",),
    "replicas on Ray: `mlcc serve --ray`": ("ray",),
    "OpenAI's `/v1/responses`": ("responses",),
    "Anthropic's `/v1/messages`": ("anthropic",),
    "Ollama's API": ("ollama",),
    "llama.cpp's API, `/tokenize`": ("llamacpp",),
    "TGI's API: `/generate`": ("tgi",),
    "KServe, Triton: `/v2/...`": ("kserve",),
    "KServe, Triton: gRPC": ("kserve-grpc",),
    "the chat page at `/`": ("page",),
    "programs in C: `mlcc.h`": ("c",),
    "`mlcc profile`": ("profile",),
}
"""Row -> its parts, the names that tests use. A row claims the weakest result of its parts."""
PARTS = tuple(part for parts in ROWS.values() for part in parts)
NOTHING = "–"

Claim = tuple[str, str, str]
"""(part, target, how); part "*" means all."""
Table = dict[tuple[str, str], str]
"""(row, target) -> "runs", "compiles", NOTHING, or the error a user gets."""


@dataclass
class Results:
    """Outcomes of marked tests: (part, target, how) -> the worst of passed, skipped, failed."""

    outcomes: dict[Claim, str] = field(default_factory=dict)
    refusals: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, part: str, target: str, how: str, outcome: str, refusal: str = "") -> None:
        """One test's outcome; `part` "*" means all."""
        worst = ("passed", "skipped", "failed")
        for name in PARTS if part == "*" else (part,):
            old = self.outcomes.get((name, target, how), "passed")
            self.outcomes[name, target, how] = max(old, outcome, key=worst.index)
            if refusal:
                self.refusals[name, target] = refusal

    def leave(self, claims: Iterable[Claim]) -> None:
        """Claims of skipped tests that no other test made."""
        for part, target, how in claims:
            for name in PARTS if part == "*" else (part,):
                self.outcomes.setdefault((name, target, how), "skipped")

    def cell(self, row: str, target: str) -> str | None:
        """The expected cell; None if a skipped test might claim more."""
        found = [self._part(part, target) for part in ROWS[row]]
        if None in found:
            return None
        return max((text for text in found if text is not None), key=_weakness)

    def _part(self, part: str, target: str) -> str | None:
        for how in HOW:
            outcome = self.outcomes.get((part, target, how))
            if outcome == "skipped":
                return None
            if outcome == "passed":
                return self.refusals[part, target] if how == "refused" else how
        return NOTHING

    def save(self) -> None:
        rows = [[*key, outcome] for key, outcome in sorted(self.outcomes.items())]
        refusals = [[*key, text] for key, text in sorted(self.refusals.items())]
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"outcomes": rows, "refusals": refusals}, indent=1))

    @classmethod
    def load(cls) -> Results:
        """The last full run's. Raises OSError if there was none."""
        stored: dict[str, Any] = json.loads(RESULTS.read_text())
        return cls(
            {(part, target, how): outcome for part, target, how, outcome in stored["outcomes"]},
            {(part, target): text for part, target, text in stored["refusals"]},
        )


def _weakness(text: str) -> int:
    return {"runs": 0, "compiles": 1, NOTHING: 3}.get(text, 2)


def merged(results: Results, old: Table) -> Table:
    """The table of these results, with the old one's cells where they leave a cell unsettled."""
    table: Table = {}
    for row in ROWS:
        for target in TARGETS:
            found = results.cell(row, target)
            table[row, target] = old.get((row, target), NOTHING) if found is None else found
    return table


def render(table: Table) -> str:
    """The table as Markdown, its errors as numbered notes below it."""
    notes: list[str] = []
    lines = [f"| | {' | '.join(f'`{target}`' for target in TARGETS)} |"]
    lines.append("|---" * (len(TARGETS) + 1) + "|")
    for row in ROWS:
        cells = [_shown(table[row, target], notes) for target in TARGETS]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    lines += ["", *(f"[{i}] {text}  " for i, text in enumerate(notes, 1))]
    return "\n".join(lines).rstrip()


def _shown(text: str, notes: list[str]) -> str:
    if text in (*HOW, NOTHING):
        return text
    if text not in notes:
        notes.append(text)
    return f"no [{notes.index(text) + 1}]"


def parse(text: str) -> Table:
    """Parse the table that `render` wrote; cells of other rows or targets are left out."""
    notes = dict(re.findall(r"^\[(\d+)\] (.*?) *$", text, flags=re.MULTILINE))
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    header = [name.strip("`") for name in lines[0][1:]] if lines else []
    table: Table = {}
    for row, *cells in lines[2:]:
        for target, cell in zip(header, cells, strict=False):
            note = re.fullmatch(r"no \[(\d+)\]", cell)
            table[row, target] = notes.get(note[1], "") if note else cell
    return table


def section(page: str) -> str:
    """The text between the two comments. Raises ValueError if they are not there."""
    return page[page.index(BEGIN) + len(BEGIN) : page.index(END)].strip()


def differences(results: Results) -> list[str]:
    """A line for each settled cell in which the page differs from the results; [] if none does."""
    text = section(PAGE.read_text(encoding="utf-8"))
    old = parse(text)
    new = merged(results, old)
    found = [
        f"{row}, {target}: the tests say '{new[row, target]}', {PAGE.name} '{old.get(key, '')}'"
        for key in new
        if (row := key[0]) and (target := key[1]) and new[key] != old.get(key, "")
    ]
    return found or (
        [] if render(new) == text else [f"the form of the table in {PAGE.name} was changed"]
    )


def main() -> int:
    """Rewrite the table in docs/features.md."""
    try:
        results = Results.load()
    except OSError:
        print("no results of a full run yet; type: python3 dev.py test", file=sys.stderr)
        return 2
    page = PAGE.read_text(encoding="utf-8")
    old = section(page)
    table = merged(results, parse(old))
    unsettled = [f"{r} on {t}" for r, t in table if results.cell(r, t) is None]
    if unsettled:
        kept = "kept as they were, their tests were skipped or left to --long"
        print(f"{kept}: {', '.join(unsettled)}")
    text = f"{BEGIN}\n{render(table)}\n{END}"
    start, stop = page.index(BEGIN), page.index(END) + len(END)
    PAGE.write_text(page[:start] + text + page[stop:], encoding="utf-8")
    print("docs/features.md is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
