"""Templates in the styles of well-known models, against transformers' rendering."""

from __future__ import annotations

import pytest

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.errors import ArtifactError, InvalidRequestError

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b> & 'you' é"},
    {"role": "assistant", "content": "  Hello. "},
    {"role": "user", "content": "And?"},
]
CHATML = """\
{% for message in messages %}
    {% if loop.first and messages[0]['role'] != 'system' %}
        {{- '<|im_start|>system\\nDefault.<|im_end|>\\n' -}}
    {% endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' -}}
{% endfor %}
{% if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' -}}
{% endif %}
"""
LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = "today" %}
    {%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" + date_string + "\\n" }}
{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GEMMA = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}{%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""
MISTRAL = """\
{%- set ns = namespace(system="", index=0) %}
{%- for message in messages if message.role == "system" %}
    {%- set ns.system = message.content %}
{%- endfor %}
{{- bos_token }}
{%- for message in messages | rejectattr("role", "equalto", "system") | list %}
    {%- set ns.index = ns.index + 1 %}
    {%- if message.role == "user" %}
        {%- if loop.last and ns.system %}
            {{- "[INST] " + ns.system + "\\n\\n" + message.content + "[/INST]" }}
        {%- else %}{{- "[INST] " + message.content + "[/INST]" }}{%- endif %}
    {%- else %}
        {{- " " + message.content | trim ~ eos_token }}{%- generation %}{%- endgeneration %}
    {%- endif %}
    {%- if loop.index0 > 100 %}{%- break %}{%- endif %}
{%- endfor %}
"""
REASONER = """\
{%- macro render(message) -%}
    {%- set content = message.content -%}
    {%- if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif -%}
    {{ content.replace('&', 'and').strip() }}
{%- endmacro -%}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if index is divisibleby 2 %}{{ loop.length }}/{{ '%02d' | format(index) }}:{% endif %}
    {{- message | tojson }}{{ message | tojson(indent=2) }}{{ render(message) }}
    {{- [message.role, 'x'] | join(', ') }}{{ {'a': [1, none, true]} | tojson }}
    {{- "{} of {:>4}".format(index, loop.length) }}
    {{- messages | map(attribute='role') | unique | list }}
{%- endfor %}
"""
MANY_WAYS = """\
{%- macro shout() %}<{{ caller('hey') }}>{% endmacro %}
{%- for m in messages %}{% set text = m['content'] %}
    {{- text.replace('i', 'o') }}{{ '-'.join(['a', text[1:]]) }}{{ text[::-1] | upper | title }}
    {{- text | replace('l', 'LL') | indent(2, first=true) }}{{ [text, 1] }}{{ text in ['x', text] }}
    {{- 'a' < text < 'z' }}{{ loop.changed(m.role) }}{{ loop.cycle('x', 'y') }}{{ loop.revindex }}
    {{- m.items() | list }}{{ dict(a=1, **{'b': 2}) | dictsort }}
    {{- text | truncate(5, true, '..', 0) }}{{ text ~ 1 ~ none ~ [text] }}
    {{- ('<%s>' | safe) % text }}{{ '{0.role!r:>9}{1}'.format(m, [text]) }}
    {{- messages | map('length') | list }}{{ messages | sort(attribute='content') | first }}
    {{- messages | selectattr('role', 'in', ['user']) | map(attribute='content') | join('|') }}
    {{- messages | groupby('role') | map(attribute='grouper') | list }}{{ [3, 1, 2] | sort | max }}
    {{- (5 / 2) | round | int }}{{ 7 // 2 }}{{ 2 ** 5 - -1 }}{{ 1.5 * 2 }}{{ text | e }}
    {{- messages | rejectattr('role', 'eq', 'user') | list | length }}{{ m | items | list | last }}
    {%- call(word) shout() %}{{ word }}{% endcall %}{{ missing }}{{ missing is defined }}
{%- endfor %}
{%- filter upper %}{{ range(3) | list }}{{ '%5.1f|%-4s|%03d' % (1.25, 'x', 7) }}{% endfilter %}
{%- for n in [1, [2, [3]]] recursive %}{{ loop(n) if n is iterable else n }}{% endfor %}
"""
SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}
WELL_KNOWN = {
    "chatml": CHATML,
    "llama3": LLAMA3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "reasoner": REASONER,
    "many ways": MANY_WAYS,
}


@pytest.mark.parametrize("name", WELL_KNOWN)
@pytest.mark.parametrize("generate", [True, False])
def test_it_renders_as_transformers_does(name: str, generate: bool) -> None:
    chat_utils = pytest.importorskip(
        "transformers.utils.chat_template_utils", reason="needs transformers: pip install mlcc[dev]"
    )
    expected, _ = chat_utils.render_jinja_template(
        [TALK], chat_template=WELL_KNOWN[name], add_generation_prompt=generate, **SPECIAL
    )
    made = ChatTemplate(WELL_KNOWN[name], SPECIAL).render(TALK, add_generation_prompt=generate)
    assert made.text == expected[0]
    assert not made.add_special_tokens


def test_chatml_to_the_letter() -> None:
    assert ChatTemplate(CHATML).render(TALK[1:2]).text == (
        "<|im_start|>system\nDefault.<|im_end|>\n<|im_start|>user\nHi <b> & 'you' é<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_its_own_refusal_is_the_callers_error() -> None:
    with pytest.raises(InvalidRequestError, match="roles must alternate") as caught:
        ChatTemplate("{{ raise_exception('roles must alternate') }}", SPECIAL).render(TALK[1:2])
    assert caught.value.param == "messages"


def test_without_a_template_the_plain_one_is_used() -> None:
    template = ChatTemplate(None)
    made = template.render(TALK[1:2])
    assert template.is_plain and made.add_special_tokens
    assert made.text == "User: Hi <b> & 'you' é\nAssistant:"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% for %}", "line 1"),
        ("\n{{ x | nonsense }}", "line 2.*nonsense"),
        ("{{ messages[0].content.a.b }}", "has no attribute 'a'"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% include 'x' %}", "no loader"),
        ("x" * 300_000, "300000 characters"),
    ],
)
def test_a_broken_template_is_a_typed_error(source: str, words: str) -> None:
    with pytest.raises(ArtifactError, match=words):
        ChatTemplate(source).render(TALK)


