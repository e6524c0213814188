"""Runs a program on the input of one test, as a separate program, because an agent wrote it.

    python -I -S hidden_tests_child.py INPUT_FILE [FUNCTION]

The program is in HOUSTON_CODE. It gets what LiveCodeBench's own evaluator provides: the names of
common modules, a deep recursion limit, and tuples that count as lists. Without FUNCTION it reads
the input from stdin. With one, each line of the input is an argument as JSON; the function, or the
method of that name in a class `Solution`, is called, and its return value is written as JSON after
a marker line. The expected output is not here: the program could read it. Imports nothing of
Houston.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

TYPE_CHECKING = False  # as a type checker reads it; `typing` itself is slow to import
if TYPE_CHECKING:
    from typing import Any

RESULT_LINE = "--- houston result ---"
_MODULES = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random",
    "statistics", "itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
"""Imported as they are and by all their names, later ones over earlier ones."""
_RECURSION = 50_000


def _names() -> dict[str, Any]:
    names: dict[str, Any] = {}
    modules = {name: importlib.import_module(name) for name in _MODULES}
    for module in modules.values():
        public = getattr(module, "__all__", [name for name in dir(module) if name[0] != "_"])
        names.update((name, getattr(module, name)) for name in public)
    return {**names, **modules, "__name__": "__main__"}


def main() -> None:
    """Run it."""
    code = compile(os.environ["HOUSTON_CODE"], "<answer>", "exec", dont_inherit=True)
    sys.setrecursionlimit(_RECURSION)
    space, called = _names(), sys.argv[2:]
    descriptor = os.open(sys.argv[1], os.O_RDONLY)
    os.dup2(descriptor, 0)  # some programs read the descriptor, not sys.stdin
    sys.argv = ["<answer>"]
    if not called:
        exec(code, space)  # noqa: S102  # this is what it is for
        return
    arguments = [json.loads(line) for line in sys.stdin.read().split("\n") if line.strip()]
    exec(code, space)  # noqa: S102
    owner = space.get("Solution")
    function = getattr(owner(), called[0]) if callable(owner) else space[called[0]]
    sys.stdout.write(f"\n{RESULT_LINE}\n{json.dumps(function(*arguments))}\n")


if __name__ == "__main__":
    main()
