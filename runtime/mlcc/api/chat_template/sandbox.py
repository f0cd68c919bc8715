"""The jinja sandbox for untrusted templates: no Python attributes, no mutation, bounded work.

It extends jinja2's ImmutableSandboxedEnvironment with three parts:

- `BoundedEnvironment` allows filters, tests, methods, attributes and calls by name or type, never
  by default, and charges each to a `Budget` before it runs.
- `rewrite` changes the syntax tree before compilation: jinja compiles slices, comparisons, loops,
  `~` and literals to plain Python, which no hook of its sandbox sees. Each becomes a call of a
  function of `operations.py`, as a filter whose name no template can write. Unknown syntax is
  refused.
- `compiled` and `bounded` compile and run a template, and turn its failures into typed errors.

This module is imported with the first conversation: jinja2 takes a sixth of the engine's import
time, and encoders and raw completions never need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType
from typing import Any, NoReturn, cast

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, TemplateReference, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace, pass_context
from jinja2.visitor import NodeTransformer

from mlcc.api.chat_template import operations
from mlcc.api.chat_template.budget import BUDGET, STEP, Budget, OverBudget
from mlcc.api.chat_template.control_tokens import GUARD, ControlTokenGuard
from mlcc.api.chat_template.filters import FILTERS, TESTS, listed_pairs
from mlcc.api.chat_template.operations import (
    METHODS,
    OPERATORS,
    BoundFormat,
    call_method,
    key,
    text_of,
)
from mlcc.errors import ArtifactError, InvalidRequestError

MAX_NODES = 12_000
_PER_NODE = 4
_MAX_BITS = 128
_KNOWN = """
    Template Output TemplateData Extends Include Import FromImport For If Macro CallBlock
    FilterBlock With Block ExprStmt Assign AssignBlock Scope Break Continue
    Name NSRef Const Tuple List Dict Pair Keyword CondExpr Filter Test Call Getitem Getattr Slice
    Concat Compare Operand Add Sub Mul Div FloorDiv Mod Pow Not Neg Pos And Or
"""
_NODES = frozenset(_KNOWN.split())
INTERNAL: Mapping[str, Callable[..., Any]] = {
    "=concat": operations.concat,
    "=compare": operations.compared,
    "=entered": operations.entered,
    "=key": operations.key,
    "=looped": operations.looped,
    "=made": operations.made,
    "=sliced": operations.sliced,
    "=spread": operations.spread,
    **{f"={name}": function for name, function in operations.COMPARISONS.items()},
}
"""Filters that only the rewritten tree can name."""


def rewrite(tree: nodes.Template) -> nodes.Template:
    """The tree with charges. Raises TemplateSyntaxError for syntax that no chat template needs."""
    _check_size(tree)
    return cast(nodes.Template, _Rewriting().visit(tree))


def _check_size(tree: nodes.Template) -> None:
    count, level = 0, [cast(nodes.Node, tree)]
    while level:
        count += len(level)
        if count > MAX_NODES:
            raise TemplateSyntaxError(f"it has more than {MAX_NODES} expressions", 1)
        level = [child for node in level for child in node.iter_child_nodes()]


class _Rewriting(NodeTransformer):
    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        if type(node).__name__ not in _NODES:
            raise TemplateSyntaxError(f"{type(node).__name__} is not supported", node.lineno)
        return super().visit(node, *args, **kwargs)

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return nodes.Const(node.data, lineno=node.lineno)  # paid for when it is written

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        if isinstance(node.value, int) and node.value.bit_length() > _MAX_BITS:
            raise TemplateSyntaxError("a number is too large", node.lineno)
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:
        weight = _weight(node.body)
        self.generic_visit(node)
        node.iter = _internal("looped", cast(nodes.Expr, node.iter), nodes.Const(STEP + weight))
        if node.recursive:  # `loop(more)` gets there without passing the line above
            node.body.insert(0, _entered(weight, node))
        return node

    def _visit_body(self, node: nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
        weight = _weight(node.body)
        self.generic_visit(node)
        node.body.insert(0, _entered(weight, node))
        return node

    visit_Macro = visit_CallBlock = visit_Block = _visit_body

    def _visit_call(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        for field in ("dyn_args", "dyn_kwargs"):
            if (given := getattr(node, field)) is not None:
                setattr(node, field, _internal("spread", given))
        return cast(nodes.Node, node)

    visit_Call = visit_Filter = visit_Test = _visit_call

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        part = node.arg
        nothing = nodes.Const(None, lineno=node.lineno)
        edges = [edge or nothing for edge in (part.start, part.stop, part.step)]
        return _internal("sliced", node.node, *edges)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _internal("concat", *node.nodes)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        if len(node.ops) > 1:
            rest: list[nodes.Expr] = []
            for each in node.ops:
                rest += [nodes.Const(each.op), each.expr]
            return _internal("compare", node.expr, *rest)
        (only,) = node.ops
        if only.op not in ("in", "notin") and (_is_plain(node.expr) or _is_plain(only.expr)):
            return node  # costs no more than the constant is long
        return _internal(only.op, node.expr, only.expr)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _internal("made", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _internal("made", node) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        for pair in node.items:
            if not isinstance(pair.key, nodes.Const):
                pair.key = _internal("key", pair.key)
        return _internal("made", node)


def _is_plain(node: nodes.Expr) -> bool:
    """A constant that is cheap to compare and cannot hold a marked character."""
    if not isinstance(node, nodes.Const):
        return False
    return not isinstance(node.value, str) or not node.value or node.value.isalnum()


def _weight(body: Sequence[nodes.Node]) -> int:
    """The charge for executing these statements once."""
    return _PER_NODE * sum(1 for node in body for _ in node.find_all(nodes.Node))


def _entered(weight: int, node: nodes.Node) -> nodes.ExprStmt:
    call = _internal("entered", nodes.Const(STEP + weight, lineno=node.lineno))
    return nodes.ExprStmt(call, lineno=node.lineno)


def _internal(name: str, value: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, f"={name}", list(args), [], None, None, lineno=value.lineno)


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
    """An environment whose templates cannot reach Python and run within bounds.

    `functions`: what templates may call in addition to jinja's own functions.
    """

    intercepted_binops = frozenset(OPERATORS)

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
            # with a context, so that nothing is computed early
            finalize=pass_context(operations.written),
            optimized=False,
            cache_size=0,
        )
        self.filters = {**FILTERS, **INTERNAL}
        self.tests = dict(TESTS)
        self.binop_table = dict(OPERATORS)
        self.globals = {
            **{name: self.globals[name] for name in ("range", "cycler", "joiner")},
            "dict": listed_pairs,
            "namespace": SafeNamespace,
            **functions,
        }
        self._functions = frozenset(self.globals.values())

    def build(self, text: str) -> Template:
        """Compile a template with charges."""
        tree = rewrite(self.parse(text))
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Attributes listed for the type, and those of a namespace that the template set."""
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
        """`text.format`, charged field by field."""
        name, owner = getattr(value, "__name__", ""), getattr(value, "__self__", None)
        if name not in ("format", "format_map") or not isinstance(owner, str):
            return None
        return BoundFormat(self, owner, name == "format_map")

    def call_filter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A filter called by name, as `map` does."""
        if name not in FILTERS:
            raise SecurityError(f"there is no filter {str(name)[:50]!r}")
        return super().call_filter(name, *args, **kwargs)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a permitted function."""
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

    def _may_call(self, obj: Any) -> bool:
        if isinstance(obj, (FunctionType, BuiltinFunctionType, type)):
            return obj in self._functions
        return isinstance(obj, (Macro, BoundFormat, BlockReference, Joiner, Undefined))


