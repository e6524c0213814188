"""Measures the house: files, lines, functions, importers, stems used twice, import circles.

`make size` prints the figures of this checkout and keeps them in bench/results/size.json;
`python bench/size.py --commit C` measures another commit beside it, by the same rules, and keeps
both. Times of the tiers are what `make` noted when each last passed here (`--tier`, .tiers.json).
It reads sources with ast and runs none of them.
"""

import argparse
import ast
import io
import json
import statistics
import subprocess
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREES = ("console", "daemon", "shared")
RESULTS = ROOT / "bench" / "results"
TIERS = ROOT / ".tiers.json"
DELIBERATE = {"__init__", "__main__", "protocol"}
"""Stems that several modules share on purpose."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """One file of the product. `imports` are names of modules of the product."""

    path: str
    lines: int
    code: int
    functions: dict[str, int]
    is_entry: bool
    imports: set[str] = field(default_factory=set)


def main() -> None:
    """Print the figures of this checkout, and of another commit where one is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commit", help="measure this commit too")
    parser.add_argument(
        "--tier", nargs=2, metavar=("NAME", "SECONDS"), help="only note how long a tier took"
    )
    arguments = parser.parse_args()
    if arguments.tier:
        _note_tier(*arguments.tier)
        return
    commit = arguments.commit
    figures = {"now": measure(ROOT)}
    if commit:
        with tempfile.TemporaryDirectory() as folder:
            _unpack(commit, Path(folder))
            figures[commit] = measure(Path(folder))
    if TIERS.exists():
        figures["seconds of each tier"] = json.loads(TIERS.read_text())
    text = json.dumps(figures, indent=2)
    (RESULTS / "size.json").write_text(text + "\n")
    print(text)


def _note_tier(name: str, seconds: str) -> None:
    """Keep how long a tier of tests took, set-up included, when it last passed in this checkout."""
    times = json.loads(TIERS.read_text()) if TIERS.exists() else {}
    TIERS.write_text(json.dumps({**times, name: int(seconds)}) + "\n")


def measure(root: Path) -> dict[str, object]:
    """Return the figures of a checkout. Lines of functions include their docstrings."""
    modules = dict(_modules(root))
    for name, module in modules.items():
        tree = ast.parse((root / module.path).read_text())
        module.imports = set(_imports(tree, modules)) - {name}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, module in modules.items():
        for imported in module.imports:
            importers[imported].add(name)
    plain = {name: m for name, m in modules.items() if not name.endswith("__init__")}
    stems = Counter(name.rsplit(".", 1)[-1] for name in plain)
    twice = {stem for stem, count in stems.items() if count > 1} - DELIBERATE
    functions = {
        f"{module.path}:{function}": length
        for module in modules.values()
        for function, length in module.functions.items()
    }
    lines = [module.lines for module in plain.values()]
    longest = max(plain.values(), key=lambda module: module.lines)
    longest_function = max(functions, key=functions.__getitem__)
    alone = [n for n, m in plain.items() if len(importers[n]) == 1 and not m.is_entry]
    return {
        "files": len(modules),
        "lines": sum(module.lines for module in modules.values()),
        "code lines": sum(module.code for module in modules.values()),
        "lines by tree": _by_tree(modules),
        "median file": statistics.median(lines),
        "longest file": [longest.path, longest.lines],
        "median function": statistics.median(functions.values()),
        "longest function": [longest_function, functions[longest_function]],
        "functions over 40 lines": sum(length > 40 for length in functions.values()),
        "files with one importer": len(alone),
        "files whose stem is used twice": sum(stems[stem] for stem in twice),
        "import circles": [sorted(circle) for circle in _circles(modules)],
        "deepest folder": max(module.path.count("/") for module in modules.values()),
        "test files": len(list((root / "tests").rglob("*.py"))),
        "test lines": sum(_count(path) for path in (root / "tests").rglob("*.py")),
    }


def _modules(root: Path) -> Iterator[tuple[str, Module]]:
    """Every module of the product. Packaged tasks are what agents are given: no modules."""
    for tree in TREES:
        for path in sorted((root / tree).rglob("*.py")):
            inside = path.relative_to(root / tree)
            if inside.parts[1:3] == ("demo", "tasks") or inside.parts[0] == "houston_tasks":
                continue
            source = path.read_text()
            parsed = ast.parse(source)
            name = ".".join(inside.with_suffix("").parts)
            functions = {
                f"{node.name}:{node.lineno}": (node.end_lineno or 0) - node.lineno + 1
                for node in ast.walk(parsed)
                if isinstance(node, Function)
            }
            is_entry = '__name__ == "__main__"' in source or path.stem.startswith("__")
            code = _code_lines(source, parsed)
            where = str(path.relative_to(root))
            yield name, Module(where, source.count("\n"), code, functions, is_entry)


def _code_lines(source: str, parsed: ast.Module) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    described = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
            first = node.body[0]
            described.update(range(first.lineno, (first.end_lineno or 0) + 1))
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in described
        for number, line in enumerate(source.splitlines(), 1)
    )


def _imports(parsed: ast.Module, modules: dict[str, Module]) -> Iterator[str]:
    """Names of modules of the product that a module imports, inside functions too."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            candidates = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            symbols = [name for name in inner if name not in modules]
            candidates = [*inner, *([node.module] if symbols else [])]
        else:
            continue
        for name in candidates:
            if name in modules:
                yield name
            elif f"{name}.__init__" in modules:
                yield f"{name}.__init__"


def _circles(modules: dict[str, Module]) -> list[set[str]]:
    """Groups of modules that import each other (Tarjan 1972), those of one module left out."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for imported in modules[name].imports:
            if imported not in order:
                visit(imported)
                low[name] = min(low[name], low[imported])
            elif imported in stack:
                low[name] = min(low[name], order[imported])
        if low[name] == order[name]:
            circle = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            if len(circle) > 1:
                circles.append(circle)

    for name in modules:
        if name not in order:
            visit(name)
    return circles


def _by_tree(modules: dict[str, Module]) -> dict[str, int]:
    lines: Counter[str] = Counter()
    for module in modules.values():
        lines["/".join(module.path.split("/")[:2])] += module.lines
    return dict(lines)


def _count(path: Path) -> int:
    return path.read_text().count("\n")


def _unpack(commit: str, folder: Path) -> None:
    """Write the tree of a commit into a folder."""
    command = ["git", "-C", str(ROOT), "archive", commit]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


if __name__ == "__main__":
    main()