def test_a_check_finds_bad_syntax_without_messages() -> None:
    ChatTemplate(CHATML).check()
    with pytest.raises(ArtifactError, match="cannot be used"):
        ChatTemplate("{{").check()


@pytest.mark.parametrize("source", [CHATML, LLAMA3, None])
def test_a_last_message_that_goes_on_ends_the_prompt(source: str | None) -> None:
    """No text follows the last message: neither the end of a turn nor the beginning of an
    answer."""
    template = ChatTemplate(source, {"bos_token": "<s>"}, ("<|im_end|>", "<|eot_id|>"))
    talk = [*TALK, {"role": "assistant", "content": "Once upon", "prefix": True}]
    rendered = template.render(talk)
    assert rendered.text.endswith("Once upon")
    assert template.render([{**talk[-1], "prefix": False}]).text != rendered.text
    assert talk[-1]["prefix"] is True  # the caller's message is as it was


def test_a_template_that_leaves_the_last_message_out_cannot_go_on() -> None:
    template = ChatTemplate("{{ messages[0]['content'] }}")
    with pytest.raises(InvalidRequestError, match="leave 'prefix' out"):
        template.render([*TALK, {"role": "assistant", "content": "Once", "prefix": True}])


def test_tools_that_are_none_are_filtered_as_in_jinja() -> None:
    source = "{% set x = tools | selectattr('a') %}{{ tools | map('upper') | list }}"
    assert ChatTemplate(source).render(TALK).text == "[]"


def test_a_template_that_always_loops_over_tools() -> None:
    """As Hermes' template for tools; transformers gives None if there are none."""
    source = (
        "{% for t in tools %}{{ t.function.name }};{% endfor %}"
        "{{ tools | map(attribute='function') | tojson }}"
        "{% for m in messages %}|{{ m.role }}:{{ m.content }}{% endfor %}"
    )
    tool = {"type": "function", "function": {"name": "f"}}
    template = ChatTemplate(source)
    talk = [{"role": "user", "content": "hi"}, {"role": "user", "content": "ho"}]
    assert template.render(talk).text == "[]|user:hi|user:ho"
    assert template.render(talk, tools=[tool]).text == 'f;[{"name": "f"}]|user:hi|user:ho'
    kept = ChatTemplate("{{ tools is none }}{% for m in messages %}{{ m.content }}{% endfor %}")
    assert kept.render(talk).text == "Truehiho"
