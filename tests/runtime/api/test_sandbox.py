"""Chat templates are untrusted programs: they reach no Python, change nothing, and are bounded."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from copy import deepcopy
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.api.chat_template.budget import MAX_WORK, Budget, OverBudget
from mlcc.api.chat_template.filters import FILTERS
from mlcc.api.chat_template.operations import METHODS
from mlcc.api.chat_template.template import ChatTemplate
from mlcc.errors import ArtifactError

TALK = [{"role": "user", "content": "hi", "tags": ["t"]}]
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
    "{% set x = messages | first %}{% set y = [x.tags] %}{{ y[0].append(1) }}",
    "{% set y = namespace(x=messages) %}{{ y.x.append(1) }}",
    "{{ (messages if true else []).append(1) }}",
    "{{ (messages | default([])).append(1) }}",
    "{{ [].extend([1]) }}",
    "{{ messages.pop() }}",
    "{{ (messages | first).tags.pop(0) }}",
    "{{ [2, 1].sort() }}",
    "{{ [1].clear() }}",
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
    "{% set a = [1] %}{% for x in a %}{% set _ = a.append(x) %}{% endfor %}",
    "{% set a = [] %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% set _ = a.append(a) %}{% endfor %}{% endfor %}",
    "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}",
    "{% set a = [] %}{% set _ = a.append(a) %}{{ a | tojson }}",
    "{% set a = [] %}{% set _ = a.append(a) %}{{ a == [a] }}",
    "{% set a = [] %}{% set _ = a.append(a) %}{{ a in [a, [a]] }}{{ [a] in a }}",
    "{% set a = [] %}{% set _ = a.append(a) %}{{ a | sum(start=[]) }}{{ a | string }}",
]  # fmt: skip

SOME = "{% set ns = namespace(x='ab', y='ab', kept=[]) %}{% set big = 'ab' * 1000000 %}"
KEEP = "{% for i in range(60) %}{% set ns.kept = namespace(x=@, old=ns.kept) %}{% endfor %}"
TWICE = "{% for i in range(60) %}{% set ns.x = @ %}{% endfor %}"
MUCH = [
    KEEP.replace("@", "big[i:]"),
    KEEP.replace("@", "big[::2]"),
    KEEP.replace("@", "(range(99999) | list)[i:]"),
    KEEP.replace("@", "range(99999) | list"),
    KEEP.replace("@", "big | list"),
    KEEP.replace("@", "big.split('b')"),
    KEEP.replace("@", "big.replace('a', 'bb')"),
    KEEP.replace("@", "big | reverse"),
    KEEP.replace("@", "big | upper"),
    KEEP.replace("@", "('ß' * 100000).upper()"),
    KEEP.replace("@", "('<' * 100000) | e"),
    KEEP.replace("@", "('<b>' | safe) + '<' * 100000"),
    KEEP.replace("@", "('\x01' * 100000) | tojson"),
    KEEP.replace("@", "('\u1234' * 100000) | tojson(ensure_ascii=true)"),
    KEEP.replace("@", "('a\n' * 9999) | indent(60)"),
    KEEP.replace("@", "'\U0001f600' ~ big"),
    KEEP.replace("@", "'{}\U0001f600'.format(big)"),
    KEEP.replace("@", "big | truncate(900000, true, big[:800000])"),
    "{% set a = [] %}{% for i in range(99999) %}{% for j in range(9) %}{% set _ = a.append(i) %}"
    "{% endfor %}{% endfor %}",
    "{% set a = range(50000) | list %}{% for i in range(50000) %}{% set _ = a.pop(0) %}"
    "{% endfor %}",
    KEEP.replace("@", "'%999d' % i").replace("60", "99999"),
    KEEP.replace("@", "'{:999}'.format(i)").replace("60", "99999"),
    "{{ ('{0.x}' * 1000).format(namespace(x=big[:200000])) | length }}",
    "{{ ('{0[x]}' * 1000).format({'x': big[:200000]}) | length }}",
    "{{ '%(k)99999999d' % {'k': 1} }}",
    "{{ '%.99999999f' % 1 }}",
    "{{ '{:٩٩٩٩٩٩٩٩}'.format(1) }}",
    "{{ 'ab' | round(-100000000) }}{{ 1 | round(-100000000) }}",
    "{% macro f() %}{{ varargs | length }}{% endmacro %}{{ f(*('\u1234' * 2000000)) }}",
    "{% for a in [1] recursive %}{{ loop(range(99999) | map('string')) }}{% endfor %}",
]
LONG = [
    "{% set a = 'a' * 200000 %}{{ (a * 10).rfind('b' + a) }}",
    "{% set a = 'a' * 200000 %}{{ (a * 10).rsplit('b' + a) }}",
    "{% set a = 'a' * 200000 %}{{ (a * 10).count(a + 'b') }}",
    "{% set a = 'a' * 200000 %}{{ (a + 'b' + a) in a * 10 }}",
    "{% set a = 'a' * 200000 %}{{ (a * 10) | replace(a + 'b', '') }}",
    "{% set a = 'a' * 200000 %}{{ (a * 10) | trim('b' * 200000 + 'a') }}",
    "{% for i in range(99999) %}{% set x = big.isalpha() %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = big + 'a' == big + 'b' %}{% endfor %}",
    "{% set a = [1] * 99999 %}{% for i in range(99999) %}{% set x = 2 in a %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    TWICE.replace("@", "[ns.x, ns.x]") + "{{ ns.x == [[ns.y], 1] }}{{ ns.x }}",
    TWICE.replace("@", "(ns.x, ns.x)") + "{{ {ns.x: 1} }}",
    TWICE.replace("@", "(ns.x, ns.x)") + "{{ {}.get(ns.x) }}",
    TWICE.replace("@", "(ns.x, ns.x)") + "{{ [ns.x] | unique | list }}",
    TWICE.replace("@", "[ns.x, ns.x]") + "{{ ns.x is lower }}",
    "{% for i in range(9999) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}",
    "{% for i in range(9999) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {}[ns.x] }}",
]
REFUSED = [
    "{{ [1] | _counted(-10**15) }}",
    "{{ [1] | map('_counted', -10**15) | list }}",
    "{{ [1] | map('=looped', -10**15) | list }}",
    "{{ [1] | select('=eq', 1) | list }}",
    "{{ (1).to_bytes(1000000, 'big') }}",
    "{{ 'a'.zfill(1000000) }}",
    "{{ '%99999999d' is odd }}",
    "{{ ['%99999999d'] | select('even') | list }}",
    "{{ '%99999999d' is divisibleby 3 }}",
    "{{ (messages | map('string')).throw(1) }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    talk = deepcopy(TALK)
    with pytest.raises(
        ArtifactError, match=r"unsafe|undefined|private|cannot be used|no attribute"
    ):
        ChatTemplate(source).render(talk)
    assert talk == TALK


@pytest.mark.parametrize("source", BOMBS)
def test_a_runaway_is_stopped(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcc.api.chat_template.budget.MAX_SECONDS", 0.3)
    with pytest.raises(ArtifactError):
        ChatTemplate(source).render(TALK)


@pytest.mark.parametrize("source", MUCH)
def test_much_is_paid_before_it_is_made(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcc.api.chat_template.budget.MAX_WORK", 16_000_000)
    template = ChatTemplate(SOME + source)
    template.check()
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactError, match="does too much"):
            template.render(TALK)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


@pytest.mark.parametrize("source", LONG)
def test_work_that_makes_nothing_is_paid_too(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcc.api.chat_template.budget.MAX_SECONDS", 1e9)
    monkeypatch.setattr("mlcc.api.chat_template.budget.MAX_WORK", 16_000_000)
    with pytest.raises(ArtifactError, match=r"does too much: it (makes|nests)"):
        ChatTemplate(SOME + source).render(TALK)


@pytest.mark.parametrize("source", REFUSED)
def test_what_has_no_price_is_refused(source: str) -> None:
    with pytest.raises(
        ArtifactError, match=r"safe|[Nn]o (filter|test|remainder|attribute)|No test"
    ):
        ChatTemplate(source).render(TALK)


def test_a_template_may_change_its_own_lists() -> None:
    """As Kimi K2's does, which keeps the ids of its calls; copies of the messages are its own, the
    messages are not."""
    source = (
        "{%- set found = [] -%}{%- for m in messages -%}"
        "{%- if m.role == 'tool' -%}{%- set _ = found.append(m.content) -%}"
        "{%- else -%}[{{ found | join('+') }}]{%- set found = [] -%}{{ m.content }}{%- endif -%}"
        "{%- endfor -%}|{% set ns = namespace(late=messages[1:], all=messages | list) %}"
        "{% set _ = ns.late.append(messages[0]) %}{% set _ = ns.all.append('x') %}"
        "{% set more = messages + [] %}{% set _ = more.append(1) %}"
        "{% set queue = namespace(ids=[1, 2, 3]) %}{{ queue.ids.pop(0) }}{{ queue.ids.pop() }}|"
        "{{ found | length }}{{ ns.late | length }}{{ ns.all | length }}{{ more | length }}"
        "{{ messages | length }}{{ found is sequence }}{{ found | tojson }}"
    )
    roles = ("user", "tool", "tool")
    talk = [{"role": role, "content": f"{role}{i}"} for i, role in enumerate(roles)]
    before = deepcopy(talk)
    assert ChatTemplate(source).render(talk).text == '[]user0|13|23443True["tool1", "tool2"]'
    assert talk == before


def test_a_budget_gives_nothing_back() -> None:
    budget = Budget(work=100)
    with pytest.raises(OverBudget, match="less than nothing"):
        budget.spend(-1)
    assert budget.left == 100


def test_a_template_that_takes_long_to_compile_is_refused() -> None:
    chain = "{% if a %}" + "".join(f"{{% elif b %}}{{% set a{i} = 1 %}}" for i in range(4000))
    with pytest.raises(ArtifactError, match="more than 12000 expressions"):
        ChatTemplate(chain + "{% endif %}").check()


FREE = {"abs", "count", "d", "default", "first", "float", "int", "items", "last", "length", "round"}


@pytest.mark.parametrize("name", sorted(FILTERS.keys() - FREE))
def test_every_filter_pays(name: str) -> None:
    """For a text and for a list: the cost is at least the size of the result and of the scanned
    input."""
    arguments = {
        "dictsort": "", "format": "(1)", "groupby": "('a')", "replace": "('a', 'bb')",
        "map": "('upper')", "select": "('eq', 'a')", "reject": "('eq', 'b')",
        "selectattr": "('a')", "rejectattr": "('b')",
    }.get(name, "")  # fmt: skip
    for value in ("'a' * 100000", "['a'] * 12000"):
        source = f"{{% set x = {value} %}}{{{{ (x | {name}{arguments}) is defined }}}}"
        spent = _spent(source) - _spent(f"{{% set x = {value} %}}{{{{ x is defined }}}}")
        assert spent >= 90_000


@pytest.mark.parametrize("name", sorted(METHODS[str] - {"format_map"}))
def test_every_method_of_a_text_pays(name: str) -> None:
    arguments = {
        "join": "['a'] * 100000", "format": "x", "replace": "'a', 'b'",
        "startswith": "x", "endswith": "x",
    }  # fmt: skip
    takes = name in "count find index rfind rindex partition rpartition removeprefix removesuffix"
    given = arguments.get(name, "'a'" if takes or "split" in name or "strip" in name else "")
    given = "" if name == "splitlines" else given
    x = "{% set x = '{}' + 'a' * 100000 %}"
    spent = _spent(f"{x}{{{{ x.{name}({given}) is defined }}}}") - _spent(
        f"{x}{{{{ x is defined }}}}"
    )
    assert spent >= 90_000


def _spent(source: str) -> int:
    """The work of a template, whether or not it succeeds."""
    budgets = []

    def kept() -> Budget:
        budgets.append(Budget())
        return budgets[-1]

    with pytest.MonkeyPatch.context() as patch, suppress(ArtifactError):
        patch.setattr("mlcc.api.chat_template.sandbox.Budget", kept)
        ChatTemplate(source).render(TALK)
    return MAX_WORK - budgets[-1].left


def test_a_long_conversation_is_well_within_the_bounds() -> None:
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{{ '<' + m.role + '>' + m.content | trim ~ '\n' }}{% endfor %}{{ messages | length }}"
    )
    talk = [{"role": "user", "content": "x" * 1000}] * 2000
    assert ChatTemplate(source).render(talk).text.endswith("2000")


def test_a_budget_counts_nested_values_and_iterators() -> None:
    budget = Budget(work=1000)
    entries = 2 * 8 + 2 * 8 + sum(map(getsizeof, ("abc", "k", "v")))
    assert budget.measure(["abc", {"k": "v"}]) == 5 * 64 + entries == 1000 - budget.left
    with pytest.raises(OverBudget):
        list(budget.counted(iter(range(1000)), 1))
    with pytest.raises(OverBudget):
        Budget().text(10**9)


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