class SafeNamespace(Namespace):
    """jinja's namespace without private names, which Python would interpret."""

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
    """`{% generation %}` marks training text; the engine renders only its body."""

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements up to `{% endgeneration %}`."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _check_public(name: Any) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the private name {name!r}")


class TemplateRefused(TemplateError):
    """Raised by a template on purpose, by `raise_exception`."""


def compiled(source: str) -> Template:
    """Compile a template. Call it inside `bounded`."""
    return BoundedEnvironment(_FUNCTIONS).build(source)


@contextmanager
def bounded(guard: ControlTokenGuard) -> Iterator[None]:
    """A fresh budget; every failure is raised as a typed error."""
    token = BUDGET.set(Budget())
    marks = GUARD.set(guard)
    try:
        yield
    except TemplateRefused as error:
        raise InvalidRequestError(
            f"the model's chat template refuses these messages: {error.message}",
            param="messages",
            code="chat_template",
        ) from None
    except OverBudget as error:
        raise ArtifactError(
            f"the model's chat template does too much: {error}; shorten the conversation, or do "
            "not trust this model's template",
            code="chat_template",
        ) from None
    except TemplateSyntaxError as error:
        raise ArtifactError(
            f"the model's chat template cannot be used (line {error.lineno}: {error.message}); "
            "mend its chat_template.jinja and compile the model again",
            code="chat_template",
        ) from None
    except (ArtifactError, InvalidRequestError):
        raise
    except Exception as error:  # whatever a stranger's program can raise
        raise ArtifactError(
            f"the model's chat template fails on these messages: {_words(error)}",
            code="chat_template",
        ) from error
    finally:
        GUARD.reset(marks)
        BUDGET.reset(token)


def _words(error: Exception) -> str:
    text = " ".join(str(error)[:1000].split()) or "no message"
    return f"{type(error).__name__}: {GUARD.get().plain(text)[:300]}"


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateRefused(GUARD.get().plain(text_of(message))[:500])


def strftime_now(format: str) -> str:
    """The time now, as templates ask for it."""
    from datetime import datetime  # few templates ask

    return datetime.now().strftime(format[:100])


_FUNCTIONS = {"raise_exception": _raise_exception, "strftime_now": strftime_now}
