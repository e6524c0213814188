"""Runs code like a cell of a notebook, as a separate program, because an agent wrote it.

    python -I -S python_child.py MEMORY_MB PACKAGE,… FOLDER…

The code is in HOUSTON_CODE. What it prints, and the value of a bare last expression, go to stdout;
stderr gets one JSON object, empty when the code ran to its end: `error_type`, `message`,
`traceback`. Only the named packages are found, in the folders; no other installed ones.
Imports nothing of Houston, and knows neither workspace nor agent. Modules that only some code needs
are imported then, which saves half of a call's time.
"""

from __future__ import annotations

import _ast
import os
import resource
import sys
import types

TYPE_CHECKING = False  # as a type checker reads it; `typing` itself is slow to import
if TYPE_CHECKING:
    from typing import Any

NAME = "<code>"
_FENCE = r"\A\s*```[ \t]*[\w+-]*[ \t]*\n(.*?)\n?[ \t]*```\s*\Z"
_FILE_BYTES = 256 << 20
_MESSAGE = 2_000
_FIRST, _LAST = 10, 30
"""Lines of a traceback that are kept."""


class Packages:
    """Finds the named packages in their folders."""

    def __init__(self, names: list[str], folders: list[str]) -> None:
        self._names, self._folders = frozenset(names), folders

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """See importlib.abc.MetaPathFinder."""
        if path is not None or name not in self._names:
            return None
        import importlib.machinery

        return importlib.machinery.PathFinder.find_spec(name, self._folders)


def normalize_code(code: str) -> str:
    """The code without a fence around it, and without wrong indentation.

    Code that can be parsed as it is loses only its fence.
    """
    if "```" in code:
        import re

        fenced = re.match(_FENCE, code, re.DOTALL)
        code = fenced[1] if fenced else code
    if _parses(code):
        return code
    import textwrap

    first, _, rest = code.lstrip("\n").partition("\n")
    dedented = textwrap.dedent(code)
    apart = f"{first.lstrip()}\n{textwrap.dedent(rest)}"
    return apart if not _parses(dedented) and _parses(apart) else dedented


def _parses(code: str) -> bool:
    try:
        compile(code, NAME, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def run(code: str) -> None:
    """Run it as `__main__`; print the value of a bare last expression that ends in no semicolon."""
    if "traceback" in code:
        _register_source(code)
    tree: Any = compile(code, NAME, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    last = tree.body[-1] if tree.body else None
    is_shown = isinstance(last, _ast.Expr) and not code.rstrip().endswith(";")
    if is_shown:
        tree.body.pop()
    exec(compile(tree, NAME, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 what this program is for
    if is_shown:
        value = eval(  # noqa: S307
            compile(_ast.Expression(last.value), NAME, "eval", dont_inherit=True),  # type: ignore[union-attr]
            main.__dict__,
        )
        if value is not None:
            print(repr(value))  # noqa: T201


def outcome(code: str, hidden: list[str]) -> dict[str, Any]:
    """Run the code; what became of it. hidden: folders whose names a traceback leaves out."""
    code = normalize_code(code)
    try:
        run(code)
    except SystemExit as end:
        if end.code in (None, 0):
            return {}
        return _error_report(end, code, hidden)
    except BaseException as problem:  # noqa: BLE001 the error is what is asked for
        return _error_report(problem, code, hidden)
    return {}


def _register_source(code: str) -> None:
    """Let tracebacks show the lines of the code."""
    import linecache

    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)


def _error_report(problem: BaseException, code: str, hidden: list[str]) -> dict[str, Any]:
    import traceback

    _register_source(code)
    trace = problem.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    formatted = traceback.TracebackException(type(problem), problem, trace, compact=True)
    text = "".join(formatted.format())
    for folder in hidden:
        text = text.replace(f"{folder}/", "")
    lines = text.rstrip("\n").split("\n")
    if len(lines) > _FIRST + _LAST:
        left_out = f"  [… {len(lines) - _FIRST - _LAST} lines …]"
        lines = [*lines[:_FIRST], left_out, *lines[-_LAST:]]
    return {
        "error_type": type(problem).__name__,
        "message": _words(problem)[:_MESSAGE],
        "traceback": [line[:_MESSAGE] for line in lines],
    }


def _words(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception as worse:  # noqa: BLE001 its own __str__ is the agent's
        return f"(its text raised {type(worse).__name__})"


def _json(report: dict[str, Any]) -> str:
    import json

    return json.dumps(report)


def _limit(megabytes: int) -> None:
    for kind, limit in (
        (resource.RLIMIT_AS, megabytes << 20),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(kind)
        least = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (least, least))


def _wait_for_threads() -> None:
    threading = sys.modules.get("threading")
    if threading is None:
        return
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def main() -> None:
    """Run what the environment holds, and report on what was stderr."""
    report = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(1, 2)
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    megabytes, packages, *folders = sys.argv[1:]
    code, own = os.environ.pop("HOUSTON_CODE"), os.getpid()
    sys.argv = [NAME]
    sys.meta_path.append(Packages(packages.split(","), folders))
    hidden = [*folders, os.path.dirname(os.__file__)]  # noqa: PTH120
    _limit(int(megabytes))
    error = outcome(code, hidden)
    try:
        _wait_for_threads()
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception as problem:  # noqa: BLE001 what the code did to its own streams
        error = error or {"error_type": type(problem).__name__, "message": "at the end of the code"}
    if os.getpid() == own:  # not a process that the code forked
        report.write(_json(error) if error else "{}")
        report.flush()
    os._exit(bool(error))


if __name__ == "__main__":
    main()
