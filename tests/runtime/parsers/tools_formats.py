# ruff: noqa: E501
"""Typical answers in every tool format, and the calls that they mean: for tests of parsers and of
grammars. Texts follow the makers' chat templates and model cards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TOOLS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city"],
    },
    "add": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
    "write_file": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
        "required": ["path", "text"],
    },
    "now": {"type": "object", "properties": {}},
}
WEATHER = ("get_weather", {"city": "Rome", "days": 3})
ADD = ("add", {"a": 1, "b": 2.5})
CODE = 'def f(x):\n    return {"a": [x]} if x else "</b> ✓"\n'
WRITE = ("write_file", {"path": "a.py", "text": CODE})
NOW = ("now", {})


@dataclass(frozen=True)
class Sample:
    """An answer and the expected result of its parser."""

    format: str
    text: str
    calls: list[tuple[str, dict[str, Any]]]
    content: str = ""
    thought: str = ""
    ids: tuple[str, ...] = ()
    """Ids of the calls, if the model generates them."""


@dataclass(frozen=True)
class Malformed:
    """An answer that is no call, and comes back as it is."""

    format: str
    text: str
    about: str = field(default="", compare=False)


B, E, C, CE, S = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
KB, KE, KA = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_argument_begin|>",
)
_WRITE_JSON = (
    r'{"path": "a.py", "text": "def f(x):\n    return {\"a\": [x]} if x else \"</b> ✓\"\n"}'
)
SAMPLES = [
    Sample("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>', [WEATHER]),
    Sample("hermes", 'Let me look.\n\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2.5}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', [ADD, NOW], "Let me look."),
    Sample("hermes", f'<tool_call>{{"name": "write_file", "arguments": {_WRITE_JSON}}}</tool_call> done', [WRITE], " done"),
    Sample("hermes", '<tool_call>{"name": "now", "arguments": "{}"}', [NOW]),
    Sample("hermes", "No tools, but a < b and <tool and <<tool_cal> are text.\n", [], "No tools, but a < b and <tool and <<tool_cal> are text.\n"),
    Sample("qwen-xml", "I will.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>", [WEATHER], "I will."),
    Sample("qwen-xml", f"<tool_call>\n<function=write_file>\n<parameter=path>\na.py\n</parameter>\n<parameter=text>\n{CODE}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>", [WRITE, NOW]),
    Sample("qwen-xml", "<function=add>\n<parameter=a>1</parameter>\n<parameter=b>2.5</parameter>\n</function>", [ADD]),
    Sample("llama", '{"name": "get_weather", "parameters": {"city": "Rome", "days": 3}}', [WEATHER]),
    Sample("llama", '{"type": "function", "name": "add", "parameters": {"a": 1, "b": 2.5}}; {"name": "now", "parameters": {}}', [ADD, NOW]),
    Sample("llama", '<|python_tag|>{"name": "now", "parameters": {}}', [NOW]),
    Sample("llama", '<|python_tag|>brave_search.call(query="mlcc (tool)")', [("brave_search", {"query": "mlcc (tool)"})]),
    Sample("llama", 'It is {"name": "now"} that you want.', [], 'It is {"name": "now"} that you want.'),
    Sample("llama", '{"answer": 42, "name": "now"}', [], '{"answer": 42, "name": "now"}'),
    Sample("llama", '<|python_start|>[get_weather(city="Rome", days=3)]<|python_end|>', [WEATHER]),
    Sample("llama", '[now(), add(a=1, b=2.5)]', [NOW, ADD]),
    Sample("llama", '[1] is a note, see now().', [], '[1] is a note, see now().'),
    Sample("pythonic", '[get_weather(city="Rome", days=3), now()]', [WEATHER, NOW]),
    Sample("pythonic", "[add(a=1, b=2.5)]", [ADD]),
    Sample("pythonic", "<|python_start|>[get_weather('Rome', days=3)]<|python_end|>", [WEATHER]),
    Sample("pythonic", "[1] is a note, see now().", [], "[1] is a note, see now()."),
    Sample("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Rome", "days": 3}[TOOL_CALLS]now[ARGS]{}', [WEATHER, NOW]),
    Sample("mistral", 'So:[TOOL_CALLS]add[CALL_ID]abc123XYZ[ARGS]{"a": 1, "b": 2.5}', [ADD], "So:"),
    Sample("mistral", '[TOOL_CALLS]now{}', [NOW]),
    Sample("mistral-array", '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}, {"name": "now", "arguments": {}}]', [WEATHER, NOW]),
    Sample("mistral-array", '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1, "b": 2.5}, "id": "abcdefghi"}]', [ADD]),
    Sample("deepseek", f'{B}{C}function{S}get_weather\n```json\n{{"city": "Rome", "days": 3}}\n```{CE}\n{C}function{S}now\n```json\n{{}}\n```{CE}{E}', [WEATHER, NOW]),
    Sample("deepseek", f'Sure.{B}{C}function{S}write_file\n```json\n{_WRITE_JSON}\n```{CE}{E}', [WRITE], "Sure."),
    Sample("deepseek-v3.1", f'{B}{C}get_weather{S}{{"city": "Rome", "days": 3}}{CE}{C}add{S}{{"a": 1, "b": 2.5}}{CE}{E}', [WEATHER, ADD]),
    Sample("deepseek-v3.1", f'{B}{C}now{S}{{}}{CE}', [NOW]),
    Sample("glm", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>", [WEATHER, NOW]),
    Sample("glm", f"Ok.\n<tool_call>write_file<arg_key>path</arg_key><arg_value>a.py</arg_value><arg_key>text</arg_key><arg_value>{CODE}</arg_value></tool_call>", [WRITE], "Ok."),
    Sample("functools", 'functools[{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}, {"name": "now", "arguments": {}}]', [WEATHER, NOW]),
    Sample("functools", 'I look. functools[{"name": "add", "arguments": {"a": 1, "b": 2.5}}]', [ADD], "I look."),
    Sample("functools", "Use functools.lru_cache, or functools [sic].", [], "Use functools.lru_cache, or functools [sic]."),
    Sample("glm4", 'get_weather\n{"city": "Rome", "days": 3}', [WEATHER]),
    Sample("glm4", f"\nwrite_file \n{_WRITE_JSON}", [WRITE]),
    Sample("glm4", "now\n{}\nadd\n{\"a\": 1, \"b\": 2.5}", [NOW, ADD]),
    Sample("glm4", "now is the time\n{}", [], "now is the time\n{}"),
    Sample("glm4", "Say:\nnow\n{}", [], "Say:\nnow\n{}"),
    Sample("gemma-fence", "```tool_code\nprint(get_weather(city='Rome', days=3))\n```", [WEATHER]),
    Sample("gemma-fence", "Both:\n```tool_code\nadd(a=1, b=2.5)\nnow()\n```\n", [ADD, NOW], "Both:"),
    Sample("gemma-fence", '```json\n{"name": "now", "parameters": {}}\n```', [NOW]),
    Sample("gemma-fence", '```json\n{"name": "Ada"}\n```', [], '```json\n{"name": "Ada"}\n```'),
    Sample("functiongemma", "<start_function_call>call:get_weather{city:<escape>Rome<escape>,days:3}<end_function_call>", [WEATHER]),
    Sample("functiongemma", f"<start_function_call>call:write_file{{path:<escape>a.py<escape>,text:<escape>{CODE}<escape>}}<end_function_call><start_function_call>call:now{{}}<end_function_call>", [WRITE, NOW]),
    Sample("gemma4", '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:3}<tool_call|>', [WEATHER]),
    Sample("granite", '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}, {"name": "now", "arguments": {}}]', [WEATHER, NOW]),
    Sample("hunyuan", 'Sure.<tool_calls><tool_call>get_weather\n```json\n{"city": "Rome", "days": 3}\n```</tool_call>\n<tool_call>now\n```json\n{}\n```</tool_call></tool_calls>', [WEATHER, NOW], "Sure."),
    Sample("hunyuan", f"<tool_calls>\n<tool_call>write_file\n```json\n{_WRITE_JSON}", [WRITE]),
    Sample("falcon", 'Sure.\n<tool_call>\n[\n  {"name": "get_weather", "arguments": {"city": "Rome", "days": 3}},\n  {"name": "now", "arguments": {}}\n]\n</tool_call>', [WEATHER, NOW], "Sure."),
    Sample("falcon", '<tool_call>{"name": "now", "arguments": {}}</tool_call>', [NOW]),
    Sample("kimi", f'Sure.{KB}<|tool_call_begin|>functions.get_weather:0{KA}{{"city": "Rome", "days": 3}}<|tool_call_end|><|tool_call_begin|>functions.now:1{KA}{{}}<|tool_call_end|>{KE}', [WEATHER, NOW], "Sure.", ids=("functions.get_weather:0", "functions.now:1")),
    Sample("kimi", f'{KB} <|tool_call_begin|> functions.write_file:12 {KA} {_WRITE_JSON}', [WRITE], ids=("functions.write_file:12",)),
    Sample("kimi", f'{KB}<|tool_call_begin|>now:3{KA}{{}}<|tool_call_end|><|tool_call_begin|>now:3{KA}{{}}<|tool_call_end|>{KE}', [NOW, NOW], ids=("now:3", "call_0")),
    Sample("minimax", '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>', [WEATHER, NOW]),
    Sample("minimax", f'I write.\n\n<minimax:tool_call><invoke name="write_file"><parameter name="path">a.py</parameter><parameter name="text">{CODE}</parameter></invoke></minimax:tool_call>', [WRITE], "I write."),
    Sample("minimax", '<minimax:tool_call>\n<invoke name=now></invoke>', [NOW]),
    Sample("minimax", '<minimax:tool_call><invoke name="now"></invoke>\nhm <invoke', [NOW], "\nhm <invoke"),
    Sample("cohere", '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Rome", "days": 3}},\n    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>', [WEATHER, NOW]),
    Sample("lfm2", '<|tool_call_start|>[get_weather(city="Rome", days=3), now()]<|tool_call_end|>I asked.', [WEATHER, NOW], "I asked."),
    Sample("lfm2", '<|tool_call_start|>[add(a=1, b=2.5)', [], '<|tool_call_start|>[add(a=1, b=2.5)'),
    Sample("olmo3", '<function_calls>\nget_weather(city="Rome", days=3)\nnow()\n</function_calls>', [WEATHER, NOW]),
    Sample("olmo3", '<function_calls>add(a=1, b=2.5)</function_calls>', [ADD]),
    Sample("olmo3", '<function_calls>now()', [NOW]),
    Sample("nemotron", '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}, {"name": "now", "arguments": {}}]</TOOLCALL>', [WEATHER, NOW]),
    Sample("json", '{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}', [WEATHER]),
    Sample("json", '{"name": "add", "arguments": {"a": 1, "b": 2.5}}\n{"name": "now", "arguments": {}}', [ADD, NOW]),
    Sample("json", '[{"function": {"name": "now", "arguments": "{}"}}]', [NOW]),
    Sample("json", '```json\n{"name": "now", "arguments": {}}\n```', [NOW]),
    Sample("json", '{"colour": "red", "n": [1, 2]}', [], '{"colour": "red", "n": [1, 2]}'),
    Sample("harmony", '<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome", "days": 3}', [WEATHER], "", "Need weather."),
    Sample("harmony", '<|channel|>commentary to=functions.now json<|message|>{}<|call|>', [NOW]),
    Sample("harmony", ' to=functions.now<|channel|>commentary<|message|>{}', [NOW]),
    Sample("harmony", '<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>42 is <it>.', [], "42 is <it>.", "Easy."),
    Sample("harmony", '<|channel|>commentary<|message|>I look. <|end|><|start|>assistant<|channel|>commentary to=functions.add<|message|>{"a": 1, "b": 2.5}', [ADD], "I look. "),
    Sample("harmony", "Plain words.", [], "Plain words."),
]  # fmt: skip
MALFORMED = [
    Malformed("hermes", '<tool_call>\n{"name": "now", "arguments": {}\n</tool_call>', "no end"),
    Malformed("hermes", "<tool_call>\nnow()\n</tool_call>", "no JSON"),
    Malformed("hermes", '<tool_call>{"arguments": {}}</tool_call>', "no name"),
    Malformed("hermes", '<tool_call>{"name": "now", "arguments": [1]}</tool_call>', "no object"),
    Malformed("hermes", "<tool_call>", "nothing"),
    Malformed("qwen-xml", "<tool_call>\n<function=now>\nhm\n</function>\n</tool_call>", "no tags"),
    Malformed("qwen-xml", "<tool_call>\n<function=now>", "no end"),
    Malformed("llama", '<|python_tag|>{"name": 1}', "no name"),
    Malformed("llama", '{"name": "unknown", "parameters": {}}', "a tool that is not there"),
    Malformed("pythonic", "[now(, )]", "no Python"),
    Malformed("pythonic", "[now(**x)]", "no value"),
    Malformed("pythonic", "[__import__('os').system('true')]", "is not run"),
    Malformed("mistral", "[TOOL_CALLS]now[ARGS]{", "no end"),
    Malformed("mistral", "[TOOL_CALLS]what is this", "no call"),
    Malformed("mistral-array", "[TOOL_CALLS][1, 2]", "no objects"),
    Malformed("deepseek", f"{B}{C}function{S}now\n```json\n{{", "no end"),
    Malformed("glm", "<tool_call>now\n<arg_key>x</arg_key>", "no value"),
    Malformed("glm4", 'now\n{"a": 1', "no end"),
    Malformed("glm4", "now\n", "nothing"),
    Malformed("glm4", "now\n[1]", "no object"),
    Malformed("gemma-fence", "```tool_code\nx = 1\n```", "no call"),
    Malformed("functiongemma", "<start_function_call>now()<end_function_call>", "another way"),
    Malformed("granite", '<|tool_call|>[{"name": "now"', "no end"),
    Malformed("hunyuan", "<tool_calls><tool_call>now\n```json\n{", "no end"),
    Malformed("falcon", '<tool_call>\n[\n  {"name": "now"', "no end"),
    Malformed("kimi", f"{KB}<|tool_call_begin|>functions.now:0{KA}{{", "no end"),
    Malformed(
        "kimi", f"{KB}<|tool_call_begin|>functions.now:0{KA}{{1}}<|tool_call_end|>{KE}", "no JSON"
    ),
    Malformed(
        "minimax", '<minimax:tool_call>\n<invoke name="now">\n<parameter name="x">1', "no end"
    ),
    Malformed(
        "minimax",
        '<minimax:tool_call>\n<invoke name="now">\nhm\n</invoke>\n</minimax:tool_call>',
        "no tags",
    ),
    Malformed("minimax", "<minimax:tool_call>\nnow()\n</minimax:tool_call>", "no invoke"),
    Malformed("minimax", f'<minimax:tool_call><invoke name="{"n" * 400}', "a name without end"),
    Malformed("cohere", '<|START_ACTION|>[{"tool_name": "now"', "no end"),
    Malformed("lfm2", "<|tool_call_start|>[now(**x)]<|tool_call_end|>", "no value"),
    Malformed("lfm2", "<|tool_call_start|>what is this<|tool_call_end|>", "no call"),
    Malformed("olmo3", "<function_calls>now(</function_calls>", "no end"),
    Malformed("nemotron", "<TOOLCALL>[1]</TOOLCALL>", "no call"),
    Malformed("json", '{"name": "now", "arguments": {}', "no end"),
    Malformed("json", '{"name": "unknown", "arguments": {}}', "a tool that is not there"),
]
