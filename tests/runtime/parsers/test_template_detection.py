"""Features detected in a chat template: its format of earlier calls, and the model's tool
format."""

from __future__ import annotations

import pytest

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.api.parsers.output_format import output_format_of

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": "é"}}}
TURNS = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
]
LOOP = "{% for m in messages %}{% if m.tool_calls %}"
END = "{% else %}{{ m.content }}{% endif %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        # as Qwen and Llama: an object, written by the template
        (LOOP + "{% set c = m.tool_calls[0].function %}{{ c.name }}{{ c.arguments | tojson }}"
         + END,
         'hif{"a": "é"}'),
        # as DeepSeek: a text, joined
        (LOOP + "{% set c = m.tool_calls[0].function %}{{ c.name + c.arguments }}" + END,
         'hif{"a": "é"}'),
        # as GLM: null would be written out
        (LOOP + "{{ m.content }}{% set c = m.tool_calls[0].function %}{{ c.name }}"
         "{% for k, v in c.arguments.items() %}{{ k }}={{ v }}{% endfor %}" + END,
         "hifa=é"),
        # as DeepSeek: calls only where there is no content
        ("{% for m in messages %}{% if m.content is none %}{% set c = m.tool_calls[0].function %}"
         "{{ c.name }}{{ c.arguments | tojson }}{% else %}{{ m.content }}{% endif %}{% endfor %}",
         'hif{"a": "é"}'),
    ],
)  # fmt: skip
def test_earlier_calls_come_as_the_template_wants_them(source: str, text: str) -> None:
    assert ChatTemplate(source).render(TURNS).text == text


@pytest.mark.parametrize(
    ("sign", "format", "marks"),
    [
        ("{{ tools }}<tool_call>{'name'}</tool_call><think>", "hermes", "think"),
        ("{{ tools }}<tool_call><function=f><parameter=a>", "qwen-xml", None),
        ("{{ tools }}<|start_header_id|>", "llama", None),
        ("{{ tools }}[TOOL_CALLS] [THINK] [ARGS]", "mistral", "mistral"),
        ("{{ tools }}[TOOL_CALLS]", "mistral-array", None),
        ("{{ tools }}<|channel|>analysis<|message|><|call|>", "harmony", "harmony"),
        ("{{ tools }}<｜tool▁call▁begin｜>```json", "deepseek", None),
        ("{{ tools }}<｜tool▁call▁begin｜></think>", "deepseek-v3.1", "think"),
        ("{{ tools }}<tool_call><arg_key></think>", "glm", "think"),
        ("{{ tools }}<|tool_call|>", "granite", None),
        ("{{ messages }}", "json", None),
    ],
)
def test_what_a_template_shows(sign: str, format: str, marks: str | None) -> None:
    found = output_format_of(sign)
    assert (found.format.name, found.tags and found.tags.name) == (format, marks)
    assert found.native == ("tools" in sign)
