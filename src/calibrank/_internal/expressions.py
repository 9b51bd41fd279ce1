"""Read the text of a value, such as `Gaussian() + Level('country')`: calls, sums and constants."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from calibrank._internal.arguments import shown
from calibrank.errors import DataError

_LONGEST = 10_000
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.MatMult: operator.matmul,
}


def parse_value(what: str, text: str, members: Mapping[str, Callable[..., Any]]) -> Any:
    """The value that the text stands for; only the given members are called, nothing else runs.

    >>> parse_value("a total", "total((1, 2))", {"total": sum})
    3
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise DataError(what, "be a short text", shown(text))
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _value(tree.body, members)
    except DataError as error:
        raise DataError(what, "be valid", f"{shown(text)}: {error}") from None
    except (SyntaxError, ValueError, TypeError, RecursionError):
        known = ", ".join(members)
        raise DataError(
            what, f"be made of {known}", shown(text), f"Write e.g. {next(iter(members))}()."
        ) from None


def _value(node: ast.expr, members: Mapping[str, Callable[..., Any]]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, members)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple([_value(each, members) for each in node.elts])
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, members), _value(node.right, members)
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Name) and node.id in members:
        return members[node.id]()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in members:
        arguments = [_value(each, members) for each in node.args]
        named = {str(each.arg): _value(each.value, members) for each in node.keywords}
        return members[node.func.id](*arguments, **named)
    raise ValueError(ast.dump(node))
