"""Every way to write calls, by name, and the one that a chat template teaches."""

from __future__ import annotations

from mlcc.api.tools.cohere import COHERE
from mlcc.api.tools.deepseek import DEEPSEEK, DEEPSEEK_V31
from mlcc.api.tools.gemma import FUNCTION_GEMMA, GEMMA4, GEMMA_FENCE
from mlcc.api.tools.glm import GLM
from mlcc.api.tools.glm4 import GLM4
from mlcc.api.tools.harmony import HARMONY_CALLS
from mlcc.api.tools.hermes import FALCON, GRANITE, HERMES, NEMOTRON
from mlcc.api.tools.hunyuan import HUNYUAN
from mlcc.api.tools.kimi import KIMI
from mlcc.api.tools.llama_json import LLAMA_JSON
from mlcc.api.tools.marked_python import LFM2, OLMO3
from mlcc.api.tools.minimax import MINIMAX
from mlcc.api.tools.mistral import MISTRAL, MISTRAL_ARRAY
from mlcc.api.tools.plain_json import PLAIN_JSON
from mlcc.api.tools.port import Format
from mlcc.api.tools.pythonic import PYTHONIC
from mlcc.api.tools.qwen_xml import QWEN_XML

_ALL: tuple[Format, ...] = (
    HERMES, QWEN_XML, LLAMA_JSON, PYTHONIC, MISTRAL, MISTRAL_ARRAY, HARMONY_CALLS, DEEPSEEK,
    DEEPSEEK_V31, KIMI, GLM, GLM4, MINIMAX, COHERE, LFM2, OLMO3, NEMOTRON, GEMMA_FENCE,
    FUNCTION_GEMMA, GEMMA4, GRANITE, FALCON, HUNYUAN, PLAIN_JSON,
)  # fmt: skip
FORMATS: dict[str, Format] = {made.name: made for made in _ALL}
_SIGNS: tuple[tuple[tuple[str, ...], Format], ...] = (
    (("<|channel|>", "<|call|>"), HARMONY_CALLS),
    (("<|tool_call>call:",), GEMMA4),
    (("<start_function_call>",), FUNCTION_GEMMA),
    (("tool▁call▁begin", "```json"), DEEPSEEK),
    (("tool▁call▁begin",), DEEPSEEK_V31),
    (("<|tool_calls_section_begin|>",), KIMI),
    (("<minimax:tool_call>",), MINIMAX),
    (("<|START_ACTION|>",), COHERE),
    (("<|tool_list_start|>",), LFM2),
    (("<|tool_call_start|>",), LFM2),
    (("List of tools: [", "<|im_start|>"), LFM2),
    (("<function_calls>",), OLMO3),
    (("<TOOLCALL>",), NEMOTRON),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL),
    (("[TOOL_CALLS]",), MISTRAL_ARRAY),
    (("<arg_key>",), GLM),
    (("<|observation|>", "metadata"), GLM4),
    (("<function=", "<parameter="), QWEN_XML),
    (("<|tool_call|>",), GRANITE),
    (("<tool_calls>", "```json"), HUNYUAN),
    (("You are a Falcon assistant", "<tool_call>"), FALCON),
    (("<tool_call>",), HERMES),
    (("tool_code",), GEMMA_FENCE),
    (("<|header_start|>", '"parameters": dictionary'), LLAMA_JSON),
    (("<|python_start|>",), PYTHONIC),
    (("[func_name1(",), PYTHONIC),
    (("<|start_header_id|>",), LLAMA_JSON),
)
"""What only templates of one way have in them, all of it; the first that fits counts."""


def pick(template: str) -> Format:
    """The way that a template shows; plain JSON if it shows none."""
    fits = (made for signs, made in _SIGNS if all(sign in template for sign in signs))
    return next(fits, PLAIN_JSON)
