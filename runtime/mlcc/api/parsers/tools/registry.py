"""All tool parsers by name, and the selection of one by its signs in a chat template.

A model uses one of them, so each is imported on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from mlcc.api.parsers.tools.base import ToolFormat

_PLACES: dict[str, tuple[str, str]] = {
    "hermes": ("mlcc.api.parsers.tools.hermes", "HERMES"),
    "qwen-xml": ("mlcc.api.parsers.tools.qwen_xml", "QWEN_XML"),
    "llama": ("mlcc.api.parsers.tools.llama_json", "LLAMA_JSON"),
    "pythonic": ("mlcc.api.parsers.tools.pythonic", "PYTHONIC"),
    "mistral": ("mlcc.api.parsers.tools.mistral", "MISTRAL"),
    "mistral-array": ("mlcc.api.parsers.tools.mistral", "MISTRAL_ARRAY"),
    "harmony": ("mlcc.api.parsers.tools.harmony", "HARMONY_CALLS"),
    "deepseek": ("mlcc.api.parsers.tools.deepseek", "DEEPSEEK"),
    "deepseek-v3.1": ("mlcc.api.parsers.tools.deepseek", "DEEPSEEK_V31"),
    "kimi": ("mlcc.api.parsers.tools.kimi", "KIMI"),
    "glm": ("mlcc.api.parsers.tools.glm", "GLM"),
    "glm4": ("mlcc.api.parsers.tools.glm4", "GLM4"),
    "minimax": ("mlcc.api.parsers.tools.minimax", "MINIMAX"),
    "cohere": ("mlcc.api.parsers.tools.cohere", "COHERE"),
    "lfm2": ("mlcc.api.parsers.tools.marked_python", "LFM2"),
    "olmo3": ("mlcc.api.parsers.tools.marked_python", "OLMO3"),
    "nemotron": ("mlcc.api.parsers.tools.hermes", "NEMOTRON"),
    "gemma-fence": ("mlcc.api.parsers.tools.gemma", "GEMMA_FENCE"),
    "functiongemma": ("mlcc.api.parsers.tools.gemma", "FUNCTION_GEMMA"),
    "gemma4": ("mlcc.api.parsers.tools.gemma", "GEMMA4"),
    "granite": ("mlcc.api.parsers.tools.hermes", "GRANITE"),
    "falcon": ("mlcc.api.parsers.tools.hermes", "FALCON"),
    "functools": ("mlcc.api.parsers.tools.hermes", "FUNCTOOLS"),
    "hunyuan": ("mlcc.api.parsers.tools.hunyuan", "HUNYUAN"),
    "json": ("mlcc.api.parsers.tools.plain_json", "PLAIN_JSON"),
}
"""Module and object of each tool parser."""


class _ToolFormats(Mapping[str, ToolFormat]):
    """Tool parsers by name, imported on access."""

    def __getitem__(self, name: str) -> ToolFormat:
        module, variable = _PLACES[name]
        found: ToolFormat = getattr(import_module(module), variable)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


FORMATS: Mapping[str, ToolFormat] = _ToolFormats()
_SIGNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|channel|>", "<|call|>"), "harmony"),
    (("<|tool_call>call:",), "gemma4"),
    (("<start_function_call>",), "functiongemma"),
    (("tool▁call▁begin", "```json"), "deepseek"),
    (("tool▁call▁begin",), "deepseek-v3.1"),
    (("<|tool_calls_section_begin|>",), "kimi"),
    (("<minimax:tool_call>",), "minimax"),
    (("<|START_ACTION|>",), "cohere"),
    (("<|tool_list_start|>",), "lfm2"),
    (("<|tool_call_start|>",), "lfm2"),
    (("List of tools: [", "<|im_start|>"), "lfm2"),
    (("<function_calls>",), "olmo3"),
    (("<TOOLCALL>",), "nemotron"),
    (("[TOOL_CALLS]", "[ARGS]"), "mistral"),
    (("[TOOL_CALLS]",), "mistral-array"),
    (("<arg_key>",), "glm"),
    (("functools[",), "functools"),
    (("<|observation|>", "metadata"), "glm4"),
    (("<function=", "<parameter="), "qwen-xml"),
    (("<|tool_call|>",), "granite"),
    (("<tool_calls>", "```json"), "hunyuan"),
    (("You are a Falcon assistant", "<tool_call>"), "falcon"),
    (("<tool_call>",), "hermes"),
    (("tool_code",), "gemma-fence"),
    (("<|header_start|>", '"parameters": dictionary'), "llama"),
    (("<|python_start|>",), "pythonic"),
    (("[func_name1(",), "pythonic"),
    (("<|start_header_id|>",), "llama"),
)
"""Texts that only templates of one notation contain, all of them; the first match counts."""


def pick(template: str) -> ToolFormat:
    """The notation that a template uses; plain JSON if none is found."""
    fits = (name for signs, name in _SIGNS if all(sign in template for sign in signs))
    return FORMATS[next(fits, "json")]
