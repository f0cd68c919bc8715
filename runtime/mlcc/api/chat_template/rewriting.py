"""A template's syntax tree, rewritten so that nothing happens in it without its price being paid.

jinja compiles slices, comparisons, loops, `~` and literals to plain Python, which no hook of its
sandbox sees. Here each becomes a call of a function of `operations.py`, as a filter whose name no
template can write. What is not known here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

from mlcc.api.chat_template import operations
from mlcc.api.chat_template.budget import STEP

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
"""Filters that only this rewriting can name."""


def rewrite(tree: nodes.Template) -> nodes.Template:
    """The tree with prices. Raises TemplateSyntaxError for what no chat template needs."""
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
    """A constant that compares with anything at once, and that no twin can hide in."""
    if not isinstance(node, nodes.Const):
        return False
    return not isinstance(node.value, str) or not node.value or node.value.isalnum()


def _weight(body: Sequence[nodes.Node]) -> int:
    """The price of going through these statements once."""
    return _PER_NODE * sum(1 for node in body for _ in node.find_all(nodes.Node))


def _entered(weight: int, node: nodes.Node) -> nodes.ExprStmt:
    call = _internal("entered", nodes.Const(STEP + weight, lineno=node.lineno))
    return nodes.ExprStmt(call, lineno=node.lineno)


def _internal(name: str, value: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, f"={name}", list(args), [], None, None, lineno=value.lineno)
