"""Prefill and decode by OpenVINO, in this process: prints JSON, tokens a second.

    PYTHON_OF_OPENVINO benchmarks/peers/run_openvino.py [--precision bf16|f32]
        GGUF THREADS PREFILL CONTEXT...

Runs in the environment of `install.openvino`, without mlcc. Reads the same GGUF as llama.cpp; the
model in OpenVINO's format is kept beside it. OpenVINO GenAI writes that, and then fails to compile
it (2026.4.1: "ReadValue contains dead weak ptr"), so the steps run on OpenVINO's own runtime. The
head is computed for the last token alone, as GenAI does.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from openvino import opset13 as ops

DECODE = 128


def converted(gguf: Path) -> Path:
    """The model of a GGUF in OpenVINO's format, made once in a folder of its own."""
    model = gguf.with_suffix(".openvino") / "openvino_model.xml"
    if not model.exists():
        model.parent.mkdir(exist_ok=True)
        linked = model.with_name(gguf.name)
        linked.hardlink_to(gguf)
        with suppress(RuntimeError):  # after the file is written
            genai.LLMPipeline(str(linked), "CPU", enable_save_ov_model=True)
    return model


def last_row_only(model: Any) -> None:
    """Reduce the head's input, [batch, tokens, width], to the last token."""
    head = model.get_results()[0].input_value(0).get_node()
    while head.get_type_name() != "MatMul":
        head = head.input_value(0).get_node()
    begin, end, step, axis = (ops.constant(np.array([at])) for at in (-1, 2**62, 1, 1))
    cut = ops.slice(head.input_value(0), begin, end, step, axis)
    head.input(0).replace_source_output(cut.output(0))
    model.validate_nodes_and_infer_types()


class Sequence:
    """One sequence of a compiled model."""

    def __init__(self, compiled: Any) -> None:
        self.request = compiled.create_infer_request()
        self.length = 0

    def step(self, ids: np.ndarray) -> int:
        """Append tokens. Returns the most likely next one."""
        end = self.length + len(ids)
        logits = self.request.infer(
            {
                "input_ids": ids[None],
                "attention_mask": np.ones((1, end), np.int64),
                "position_ids": np.arange(self.length, end)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )[0]
        self.length = end
        return int(logits[0, -1].argmax())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--precision", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("gguf", type=Path)
    for name in ("threads", "prefill"):
        parser.add_argument(name, type=int)
    parser.add_argument("contexts", type=int, nargs="*")
    given = parser.parse_args()
    core, prefill = ov.Core(), given.prefill
    model = core.read_model(converted(given.gguf))
    last_row_only(model)
    options = {"INFERENCE_NUM_THREADS": given.threads, "PERFORMANCE_HINT": "LATENCY"}
    options["INFERENCE_PRECISION_HINT"] = given.precision
    compiled = core.compile_model(model, "CPU", options)

    def measure(prompt: int, tokens: int) -> tuple[float, float]:
        """(tokens a second of the prompt, of `tokens` decoded after it)."""
        sequence, marks = Sequence(compiled), [time.perf_counter()]
        token = sequence.step(np.arange(3, 3 + prompt) % 1000)
        marks.append(time.perf_counter())
        for _ in range(tokens):
            token = sequence.step(np.array([token]))
        marks.append(time.perf_counter())
        return prompt / (marks[1] - marks[0]), tokens / (marks[2] - marks[1])

    measure(prefill, 4)  # warm-up
    speeds = {"prefill": measure(prefill, 1)[0]}
    for context in given.contexts:
        speeds[f"decode@{context}"] = measure(max(context, 1), DECODE)[1]
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
