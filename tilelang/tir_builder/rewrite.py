# SPDX-License-Identifier: Apache-2.0
"""Python AST rewrite: every construct with a device meaning becomes a call on the builder `__tb__`.

What is left alone is plain Python and runs at trace time. The rewritten function takes the builder as its first
parameter and keeps all source positions, so that a traceback through it points into the user's file. The protocol
(`at`, `assign`, `if_`, `for_`, ...) is implemented by `Tracer`; nothing here knows of TVM.
"""

from __future__ import annotations

import ast
from typing import Any

from tilelang.tir_builder import errors
from tilelang.tir_builder.scopes import watched_names
from tilelang.tir_builder.source import SourceFunction

__all__ = ["BUILDER", "Rewriter", "rewrite"]

BUILDER = "__tb__"  # not to be mangled in classes
_TEMP = "__tb_"
_COMPARE = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@",
}  # fmt: skip
_UNARY = {ast.Not: "not_", ast.USub: "negative", ast.UAdd: "positive", ast.Invert: "invert"}
_BUILTINS = {"min", "max", "abs", "int", "float", "bool", "pow", "round", "len", "range", "divmod", "print"}
# Builtins that iterate: over a buffer that would never end, since indexing one never fails.
_ITERATING = {
    "all",
    "any",
    "enumerate",
    "filter",
    "iter",
    "list",
    "map",
    "reversed",
    "set",
    "sorted",
    "sum",
    "tuple",
    "zip",
}
_ATTRIBUTES = {"shape", "strides", "dtype"}
# Syntax that is Python's own while tracing, children apart.
_PLAIN = (
    ast.Import, ast.ImportFrom, ast.Pass, ast.Constant, ast.Dict, ast.List, ast.Tuple, ast.Slice,
    ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
_REFUSED = {
    "Try": ("`try`", "test before the statement that may fail; a device raises no exceptions"),
    "TryStar": ("`try`", "test before the statement that may fail; a device raises no exceptions"),
    "Delete": ("`del`", "leave it out: names and buffers end with their block"),
    "AsyncFunctionDef": ("`async def`", "write a plain function or a @T.macro"),
    "AsyncFor": ("`async for`", "kernels are traced synchronously"),
    "AsyncWith": ("`async with`", "kernels are traced synchronously"),
    "Await": ("`await`", "kernels are traced synchronously"),
    "Yield": ("`yield`", "return a tuple"),
    "YieldFrom": ("`yield`", "return a tuple"),
    "TypeAlias": ("`type`", "assign the type to a plain name"),
}


def rewrite(source: SourceFunction) -> ast.FunctionDef:
    """The rewritten syntax of `source.node` (changed in place); fills `source.places`."""
    node = source.node
    rewriter = Rewriter(source, watched_names(node))
    node.body = rewriter.block(node.body) or [ast.copy_location(ast.Pass(), node)]
    node.decorator_list = []
    node.returns = None
    args = node.args
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if arg is not None:
            arg.annotation = None
    args.defaults = []
    args.kw_defaults = [None] * len(args.kwonlyargs)
    args.args = [*args.posonlyargs, *args.args]
    args.posonlyargs = [ast.copy_location(ast.arg(arg=BUILDER), node)]
    return ast.fix_missing_locations(node)


class Rewriter(ast.NodeTransformer):
    """Turns the statements and expressions of a traced function into builder calls."""

    def __init__(self, source: SourceFunction, watched: frozenset[str]) -> None:
        self.source = source
        self.watched = watched
        self.temps = 0
        self.hidden: list[frozenset[str]] = []  # names bound by enclosing lambdas and comprehensions

    # -- building blocks ------------------------------------------------------------------------------------------

    def temp(self) -> str:
        self.temps += 1
        return f"{_TEMP}{self.temps}__"

    def call(self, at: ast.AST, method: str, *args: ast.expr) -> ast.Call:
        func = ast.Attribute(ast.Name(BUILDER, ast.Load()), method, ast.Load())
        return _located(ast.Call(func, list(args), []), at)

    def at(self, node: ast.AST, target: str = "") -> ast.stmt:
        return _located(ast.Expr(self.call(node, "at", _const(self.source.place(node, target)))), node)

    def thunk(self, body: ast.expr) -> ast.expr:
        for inner in ast.walk(body):
            if isinstance(inner, ast.NamedExpr):
                self.reject(inner, "`:=` inside and/or/not and conditional expressions", "assign in a statement before")
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return _located(ast.Lambda(empty, body), body)

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            out += new if isinstance(new, list) else [new]
        return out

    def expr(self, node: ast.expr) -> ast.expr:
        return self.visit(node)

    def snapshot(self, node: ast.expr) -> ast.expr:
        """A value; the elements of a list or tuple written out are evaluated now, as in Python."""
        written_out = isinstance(node, ast.List | ast.Tuple | ast.ListComp | ast.Dict | ast.DictComp)
        return self.call(node, "elements", self.expr(node)) if written_out else self.expr(node)

    def visit(self, node: ast.AST) -> Any:
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is not None:
            return method(node)
        if isinstance(node, ast.stmt | ast.expr) and not isinstance(node, _PLAIN):
            return self.refuse(node)
        return self.generic_visit(node)

    def refuse(self, node: ast.AST) -> Any:
        """Syntax without a rule: nothing is run that has no meaning of its own here."""
        kind = type(node).__name__
        what, instead = _REFUSED.get(kind, (f"this syntax ({kind})", "write it with simpler statements"))
        self.reject(node, what, instead)

    def reject(self, node: ast.AST, what: str, instead: str) -> None:
        raise errors.UnsupportedSyntax(span=self.source.span(node), what=what, instead=instead)

    # -- statements -----------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Constant):
            return node
        at = self.at(node.value)
        return [at, _located(ast.Expr(self.call(node.value, "evaluate", self.expr(node.value))), node)]

    def visit_Assign(self, node: ast.Assign) -> Any:
        first = node.targets[0]
        at = self.at(node, first.id if isinstance(first, ast.Name) else "")
        # Unpacking evaluates all elements itself, and knows the names that they get.
        unpacks = len(node.targets) == 1 and isinstance(first, ast.Tuple | ast.List)
        value = self.elements_for(node, first, node.value) if unpacks else self.snapshot(node.value)
        if len(node.targets) == 1 and isinstance(first, ast.Name):
            return [at, _store(first.id, self.call(first, "rebind", _const(first.id), value), first)]
        if len(node.targets) == 1:
            return [at, *self.bind(first, value)]
        name = self.temp()
        out = [at, _store(name, self.call(node, "shared_value", value), node)]
        for target in node.targets:
            out += self.bind(target, _load(name, node))
        return out

    def elements_for(self, node: ast.Assign, target: ast.expr, value: ast.expr) -> ast.expr:
        """The value for a target that is unpacked. What an element makes gets the name that the element is for."""
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            starred = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
            if not starred and len(target.elts) == len(value.elts):
                pairs = zip(target.elts, value.elts, strict=True)
                return _located(ast.Tuple([self.elements_for(node, t, v) for t, v in pairs], ast.Load()), value)
        made = self.expr(value)
        if not isinstance(target, ast.Name) or not any(isinstance(n, ast.Call) for n in ast.walk(value)):
            return made
        outer = self.call(node, "enter_place", _const(self.source.place(node, target.id)))
        return self.call(node, "leave_place", outer, made)

    def bind(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Statements that give `value` to a target of any form."""
        if isinstance(target, ast.Name):
            return [_store(target.id, self.call(target, "assign", _const(target.id), value), target)]
        if isinstance(target, ast.Subscript):
            store = self.call(target, "setitem", self.expr(target.value), self.index(target.slice), value)
            return [_located(ast.Expr(store), target)]
        if isinstance(target, ast.Attribute):
            raise errors.AttributeStore(span=self.source.span(target), name=ast.unparse(target))
        if isinstance(target, ast.Starred):
            return self.bind(target.value, value)
        if not isinstance(target, ast.Tuple | ast.List):
            self.reject(target, "this assignment target", "assign to a name or an element")
            return []
        name = self.temp()
        out = [_store(name, self.call(target, "unpack", value, _const(_spec(target))), target)]
        for i, element in enumerate(target.elts):
            out += self.bind(element, _located(ast.Subscript(_load(name, target), _const(i), ast.Load()), element))
        return out

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if not isinstance(node.target, ast.Name):
            self.reject(node, "an annotation on this target", "annotate plain names")
            return node
        name = node.target.id
        at = self.at(node, name)
        if node.value is None:
            declared = self.call(node, "declare", _const(name), node.annotation)
            asked = self.call(node, "declares", self.thunk(node.annotation))
            return [at, _located(ast.If(asked, [_store(name, declared, node)], []), node)]
        typed = self.call(node, "typed", self.thunk(node.annotation), self.expr(node.value))
        return [at, *self.bind(node.target, typed)]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        op = _const(_BINARY[type(node.op)])
        target = node.target
        at = self.at(node, target.id if isinstance(target, ast.Name) else "")
        value = self.expr(node.value)
        if isinstance(target, ast.Name):
            old = self.visit(_located(ast.Name(target.id, ast.Load()), target))
            return [at, *self.bind(target, self.call(node, "augment", op, old, value))]
        if isinstance(target, ast.Subscript):
            update = self.call(node, "update", op, self.expr(target.value), self.index(target.slice), value)
            return [at, _located(ast.Expr(update), node)]
        raise errors.AttributeStore(span=self.source.span(target), name=ast.unparse(target))

    def visit_If(self, node: ast.If) -> Any:
        name = self.temp()

        def ask(method: str) -> ast.expr:
            return _located(ast.Call(ast.Attribute(_load(name, node), method, ast.Load()), [], []), node.test)

        def end() -> ast.stmt:
            return _located(ast.Expr(ask("leave")), node.test)

        at = self.at(node.test)
        out = [at, _store(name, self.call(node.test, "if_", self.truth(node.test)), node.test)]
        out.append(_located(ast.If(ask("then"), [*self.block(node.body), end()], []), node))
        if node.orelse:
            out.append(_located(ast.If(ask("otherwise"), [*self.block(node.orelse), end()], []), node))
        out.append(_located(ast.Expr(ask("close")), node.test))
        return out

    def visit_While(self, node: ast.While) -> Any:
        if node.orelse:
            self.reject(node.orelse[0], "`else` of a loop", "test a flag after the loop")
        at = self.at(node.test)
        constant = not any(isinstance(n, ast.Name) for n in ast.walk(node.test))
        loop = self.call(node.test, "while_", self.thunk(self.truth(node.test)), _const(constant))
        target = ast.Name(self.temp(), ast.Store())
        return [at, _located(ast.For(target, loop, self.block(node.body), []), node.test)]

    def visit_For(self, node: ast.For) -> Any:
        if node.orelse:
            self.reject(node.orelse[0], "`else` of a loop", "test a flag after the loop")
        at = self.at(node.iter)
        loop = self.call(node.iter, "for_", self.snapshot(node.iter), _const(_spec(node.target)))
        name = self.temp()
        body = [*self.bind(node.target, _load(name, node.target)), *self.block(node.body)]
        return [at, _located(ast.For(ast.Name(name, ast.Store()), loop, body, []), node.iter)]

    def visit_Break(self, node: ast.Break) -> Any:
        return [self.at(node), _located(ast.If(self.call(node, "break_"), [node], []), node)]

    def visit_Continue(self, node: ast.Continue) -> Any:
        return [self.at(node), _located(ast.If(self.call(node, "continue_"), [node], []), node)]

    def visit_Return(self, node: ast.Return) -> Any:
        at = self.at(node)
        node.value = self.call(node, "return_", self.expr(node.value) if node.value else _const(None))
        return [at, _located(node, node)]

    def visit_Assert(self, node: ast.Assert) -> Any:
        at = self.at(node)
        message = self.thunk(self.expr(node.msg)) if node.msg else _const(None)
        return [at, _located(ast.Expr(self.call(node, "assert_", self.truth(node.test), message)), node)]

    def visit_With(self, node: ast.With) -> Any:
        items, head = [], []
        for item in node.items:
            target = item.optional_vars
            spec = _const(_spec(target) if target is not None else None)
            context = self.call(item.context_expr, "with_", self.expr(item.context_expr), spec)
            if target is None:
                items.append(ast.withitem(context))
                continue
            name = self.temp()
            items.append(ast.withitem(context, ast.Name(name, ast.Store())))
            head += self.bind(target, _load(name, target))
        first = node.items[0].context_expr
        return [self.at(first), _located(ast.With(items, [*head, *self.block(node.body)]), first)]

    def visit_Match(self, node: Any) -> Any:
        node.subject = self.call(node.subject, "decide", self.expr(node.subject), _const(False))
        for case in node.cases:
            case.guard = case.guard and self.call(case.guard, "decide", self.truth(case.guard))
            case.body = self.block(case.body)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """A function in the kernel is a helper; a decorated one, as a T.macro, rewrites itself."""
        return node if node.decorator_list else self.light().generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return self.light().generic_visit(node)

    def light(self) -> Rewriter:
        from tilelang.tir_builder.rewrite_lightly import LightRewriter  # which derives from this class

        return LightRewriter(self.source, frozenset())

    def visit_Nonlocal(self, node: ast.Nonlocal) -> Any:
        raise errors.ShadowedControl(span=self.source.span(node), what="nonlocal")

    def visit_Global(self, node: ast.Global) -> Any:
        raise errors.ShadowedControl(span=self.source.span(node), what="global")

    def visit_Raise(self, node: ast.Raise) -> Any:
        self.generic_visit(node)
        return [self.at(node), _located(ast.Expr(self.call(node, "raise_")), node), node]

    # -- expressions ----------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load) or any(node.id in names for names in self.hidden):
            return node
        if node.id in self.watched:
            return self.call(node, "use", _const(node.id), node)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        name = node.target.id
        return _located(
            ast.NamedExpr(node.target, self.call(node, "assign", _const(name), self.expr(node.value))), node
        )

    def index(self, node: ast.expr) -> ast.expr:
        """An index as an expression: slices become `slice(...)` values."""
        if isinstance(node, ast.Tuple):
            return _located(ast.Tuple([self.index(e) for e in node.elts], ast.Load()), node)
        if isinstance(node, ast.Slice):
            parts = [self.expr(p) if p is not None else _const(None) for p in (node.lower, node.upper, node.step)]
            return self.call(node, "slice", *parts)
        return self.expr(node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return self.call(node, "getitem", self.expr(node.value), self.index(node.slice))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        if node.attr in _ATTRIBUTES and isinstance(node.ctx, ast.Load):
            return self.call(node, "attribute", node.value, _const(node.attr))
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
            self.generic_visit(node)
            node.func = self.call(node.func, "builtin", node.func)
            return node
        if isinstance(node.func, ast.Name) and node.func.id in _ITERATING:
            self.generic_visit(node)
            node.args = [a if isinstance(a, ast.Starred) else self.call(a, "iterable", a) for a in node.args]
            return node
        self.generic_visit(node)
        node.func = self.call(node.func, "callee", node.func)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        return self.call(node, "binary", _const(_BINARY[type(node.op)]), node.left, node.right)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        method = "and_" if isinstance(node.op, ast.And) else "or_"
        return self.call(node, method, *(self.thunk(self.expr(v)) for v in node.values))

    def truth(self, node: ast.expr) -> ast.expr:
        """An expression of which only the truth counts: `and` and `or` need not give one of their operands."""
        if not isinstance(node, ast.BoolOp):
            return self.expr(node)
        method = "both" if isinstance(node.op, ast.And) else "either"
        return self.call(node, method, *(self.thunk(self.truth(v)) for v in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.truth(node.operand) if isinstance(node.op, ast.Not) else self.expr(node.operand)
        return self.call(node, _UNARY[type(node.op)], operand)

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        ops = _const(tuple(_COMPARE[type(op)] for op in node.ops))
        return self.call(node, "compare", ops, node.left, *node.comparators)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        branches = (self.thunk(self.expr(node.body)), self.thunk(self.expr(node.orelse)))
        return self.call(node, "if_expression", self.truth(node.test), *branches)

    def visit_Starred(self, node: ast.Starred) -> Any:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self.call(node.value, "iterable", node.value)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        args = node.args
        every = (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
        return self.inside(node, frozenset(a.arg for a in every if a is not None))

    def _comprehension(self, node: Any) -> Any:
        names = (n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name))
        self.inside(node, frozenset(names))
        for generator in node.generators:
            generator.iter = self.call(generator.iter, "iterable", generator.iter)
        return node

    visit_ListComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return self.call(node, "members", self._comprehension(node))

    def visit_Set(self, node: ast.Set) -> Any:
        self.generic_visit(node)
        return self.call(node, "members", node)

    def inside(self, node: ast.AST, names: frozenset[str]) -> Any:
        self.hidden.append(names)
        self.generic_visit(node)
        self.hidden.pop()
        return node


def _located(node: Any, at: ast.AST) -> Any:
    return ast.copy_location(node, at)


def _const(value: Any) -> ast.expr:
    return ast.Constant(value)


def _load(name: str, at: ast.AST) -> ast.expr:
    return _located(ast.Name(name, ast.Load()), at)


def _store(name: str, value: ast.expr, at: ast.AST) -> ast.stmt:
    return _located(ast.Assign([_located(ast.Name(name, ast.Store()), at)], value), at)


def _spec(target: ast.expr) -> Any:
    """The names of a target: a string, a tuple of specs, or None for what has no name; `*x` becomes "*x"."""
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Starred):
        inner = _spec(target.value)
        return "*" + inner if isinstance(inner, str) else "*"
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(_spec(e) for e in target.elts)
    return None
