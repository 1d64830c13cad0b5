"""Mechanical mutants of a solution: each a small change that a hurried author could have made."""

import ast
from collections.abc import Iterator

SWAPS = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.FloorDiv,),
}
COMPARE = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
REDUCED = ("mean", "max", "min")


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """Yield (description, text) of every mutant whose text differs from the solution's."""
    tree = ast.parse(text)
    seen = {ast.unparse(tree)}
    for scope, holder, field, index in list(sited(tree)):
        old = get(holder, field, index)
        before = ast.unparse(old).splitlines()[0]
        for new in list(alternatives(old)):
            put(holder, field, index, new)
            result = ast.unparse(ast.fix_missing_locations(tree))
            put(holder, field, index, old)
            if result not in seen:
                seen.add(result)
                yield f"{scope}: {before} -> {ast.unparse(new).splitlines()[0]}", result


def sited(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.AST, str, int | None]]:
    """Yield (scope, holder, field, index) of every node inside a function body."""
    for holder in ast.iter_child_nodes(tree):
        if isinstance(holder, ast.ClassDef | ast.FunctionDef):
            name = f"{scope}.{holder.name}".lstrip(".")
            if isinstance(holder, ast.FunctionDef):
                yield from inside(holder, "body", name)
            else:
                yield from sited(holder, name)


def inside(holder: ast.AST, field: str, scope: str) -> Iterator:
    value = getattr(holder, field)
    for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
        if not isinstance(node, ast.AST) or is_docstring(node):
            continue
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield from sited(ast.Module([node], []), scope)
            continue
        if isinstance(node, ast.expr | ast.stmt):
            yield scope, holder, field, index
        for name in node._fields:
            if name not in ("ctx", "annotation", "targets", "func", "op", "ops"):
                yield from inside(node, name, scope)
            elif name == "func" and isinstance(node.func, ast.Attribute):
                yield from inside(node.func, "value", scope)


def is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def get(holder, field, index):
    value = getattr(holder, field)
    return value if index is None else value[index]


def put(holder, field, index, node):
    if index is None:
        setattr(holder, field, node)
    else:
        getattr(holder, field)[index] = node


def alternatives(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return):
        yield ast.Pass()
    if isinstance(node, ast.If):
        yield from (ast.If(ast.Constant(value), node.body, node.orelse) for value in (True, False))
    if isinstance(node, ast.BinOp):
        yield node.left
        yield node.right
        for swap in SWAPS.get(type(node.op), ()):
            yield ast.BinOp(node.left, swap(), node.right)
    if isinstance(node, ast.UnaryOp):
        yield node.operand
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for swap in COMPARE.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [swap()], node.comparators)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield from (ast.Constant(node.value + step) for step in (1, -1))
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    if isinstance(node, ast.Attribute) and node.attr in ("size", "rank"):
        for op in (ast.Add(), ast.Sub()):
            yield ast.BinOp(node, op, ast.Constant(1))
        other = {"size": "rank", "rank": "size"}[node.attr]
        yield ast.Attribute(node.value, other, ast.Load())
    if isinstance(node, ast.Attribute) and node.attr == "T":
        yield node.value
    if isinstance(node, ast.Tuple) and len(node.elts) > 1 and isinstance(node.ctx, ast.Load):
        yield ast.Tuple([*node.elts[1:], node.elts[0]], ast.Load())
    if isinstance(node, ast.Call):
        yield from node.args[:1]  # the call is left out
        if len(node.args) > 1:
            first, second, *rest = node.args
            yield ast.Call(node.func, [second, first, *rest], node.keywords)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "all_reduce":
            for op in REDUCED:
                yield ast.Call(node.func, node.args, [ast.keyword("op", ast.Constant(op))])
        for i, keyword in enumerate(node.keywords):
            others = node.keywords[:i] + node.keywords[i + 1 :]
            if keyword.arg is not None:
                yield ast.Call(node.func, node.args, others)
