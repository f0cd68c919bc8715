# ruff: noqa: E501
"""Model families: the chat template (a file of `templates/`), its features, and typical answers.
Templates are written by hand after the public model cards; a release may have another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.runtime.parsers.tools_formats import ADD, NOW, WEATHER

Calls = list[tuple[str, dict[str, Any]]]
THINK = "Look first.\nThen say."


@dataclass(frozen=True)
class Family:
    """A model family: its chat template, and the formats of its answers."""

    name: str
    format: str
    """The format of tool calls."""
    marks: str | None
    """The parser of reasoning; None = no reasoning."""
    native: bool
    """Whether the template renders tools."""
    answer: str
    """An answer with tool calls, as generated after the prompt."""
    calls: Calls = field(default_factory=list)
    content: str = ""
    thought: str = ""
    ends_in: str = ""
    """The expected end of the prompt."""
    arguments_as_text: bool = False
    """Whether the template takes the arguments of earlier calls as text."""
    silent: str | None = None
    """Content of a message with calls only, as the template renders it; the calls, if it renders
    none."""
    shows_calls: bool = True
    """Whether the template renders calls of earlier messages."""
    variables: tuple[Mapping[str, Any], ...] = ({},)
    """Variables with which the template is also rendered."""
    system: bool = True
    """Whether the template takes a system message."""
    tools_as: str = "tools"
    """The template's variable for a request's tools."""
    past: tuple[Mapping[str, Any], ...] = ()
    """The messages of the call and its result, for a template with its own format of them."""
    one_turn: bool = False
    """Whether a call, its result and the answer after it are one turn with `tool_responses`."""
    remembers: str = ""
    """Where the template reads reasoning before a call: a key of the message, or a block of its
    content; "" = it omits earlier reasoning."""

    @property
    def source(self) -> str:
        path = Path(__file__).parent / "templates" / f"{self.name}.jinja"
        # A newline at a file's end is the file's, not the template's.
        return path.read_text(encoding="utf-8").removesuffix("\n")


THINKING: tuple[dict[str, Any], ...] = ({}, {"enable_thinking": True}, {"enable_thinking": False})
_HERMES = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>'
)
_PLAIN = '{"name": "add", "arguments": {"a": 1, "b": 2.5}}\n{"name": "now", "arguments": {}}'
_R1 = "<｜tool▁calls▁begin｜>"
FAMILIES = [
    Family("llama3", "llama", None, True, '{"name": "get_weather", "parameters": {"city": "Rome", "days": 3}}', [WEATHER],
           ends_in="<|start_header_id|>assistant<|end_header_id|>\n\n", variables=({}, {"tools_in_user_message": False})),
    Family("llama4", "llama", None, True, '{"name": "now", "parameters": {}}', [NOW],
           ends_in="<|header_start|>assistant<|header_end|>\n\n", silent="", variables=({}, {"tools_in_user_message": False})),
    Family("qwen2_5", "hermes", None, True, f"I look.\n{_HERMES}", [WEATHER], "I look.", ends_in="<|im_start|>assistant\n"),
    Family("qwen3", "hermes", "think", True, remembers="reasoning_content", answer=f"<think>\n{THINK}\n</think>\n\n{_HERMES}", calls=[WEATHER], thought=THINK,
           ends_in="<|im_start|>assistant\n", variables=THINKING),
    Family("gemma2", "json", None, False, _PLAIN, [ADD, NOW], ends_in="<start_of_turn>model\n", system=False),
    Family("gemma3", "json", None, False, _PLAIN, [ADD, NOW], ends_in="<start_of_turn>model\n"),
    Family("gemma4", "gemma4", "gemma", True, f'<|channel>thought\n{THINK}<channel|>I ask.<|tool_call>call:get_weather{{city:<|"|>Rome<|"|>,days:3}}<tool_call|><|tool_call>call:now{{}}<tool_call|>', [WEATHER, NOW], "I ask.", THINK,
           ends_in="<|turn>model\n", variables=({"enable_thinking": True}, {}, {"enable_thinking": False}), one_turn=True, remembers="reasoning_content"),
    Family("mistral_v3", "mistral-array", None, True, '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}, "id": "abcdefghi"}]', [WEATHER],
           ends_in="[/INST]"),
    Family("phi3", "json", None, False, _PLAIN, [ADD, NOW], ends_in="<|assistant|>\n"),
    Family("phi4", "json", None, False, _PLAIN, [ADD, NOW], ends_in="<|im_start|>assistant<|im_sep|>"),
    Family("phi4_mini", "json", None, False, _PLAIN, [ADD, NOW], ends_in="<|assistant|>"),
    Family("deepseek_v3", "json", None, False, _PLAIN, [ADD, NOW], ends_in="<｜Assistant｜>", arguments_as_text=True),
    Family("deepseek_r1", "json", "think", False, f"{THINK}\n</think>\n\n{_PLAIN}", [ADD, NOW], thought=THINK,
           ends_in="<｜Assistant｜><think>\n", arguments_as_text=True),
    Family("kimi_k2", "kimi", None, True, '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Rome", "days": 3}<|tool_call_end|><|tool_calls_section_end|>', [WEATHER],
           ends_in="<|im_assistant|>assistant<|im_middle|>"),
    Family("kimi_linear", "kimi", None, True, 'I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Rome", "days": 3}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>', [WEATHER, NOW], "I look.",
           ends_in="<|im_assistant|>assistant<|im_middle|>"),
    Family("glm4_5", "glm", "think", True, f"\n<think>{THINK}</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", [WEATHER], thought=THINK,
           ends_in="<|assistant|>", silent="", variables=THINKING, remembers="reasoning_content"),
    Family("minimax_m2", "minimax", "think", True, f'{THINK}\n</think>\n\nI ask.\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>', [WEATHER, NOW], "I ask.", THINK,
           ends_in="]~b]ai\n<think>\n", silent="", remembers="reasoning_content"),
    Family("lfm2", "lfm2", None, True, '<|tool_call_start|>[get_weather(city="Rome", days=3), now()]<|tool_call_end|>', [WEATHER, NOW],
           ends_in="<|im_start|>assistant\n", silent='<|tool_call_start|>[get_weather(city="Rôme", days=3, unit="C")]<|tool_call_end|>', shows_calls=False),
    Family("exaone4", "hermes", "think", True, f'{THINK}\n</think>\n\n<tool_call>{{"name": "now", "arguments": {{}}}}</tool_call>', [NOW], thought=THINK,
           ends_in="[|assistant|]\n<think>\n", variables=({"enable_thinking": True}, {}, {"skip_think": False})),
    Family("olmo2", "json", None, False, _PLAIN, [ADD, NOW], ends_in="<|assistant|>\n"),
    Family("olmo3", "olmo3", None, True, '<function_calls>get_weather(city="Rome", days=3)\nnow()</function_calls>', [WEATHER, NOW],
           ends_in="<|im_start|>assistant\n"),
    Family("ernie4_5", "json", None, False, _PLAIN, [ADD, NOW], ends_in="Assistant: "),
    Family("granite3", "granite", "granite", True, '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}]', [WEATHER],
           ends_in="<|start_of_role|>assistant<|end_of_role|>", silent='<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Rôme", "days": 3, "unit": "C"}}]', shows_calls=False, variables=({}, {"thinking": True})),
    Family("qwen3_5", "qwen-xml", "think", True, f"{THINK}\n</think>\n\nI ask.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>", [WEATHER], "I ask.", THINK,
           ends_in="<|im_start|>assistant\n<think>\n", variables=THINKING, remembers="reasoning_content"),
    Family("gpt_oss", "harmony", "harmony", True, f'<|channel|>analysis<|message|>{THINK}<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{{"city": "Rome", "days": 3}}', [WEATHER], thought=THINK,
           ends_in="<|start|>assistant", silent="", variables=({}, {"reasoning_effort": "high"}), remembers="thinking"),
    Family("deepseek_v3_1", "json", "think", False, _PLAIN, [ADD, NOW], ends_in="<｜Assistant｜></think>", arguments_as_text=True,
           variables=({}, {"thinking": True}, {"thinking": False})),
    Family("ministral3", "mistral", "mistral", True, f'[THINK]{THINK}[/THINK]I ask.[TOOL_CALLS]get_weather[ARGS]{{"city": "Rome", "days": 3}}[TOOL_CALLS]now[ARGS]{{}}', [WEATHER, NOW], "I ask.", THINK,
           ends_in="[INST]Tomorrow?[/INST]", silent="", remembers="block"),
    Family("granite4", "hermes", None, True, f"I look.\n{_HERMES}", [WEATHER], "I look.", ends_in="<|start_of_role|>assistant<|end_of_role|>"),
    Family("smollm3", "hermes", "think", True, f"<think>\n{THINK}\n</think>\n{_HERMES}", [WEATHER], thought=THINK, tools_as="xml_tools",
           ends_in="<|im_start|>assistant\n", silent='<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rôme", "days": 3, "unit": "C"}}\n</tool_call>', shows_calls=False, variables=THINKING),
    Family("nemotron_h", "nemotron", "think", True, f'{THINK}\n</think>\n\n<TOOLCALL>[{{"name": "get_weather", "arguments": {{"city": "Rome", "days": 3}}}}, {{"name": "now", "arguments": {{}}}}]</TOOLCALL>', [WEATHER, NOW], thought=THINK,
           ends_in="<SPECIAL_11>Assistant\n<think>\n"),
    Family("command_r7b", "cohere", "cohere", True, f'<|START_THINKING|>{THINK}<|END_THINKING|><|START_ACTION|>[\n    {{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {{"city": "Rome", "days": 3}}}},\n    {{"tool_call_id": "1", "tool_name": "now", "parameters": {{}}}}\n]<|END_ACTION|>', [WEATHER, NOW], thought=THINK,
           ends_in="<|CHATBOT_TOKEN|>", variables=({"enable_thinking": True}, {}), remembers="reasoning_content"),
    Family("firefunction", "functools", None, True, ' functools[{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}, {"name": "now", "arguments": {}}]', [WEATHER, NOW],
           ends_in="<|start_header_id|>assistant<|end_header_id|>\n\n", tools_as="functions"),
    Family("glm4_0414", "glm4", None, True, '\nget_weather\n{"city": "Rome", "days": 3}', [WEATHER], ends_in="<|assistant|>",
           past=({"role": "assistant", "metadata": "get_weather", "content": '{"city": "Rôme", "days": 3, "unit": "C"}'}, {"role": "observation", "content": "21 °C"})),
    Family("lfm2_5", "lfm2", "think", True, f'<think>{THINK}</think><|tool_call_start|>[get_weather(city="Rome", days=3)]<|tool_call_end|>', [WEATHER], thought=THINK,
           ends_in="<|im_start|>assistant\n", silent='<|tool_call_start|>[get_weather(city="Rôme", days=3, unit="C")]<|tool_call_end|>', shows_calls=False),
    Family("falcon_h1", "falcon", None, True, '<tool_call>\n[\n  {"name": "get_weather", "arguments": {"city": "Rome", "days": 3}},\n  {"name": "now", "arguments": {}}\n]\n</tool_call>', [WEATHER, NOW],
           ends_in="<|im_start|>assistant\n", silent='<tool_call>\n[\n{"name": "get_weather", "arguments": {"city": "Rôme", "days": 3, "unit": "C"}}\n]\n</tool_call>', shows_calls=False),
    Family("qwen1_5", "json", None, False, _PLAIN, [ADD, NOW], ends_in="<|im_start|>assistant\n"),
    Family("qwen3_2507_thinking", "hermes", "think", True, f"{THINK}\n</think>\n\n{_HERMES}", [WEATHER], thought=THINK, ends_in="<|im_start|>assistant\n<think>\n", remembers="reasoning_content"),
    Family("mixtral", "json", None, False, _PLAIN, [ADD, NOW], ends_in=" [/INST]", system=False),
    Family("mistral_small3", "mistral-array", None, True, '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}, "id": "abcdefghi"}, {"name": "now", "arguments": {}, "id": "abcdefghj"}]', [WEATHER, NOW],
           ends_in="[/INST]"),
    Family("deepseek_v2", "json", None, False, _PLAIN, [ADD, NOW], ends_in="\n\nAssistant:"),
    Family("glm4_7", "glm", "think", True, f"{THINK}</think>I ask.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call><tool_call>now</tool_call>", [WEATHER, NOW], "I ask.", THINK,
           ends_in="<|assistant|><think>", silent="", variables=(*THINKING, {"clear_thinking": False}), remembers="reasoning_content"),
    Family("hunyuan_7b", "hunyuan", "hunyuan", True, f'<think>\n{THINK}\n</think>\n<answer>\nI ask.<tool_calls><tool_call>get_weather\n```json\n{{"city": "Rome", "days": 3}}\n```</tool_call>\n<tool_call>now\n```json\n{{}}\n```</tool_call></tool_calls>\n</answer>', [WEATHER, NOW], "I ask.", THINK,
           ends_in="<|extra_0|>", variables=THINKING),
]  # fmt: skip
