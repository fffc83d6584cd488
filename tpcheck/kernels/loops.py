"""The number of a loop in a kernel: compiled it is an int32 of Triton's, which may be cast and
overflows; as released, the interpreter has a number of Python's in its place."""

from __future__ import annotations

import ast
from typing import Any


def install(module: Any) -> None:
    """In one module of Triton's."""

    class Counting(module.ASTTransformer):
        """`for i in range(…):` begins with `i` made a tensor."""

        def visit_For(self, node: ast.For) -> ast.For:
            node = self.generic_visit(node)
            if isinstance(node.target, ast.Name) and _counts(node.iter):
                own = ast.Name(node.target.id, ast.Store())
                made = super().visit_Assign(ast.Assign([own], ast.Name(own.id, ast.Load())))
                node.body.insert(0, ast.copy_location(made, node))
            return node

    module.FunctionRewriter.ast_transformer = Counting()


def _counts(iterated: ast.expr) -> bool:
    """Whether it is `range(…)`, or `tl.range(…)`; the number of a `static_range` is a constant."""
    called = iterated.func if isinstance(iterated, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name == "range"
