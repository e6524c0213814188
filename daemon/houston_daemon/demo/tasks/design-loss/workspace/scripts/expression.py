"""Arithmetic in one line, as text: what a submission may say, and nothing that could run anything.

Numbers, the given names, + - * / **, comparisons, `a if c else b`, and the functions below.
"""

import ast
import math
from collections.abc import Callable, Collection
from types import CodeType

MOST_CHARACTERS = 600
FUNCTIONS: dict[str, Callable[..., float]] = {
    "abs": abs, "min": min, "max": max, "exp": math.exp, "log": math.log, "sqrt": math.sqrt,
}  # fmt: skip
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.BoolOp, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq,
    ast.NotEq, ast.And, ast.Or, ast.Not, ast.Load,
)  # fmt: skip
Formula = Callable[..., float]


def formula(text: str, names: Collection[str]) -> Formula:
    """The expression as a function of its names. Raises ValueError with a sentence."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it is longer than {MOST_CHARACTERS} characters")
    try:
        tree = ast.parse(" ".join(text.split()), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("it is no arithmetic expression") from None
    for node in ast.walk(tree):
        _check(node, names)
    return _bounded(compile(tree, "expression", "eval"))


def _check(node: ast.AST, names: Collection[str]) -> None:
    if isinstance(node, ast.Constant):
        if type(node.value) not in (int, float) or abs(node.value) > 1e6:
            raise ValueError(f"{node.value!r} is no number of a usual size")
        node.value = float(node.value)  # powers of whole numbers have no end
    elif isinstance(node, ast.Name):
        if node.id not in names and node.id not in FUNCTIONS:
            raise ValueError(f"there is no {node.id!r}; the names are {', '.join(sorted(names))}")
    elif isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords:
            raise ValueError(f"the functions are {', '.join(FUNCTIONS)}")
    elif not isinstance(node, _NODES):
        raise ValueError(f"{type(node).__name__} is not allowed")


def _bounded(code: CodeType) -> Formula:
    space = {"__builtins__": {}, **FUNCTIONS}

    def value(**names: float) -> float:
        """Raises ValueError where the expression has no finite value."""
        try:
            found = float(eval(code, space, names))  # noqa: S307  only what _check let through
        except (ArithmeticError, ValueError, TypeError) as problem:
            raise ValueError(f"it has no value at {_at(names)}: {problem}") from None
        if not math.isfinite(found):
            raise ValueError(f"it is not finite at {_at(names)}")
        return found

    return value


def _at(names: dict[str, float]) -> str:
    return ", ".join(f"{name}={value:.3g}" for name, value in names.items())
