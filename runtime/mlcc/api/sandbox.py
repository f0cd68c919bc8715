"""Jinja for strangers' templates: no attributes of Python, no mutation, bounded work.

On top of jinja2's ImmutableSandboxedEnvironment: filters, globals and string methods are allowed by
name, and every loop step, call, operator, literal and output is charged to a `Budget`. What a chat
template means is in `template.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, cast

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from mlcc.api import bounded
from mlcc.api.budget import BUDGET

FILTERS = """
    abs capitalize count d default dictsort e escape first float groupby indent int items last
    length list lower map max min reject rejectattr reverse round safe select selectattr sort string
    title trim truncate unique upper
"""
STRING_METHODS = """
    capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit
    islower isnumeric isspace istitle isupper join lower lstrip partition removeprefix removesuffix
    replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title
    upper
"""
_STRING_METHODS = frozenset(STRING_METHODS.split())


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """An environment whose templates can neither reach Python nor run away."""

    intercepted_binops = frozenset(bounded.OPERATORS)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
            finalize=_made,
            optimized=False,
            cache_size=0,
        )
        indent = bounded.indent(self.filters["indent"])
        self.filters = {name: _charged(self.filters[name]) for name in FILTERS.split()}
        self.filters |= {"_counted": _counted, "_concat": bounded.concat, "_made": _made}
        self.filters |= {"indent": _charged(indent), "join": bounded.join}
        self.filters |= {"replace": bounded.replace, "format": _charged(bounded.format_percent)}
        self.filters |= {"tojson": bounded.tojson}
        self.globals = {
            **{name: self.globals[name] for name in ("range", "cycler", "joiner")},
            "dict": lambda *args, **kwargs: dict(*args, **kwargs),
            "namespace": SafeNamespace,
        }

    def build(self, text: str) -> Template:
        """Compile a template with its loops and literals counted."""
        tree = _Counting().visit(self.parse(text))
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Only named methods of strings; no private names; nothing that changes a value."""
        if isinstance(obj, str) and attr not in _STRING_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format`, if its format string asks for nothing wide."""
        wrapped = super().wrap_str_format(value)
        return wrapped and bounded.format_braces(value.__self__, wrapped)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call something, and charge what goes in and what comes out."""
        budget = BUDGET.get()
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name in ("join", "replace"):
            method: Any = bounded.join_texts if name == "join" else bounded.replace
            return method(owner, *args, **kwargs)
        for arg in args:
            budget.spend(len(arg) if isinstance(arg, (str, list, tuple, dict)) else 1)
        return budget.charge(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator that can make much from little."""
        return BUDGET.get().charge(bounded.OPERATORS[operator](left, right))


class SafeNamespace(Namespace):
    """jinja's namespace without private names, which Python itself would look at."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `namespace(self=...)` is allowed
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_public(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<namespace>"


class GenerationTag(Extension):
    """`{% generation %}` marks text to train on; for an engine it is only its body."""

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements up to `{% endgeneration %}`."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class _Counting(NodeTransformer):
    """Wraps what no hook of the sandbox sees: loops, `~` and literals."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = _filter("_counted", cast(nodes.Expr, node.iter), nodes.Const(10 + text))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter("_concat", nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filter("_made", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filter("_made", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filter("_made", node) if node.ctx == "load" else node


def _filter(name: str, value: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)


def _charged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that charges what it made. jinja's marks (pass_context ...) are kept."""

    @wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        return BUDGET.get().charge(function(*args, **kwargs))

    return charged


def _made(value: Any) -> Any:
    return BUDGET.get().charge(value)


def _counted(values: Iterable[Any], weight: int) -> Any:
    return values if isinstance(values, Undefined) else BUDGET.get().counted(values, weight)


def _check_public(name: Any) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the private name {name!r}")
