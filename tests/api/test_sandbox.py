"""A template is a stranger's program: it reaches no Python, changes nothing, does not run away."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.api.budget import Budget, OverBudget
from mlcc.api.template import ChatTemplate
from mlcc.errors import ArtifactError

TALK = [{"role": "user", "content": "hi"}]
DOUBLING = "{% set ns = namespace(x='0123456789') %}{% for i in range(99) %}@{% endfor %}{{ ns.x }}"

ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ (''|attr('__class__')).__mro__ }}",
    "{{ raise_exception.__globals__['__builtins__'] }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ dict.__globals__.x }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{x.__class__.__mro__}'.format_map({'x': ''}) }}",
    "{{ ['{0.__class__.__mro__}'.format][0]('') }}",
    "{{ messages|map(attribute='__class__')|map(attribute='__mro__')|list|first|first }}",
    "{% set ns = namespace(__html__=1) %}",
    "{% set ns = namespace() %}{% set ns.__call__ = 1 %}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ messages[0].pop('role') }}",
    "{{ messages.sort() }}",
    "{{ 'x'.encode() }}",
    "{{ lipsum(9) }}",
]

BOMBS = [
    "{% for i in range(10**9) %}x{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = range(99999)|map('string')|list %}{% endfor %}",
    DOUBLING.replace("@", "{% set ns.x = ns.x ~ ns.x %}"),
    DOUBLING.replace("@", "{% set ns.x = ns.x + ns.x %}"),
    DOUBLING.replace("@", "{% set ns.x = [ns.x, ns.x] %}"),
    DOUBLING.replace("@", "{% set ns.x = (ns.x, ns.x) %}"),
    DOUBLING.replace("@", "{% set ns.x = {'a': ns.x, 'b': ns.x} %}"),
    DOUBLING.replace("@", "{% set ns.x = dict(a=ns.x, b=ns.x) %}"),
    DOUBLING.replace("@", "{% set ns.x = ns.x.replace('0', ns.x) %}"),
    DOUBLING.replace("@", "{% set ns.x = ns.x | replace('0', ns.x) %}"),
    DOUBLING.replace("@", "{% set ns.x = ns.x | tojson | tojson %}"),
    DOUBLING.replace("@", "{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
    DOUBLING.replace("@", "{% set ns.x = '{0}{0}'.format(ns.x) %}"),
    DOUBLING.replace("@", "{% set ns.x = ns.x.join([ns.x, ns.x]) %}"),
    DOUBLING.replace("@", "{% set ns.x = [ns.x, ns.x] | join %}"),
    DOUBLING.replace("@", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
    "{% set ns = namespace(x=9) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "{{ 'a' * 10**10 }}",
    "{{ [1] * 10**10 }}",
    "{{ 10**10**10 }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ 'a' | center(1000000000) }}",
    "{{ 'a'.ljust(1000000000) }}",
    "{{ 'a\\tb'.expandtabs(1000000000) }}",
    "{{ 'a' | indent(1000000000, true) }}",
    "{{ [[1]] | tojson(indent=1000000000) }}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% for i in range(99999) %}" + "text " * 2000 + "{% endfor %}",
    "{% set x %}{% for i in range(99999) %}" + "text " * 2000 + "{% endfor %}{% endset %}",
    "{% for a in [1] recursive %}{{ loop([a]) }}{% endfor %}",
]  # fmt: skip


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    talk = [dict(message) for message in TALK]
    with pytest.raises(
        ArtifactError, match=r"unsafe|undefined|private|cannot be used|no attribute"
    ):
        ChatTemplate(source).render(talk)
    assert talk == TALK


@pytest.mark.parametrize("source", BOMBS)
def test_a_runaway_is_stopped_soon(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcc.api.budget.MAX_SECONDS", 0.3)
    started = time.monotonic()
    with pytest.raises(ArtifactError):
        ChatTemplate(source).render(TALK)
    assert time.monotonic() - started < 4  # the machine may be busy


def test_a_long_conversation_is_well_within_the_bounds() -> None:
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{{ '<' + m.role + '>' + m.content | trim ~ '\n' }}{% endfor %}{{ messages | length }}"
    )
    talk = [{"role": "user", "content": "x" * 1000}] * 2000
    assert ChatTemplate(source).render(talk).text.endswith("2000")


def test_a_budget_counts_nested_values_and_iterators() -> None:
    budget = Budget(work=100)
    assert budget.measure(["abc", {"k": "v"}]) == 1 + 4 + 1 + 2 + 2
    with pytest.raises(OverBudget):
        list(budget.charge(iter(range(1000))))
    with pytest.raises(OverBudget):
        Budget().length(10**9)


@given(st.text(max_size=30), st.text(max_size=30), st.text(min_size=1, max_size=3))
def test_bounded_operations_do_what_pythons_do(a: str, b: str, c: str) -> None:
    source = (
        "{{ m.a.replace(m.c, m.b) }}|{{ m.a | replace(m.c, m.b) }}|{{ m.c.join([m.a, m.b]) }}|"
        "{{ [m.a, m.b] | join(m.c) }}|{{ m.a ~ m.b }}|{{ m.a + m.b }}|{{ m.a * 2 }}|"
        "{{ '%s-%s' % (m.a, m.b) }}|{{ '{}-{}'.format(m.a, m.b) }}"
    )
    text = ChatTemplate("{% set m = messages[0] %}" + source).render([{"a": a, "b": b, "c": c}])
    replaced, joined = a.replace(c, b), c.join([a, b])
    expected = [replaced, replaced, joined, joined, a + b, a + b, a * 2, f"{a}-{b}", f"{a}-{b}"]
    assert text.text == "|".join(expected)
