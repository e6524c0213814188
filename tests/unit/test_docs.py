"""What pages and comments refer to is there: pages, headings, modules, functions, files."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.tiers import (
    PROMISES,
    long_tests,
    measured_long_tests,
    promise_scenarios,
    promise_tests,
)

ROOT = Path(__file__).parents[2]
TREES = {"houston_console": "console", "houston_daemon": "daemon", "houston_shared": "shared"}
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "trajectories" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
NAMED = [ROOT / "docs" / name for name in ("design.md", "glossary.md")]
CODE_SUFFIXES = {".py", ".sql", ".toml"}
MAX_HOPS = 15
MAX_WALKS = 2
DOC_REFERENCE = re.compile(r"(?<![\w/.-])docs/([\w-]+\.md)(?:#([\w-]+))?")
LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"houston_\w+(?:\.\w+)*|[a-z_]\w*(?:\.\w+)+")
FILE_NAME = re.compile(r"[\w./-]+\.(?:toml|json|jsonl|db|md|py|sql|txt|zst|log)")


@cache
def headings(page: Path) -> frozenset[str]:
    """Anchors of a page as GitHub makes them; a repeated heading has a number."""
    counts: dict[str, int] = {}
    anchors = set()
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        again = counts.get(slug, 0)
        counts[slug] = again + 1
        anchors.add(f"{slug}-{again}" if again else slug)
    return frozenset(anchors)


def broken(page: Path, anchor: str) -> bool:
    """Whether a reference leads nowhere."""
    return not page.exists() or bool(anchor and anchor not in headings(page))


def code_files() -> list[Path]:
    """Code whose comments and help may refer to pages; packaged tasks have docs of their own."""
    return [
        file
        for room in (*TREES.values(), "tests", "bench", "docs")
        for file in sorted((ROOT / room).rglob("*"))
        if file.suffix in CODE_SUFFIXES
        and "demo/tasks" not in file.as_posix()
        and file.name != "rule_cases.toml"  # commands of agents that read docs of their own
        and "tests/support/research" not in file.as_posix()
    ]


def dangling_references(file: Path) -> list[str]:
    """Pages and headings of docs/ that a file names and that are not there."""
    return [
        f"{file.relative_to(ROOT)}: docs/{page}{'#' * bool(anchor)}{anchor}"
        for page, anchor in DOC_REFERENCE.findall(file.read_text())
        if broken(ROOT / "docs" / page, anchor)
    ]


def test_references_from_code_lead_to_a_page_and_a_heading() -> None:
    assert [reference for file in code_files() for reference in dangling_references(file)] == []


def test_no_comment_cites_a_design_outside_the_repository() -> None:
    cited = re.compile(r"DESIGN(?:\.md| §)")
    files = [file for file in code_files() if file != Path(__file__)]
    assert [str(file) for file in files if cited.search(file.read_text())] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    wrong = dangling_references(page)
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        if broken((page.parent / path).resolve() if path else page, anchor):
            wrong.append(target)
    assert wrong == []


@cache
def parsed(file: Path) -> ast.Module:
    """A module, not imported."""
    return ast.parse(file.read_text())


def module_file(name: str) -> Path | None:
    """The file of a module or package with this dotted name; None where there is none."""
    top, *rest = name.split(".")
    if top not in TREES:
        return None
    path = ROOT.joinpath(TREES[top], top, *rest)
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


def names_of(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What a module or class defines, by name."""
    names: dict[str, ast.stmt] = {}
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names[statement.name] = statement
            case ast.Assign(targets=targets):
                names |= {node.id: statement for node in targets if isinstance(node, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names[name] = statement
    return names


def definition(dotted: str) -> ast.AST | None:
    """What `module`, `module.name` or `module.Class.name` is; None where it is not there."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        file = module_file(".".join(parts[:length]))
        if file is None:
            continue
        node: ast.AST | None = parsed(file)
        for name in parts[length:]:
            body = node.body if isinstance(node, ast.Module | ast.ClassDef) else []
            node = names_of(body).get(name)
        return node
    return None


def is_defined(dotted: str) -> bool:
    """Whether it is there."""
    return definition(dotted) is not None


def is_function(dotted: str) -> bool:
    """Whether it is a function or a method."""
    return isinstance(definition(dotted), ast.FunctionDef | ast.AsyncFunctionDef)


@pytest.mark.parametrize(
    ("dotted", "defined"),
    [
        ("houston_shared.home", True),
        ("houston_shared.home.Home", True),
        ("houston_shared.home.Home.key", True),
        ("houston_shared.home.Home.nothing", False),
        ("houston_shared.home.nothing", False),
        ("houston_shared.nothing", False),
        ("houston_daemon.recorder", True),
        ("houston_nowhere.home", False),
        ("guidance_delivery.deliver_guidance", False),
    ],
)
def test_a_name_that_is_wrong_is_found(dotted: str, defined: bool) -> None:
    assert is_defined(dotted) is defined


@pytest.mark.parametrize("page", NAMED, ids=lambda page: page.name)
def test_modules_and_functions_that_pages_name_exist(page: Path) -> None:
    quoted = QUOTED.findall(page.read_text())
    dotted = {name for name in quoted if DOTTED.fullmatch(name) and not FILE_NAME.fullmatch(name)}
    assert dotted
    assert sorted(name for name in dotted if not is_defined(name)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_modules_and_files_that_pages_name_exist(page: Path) -> None:
    quoted = QUOTED.findall(page.read_text())
    modules = re.compile(r"houston_(?:console|daemon|shared)(?:\.\w+)*")
    paths = re.compile(r"(?:console|daemon|shared|tests|bench|docs)/[\w./-]*\w/?")
    wrong = [name for name in quoted if modules.fullmatch(name) and not is_defined(name)]
    wrong += [name for name in quoted if paths.fullmatch(name) and not (ROOT / name).exists()]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_imports_that_pages_show_exist(page: Path) -> None:
    shown = re.findall(r"^from (houston_[\w.]+) import (.+)$", page.read_text(), re.MULTILINE)
    imported = {f"{module}.{name}" for module, names in shown for name in names.split(", ")}
    own = {name for name in imported if name.partition(".")[0] in TREES}
    assert sorted(name for name in own if not is_defined(name)) == []


def test_every_line_of_the_glossary_names_its_module() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    rows = [
        line for line in lines if line.startswith("| ") and line != "| term | meaning | module |"
    ]
    assert rows
    wrong = [row for row in rows if not re.search(r"\| `houston_[\w.]+` \|$", row)]
    assert wrong == []
    sections = "\n".join(lines).split("\n## ")[1:]
    for section in sections:
        terms = [row.split(" | ")[0] for row in section.splitlines() if row in rows]
        assert terms == sorted(terms, key=str.casefold), section.partition("\n")[0]


def walks() -> dict[str, list[str]]:
    """The walks of the design, by title: the function of each hop."""
    text = (ROOT / "docs" / "design.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {
        title: re.findall(r"^\d+\. `([\w.]+)` ", body, flags=re.MULTILINE)
        for title, _, body in (section.partition("\n") for section in sections)
        if title.startswith("Walk: ")
    }


def test_walks_are_short_and_pass_functions_that_exist() -> None:
    pages = walks()
    assert len(pages) == MAX_WALKS
    for title, hops in pages.items():
        numbered = re.findall(r"^(\d+)\. ", section_of(title), flags=re.MULTILINE)
        assert [int(number) for number in numbered] == list(range(1, len(hops) + 1)), title
        assert 5 <= len(hops) <= MAX_HOPS, title
        assert [hop for hop in hops if not is_function(hop)] == [], title


def section_of(title: str) -> str:
    """The text of a section of the design."""
    text = (ROOT / "docs" / "design.md").read_text()
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def is_slow(node: ast.expr) -> bool:
    return ast.unparse(node) == "pytest.mark.slow"


def quick_tests(file: Path) -> list[str]:
    """Tests of a file that `make test` runs, some of their cases at least."""
    tree = ast.parse(file.read_text())
    of_all = [
        mark
        for line in tree.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "pytestmark"
        for mark in (line.value.elts if isinstance(line.value, ast.List) else [line.value])
    ]
    return [
        test.name
        for test in tree.body
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef)
        and test.name.startswith("test_")
        and not any(map(is_slow, (*test.decorator_list, *of_all)))
    ]


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row[2:50])
def test_every_promise_has_a_scenario_in_make_test(row: str) -> None:
    """What is marked `slow` is left to `make test-all`; unit and console tests are all run."""
    files = promise_tests(row)
    quick = {name: file for file in files for name in quick_tests(file)}
    assert [name for name in promise_scenarios(row) if name not in quick] == []
    whole = [file for file in quick.values() if {"unit", "console"} & set(file.parts)]
    assert promise_scenarios(row) or whole, "no scenario of it is run"


def test_what_make_check_leaves_out_is_there() -> None:
    gone = [name for file, name in long_tests() if f"def {name}(" not in file.read_text()]
    assert long_tests() and not gone, f"measure anew, as tests/support/tiers.py says: {gone}"


def test_long_tests_are_read_from_what_pytest_prints() -> None:
    printed = """\
============================= slowest durations ==============================
2.00s call     tests/console/test_a.py::test_in_sizes[80-wide]
0.50s setup    tests/console/test_a.py::test_in_sizes[80-wide]
0.60s call     tests/console/test_a.py::test_in_sizes[a name]
3.01s call     tests/unit/store/test_b.py::TestOpening::test_in_a_class
2.99s call     tests/unit/store/test_b.py::test_short
9.00s call     tests/unit/test_docs.py::test_of_the_repository

(2 durations < 0.005s hidden.)
"""
    assert measured_long_tests(printed.splitlines()) == [
        "tests/console/test_a.py::test_in_sizes",
        "tests/unit/store/test_b.py::test_in_a_class",
    ]
