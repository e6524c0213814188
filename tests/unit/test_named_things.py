"""What docstrings and imports name is there, also in files that only the longest tier runs."""

import ast
import builtins
import gc
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.unit.test_conventions import MODULES, ROOT

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FOREIGN = {
    "HF_HOME",
    "MultiTurnSFTDataset",
    "XMLSyntaxError",
    "assistant_only_loss",
    "houston_recorder_up",
    "old_log_probs",
    "token_truncate",
}
"""Names of other projects' code, and one that is put together."""
FOREIGN_MODULES = {"tokenizers", "renderers"}
FILE_ENDINGS = {"py", "toml", "db", "json", "jsonl", "log"}
RAISED = re.compile(r"Raises\s+((?:[A-Z][\w.]*)(?:(?:,\s+(?:and\s+)?|\s+and\s+)[A-Z][\w.]*)*)")
QUOTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`")


def words_of(tree: ast.AST) -> set[str]:
    """Every name in the code of a module, and every word of its one-line texts."""
    words: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                words.add(name)
            case ast.AsyncFunctionDef(name=name) | ast.Name(id=name) | ast.Attribute(attr=name):
                words.add(name)
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                words.add(name)
            case ast.alias(name=name, asname=other):
                words.add((other or name).rpartition(".")[2])
            case ast.Constant(value=str(text)) if "\n" not in text:
                words.update(re.findall(r"[A-Za-z_]\w*", text))
    return words


def docstrings(tree: ast.Module) -> list[str]:
    """Those of the module, its classes and its functions."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, *DEFINITIONS))]
    return [text for node in nodes if (text := ast.get_docstring(node))]


def test_what_a_docstring_names_exists() -> None:
    gc.disable()  # which would look through all trees again and again, and find nothing
    try:
        trees = {file: ast.parse(file.read_text()) for file in MODULES}
    finally:
        gc.enable()
    by_stem: defaultdict[str, set[str]] = defaultdict(set)
    for file, tree in trees.items():
        by_stem[file.stem] |= words_of(tree)
    folders = {file.parent.name for file in MODULES}
    every = set().union(*by_stem.values(), by_stem, folders, dir(builtins), FOREIGN)

    def is_there(name: str) -> bool:
        first, *rest = name.split(".")
        if not rest:
            return name in every or not (name[0].isupper() or "_" in name)
        if first in FOREIGN_MODULES or rest[-1] in FILE_ENDINGS:
            return True
        if first in by_stem:
            return rest[0] in by_stem[first]
        return first in folders or not rest[-1][0].isupper()

    gone: set[tuple[Path, str]] = set()
    for file, tree in trees.items():
        for text in docstrings(tree):
            raised = [re.split(r",?\s+(?:and\s+)?", m) for m in RAISED.findall(text)]
            names = [name.rstrip(".") for group in raised for name in group]
            gone |= {(file.relative_to(ROOT), n) for n in names if n.split(".")[-1] not in every}
            gone |= {(file.relative_to(ROOT), n) for n in QUOTED.findall(text) if not is_there(n)}
    assert not sorted(gone)


ROOMS = {
    "houston_console": ROOT / "console",
    "houston_daemon": ROOT / "daemon",
    "houston_shared": ROOT / "shared",
    "tests": ROOT,
    "bench": ROOT,
}


@cache
def importable(module: str) -> set[str]:
    """What can be imported from a module of ours: what it binds outside its functions and classes,
    or what lies in its folder. Empty where the module is not there."""
    base = ROOMS[module.partition(".")[0]].joinpath(*module.split("."))
    names = {path.stem for path in base.glob("*") if path.is_dir() or path.suffix == ".py"}
    sources = [file for file in (base.with_suffix(".py"), base / "__init__.py") if file.exists()]
    nodes: list[ast.AST] = [ast.parse(file.read_text()) for file in sources]
    while nodes:
        match nodes.pop():
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name.partition(".")[0])
            case node:
                nodes += ast.iter_child_nodes(node)
    return names


def test_what_an_import_names_exists() -> None:
    """The type checker sees to the product's; a file that only the slow tier imports fails late."""
    files = [file for room in ("tests", "bench", "docs") for file in (ROOT / room).rglob("*.py")]
    gc.disable()
    try:
        gone = [
            f"{file.relative_to(ROOT)}:{node.lineno} {node.module}.{alias.name}"
            for file in files
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ImportFrom) and not node.level and node.module
            if node.module.partition(".")[0] in ROOMS
            for alias in node.names
            if alias.name not in importable(node.module)
        ]
    finally:
        gc.enable()
    assert not gone
