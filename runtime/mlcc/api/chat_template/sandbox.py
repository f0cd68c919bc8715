"""Jinja for strangers' templates: no attributes of Python, no mutation, bounded work.

On top of jinja2's ImmutableSandboxedEnvironment. Everything is allowed by name or type, never by
default: filters and tests (`filters.py`), methods (`methods.py`), syntax (`rewriting.py`), here
attributes and calls; and each pays a `Budget` before it does its work. What a chat template means
is in `template.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, TemplateReference, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace, pass_context

from mlcc.api.chat_template.budget import BUDGET, STEP
from mlcc.api.chat_template.filters import FILTERS, TESTS, listed_pairs
from mlcc.api.chat_template.methods import METHODS, BoundFormat, call_method
from mlcc.api.chat_template.operations import OPERATORS, key, text_of
from mlcc.api.chat_template.rewriting import INTERNAL, rewrite

_LOOP = """
    changed cycle depth depth0 first index index0 last length nextitem previtem revindex revindex0
"""
_ATTRIBUTES: Mapping[type, frozenset[str]] = {
    **METHODS,
    LoopContext: frozenset(_LOOP.split()),
    Cycler: frozenset(["current", "next", "reset"]),
    Macro: frozenset(["name", "arguments", "catch_kwargs", "catch_varargs", "caller"]),
    BlockReference: frozenset(["super"]),
}


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """An environment whose templates can neither reach Python nor run away.

    `functions` are what templates may call besides jinja's own.
    """

    intercepted_binops = frozenset(OPERATORS)

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
            finalize=pass_context(_written),  # with a context, so that nothing is computed early
            optimized=False,
            cache_size=0,
        )
        self.filters = {**FILTERS, **INTERNAL}
        self.tests = dict(TESTS)
        self.globals = {
            **{name: self.globals[name] for name in ("range", "cycler", "joiner")},
            "dict": listed_pairs,
            "namespace": SafeNamespace,
            **functions,
        }
        self._functions = frozenset(self.globals.values())

    def build(self, text: str) -> Template:
        """Compile a template with prices."""
        tree = rewrite(self.parse(text))
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """What is listed for its type; of a namespace what the template put there."""
        if isinstance(obj, (Namespace, TemplateReference)):
            return not attr.startswith("_")
        names = [names for kind, names in _ATTRIBUTES.items() if isinstance(obj, kind)]
        if any(attr in each for each in names):
            return True
        return isinstance(obj, tuple) and attr in getattr(obj, "_fields", ())  # of `groupby`

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`obj.attribute`."""
        if type(obj) is dict and attribute not in METHODS[dict]:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`obj[argument]`."""
        return super().getitem(obj, key(argument))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format`, paid for field by field."""
        name, owner = getattr(value, "__name__", ""), getattr(value, "__self__", None)
        if name not in ("format", "format_map") or not isinstance(owner, str):
            return None
        return BoundFormat(self, owner, name == "format_map")

    def call_filter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """What `map` calls by name."""
        if name not in FILTERS:
            raise SecurityError(f"there is no filter {str(name)[:50]!r}")
        return super().call_filter(name, *args, **kwargs)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what may be called."""
        budget = BUDGET.get()
        budget.spend(2 * STEP * (1 + len(args) + len(kwargs)))
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, (str, dict, list, tuple)):
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return call_method(owner, __obj.__name__, args, kwargs)
        if isinstance(__obj, LoopContext):
            args = (budget.counted(*args, STEP),)  # type: ignore[call-arg]
        elif isinstance(owner, LoopContext):
            budget.measure(args)  # `changed` compares
        elif not isinstance(owner, Cycler) and not __self._may_call(__obj):
            raise SecurityError(f"a {type(__obj).__name__} is not safely callable")
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator that can make much from little."""
        return OPERATORS[operator](left, right)

    def _may_call(self, obj: Any) -> bool:
        if isinstance(obj, (FunctionType, BuiltinFunctionType, type)):
            return obj in self._functions
        return isinstance(obj, (Macro, BoundFormat, BlockReference, Joiner, Undefined))


class SafeNamespace(Namespace):
    """jinja's namespace without private names, which Python itself would look at."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `namespace(self=...)` is allowed
        self, *rest = args
        attributes = listed_pairs(*rest, **kwargs)
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


def _written(context: Context, value: Any) -> str:
    return text_of(value)


def _check_public(name: Any) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the private name {name!r}")
