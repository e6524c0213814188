"""The house rules that a linter does not know: room sizes, words, light commands, true docs."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from houston_daemon.training.export.export_run import FORMATS
from houston_shared.command import COMMANDS

ROOT = Path(__file__).parents[2]
MODULES = [
    file
    for room in ("console", "daemon", "shared")
    for file in (ROOT / room).rglob("*.py")
    if "demo/tasks" not in str(file)
]


def test_modules_are_small_and_say_what_they_know() -> None:
    sizes = {file: len(file.read_text().splitlines()) for file in MODULES}
    assert not {str(f): n for f, n in sizes.items() if n > 600}
    assert not [str(f) for f in MODULES if not ast.get_docstring(ast.parse(f.read_text()))]


def test_no_module_is_a_drawer() -> None:
    assert not [str(f) for f in MODULES if f.stem in {"utils", "helpers", "manager", "misc"}]


HELPS = """
import json
from houston_shared.command import COMMANDS, main

for command in COMMANDS:
    try:
        code = main([*command.words, "--help"])
    except SystemExit as end:
        code = end.code
    print(json.dumps([command.words, int(code or 0)]) + "\\0", flush=True)
"""


def test_every_command_exists_and_has_help() -> None:
    run = subprocess.run([sys.executable, "-c", HELPS], capture_output=True, text=True, check=True)
    *helps, _ = run.stdout.split("\0")
    for command, output in zip(COMMANDS, helps, strict=True):
        text, _, ended = output.rstrip().rpartition("\n")
        assert json.loads(ended) == [list(command.words), 0], (command, run.stderr)
        assert command.help in " ".join(text.split())


IMPORTS = """
import importlib, json, sys

seen = set()
for module in sys.argv[1:]:
    importlib.import_module(module)
    print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - seen})))
    seen = set(sys.modules)
"""


def brought(*modules: str) -> dict[str, set[str]]:
    """Top-level packages that each module brings along, imported in turn by a fresh interpreter."""
    words = [sys.executable, "-c", IMPORTS, *modules]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    packages = (set(json.loads(line)) for line in run.stdout.splitlines())
    return dict(zip(modules, packages, strict=True))


HEAVY = {"torch", "transformers", "textual"}
LIGHT = [
    "houston_daemon.agent.rollout_worker",
    "houston_daemon.service.daemon_process",
    "houston_daemon.demo.demo_tour",
    *sorted({c.module for c in COMMANDS if c.module.startswith("houston_console.commands.")}),
]


def test_headless_commands_workers_and_daemon_import_nothing_heavy() -> None:
    packages = brought(*LIGHT)
    assert not {module: packages[module] & HEAVY for module in LIGHT if packages[module] & HEAVY}


def test_a_start_and_a_stop_do_not_import_what_asks_engines() -> None:
    """httpx brings rich, click and pygments along: a quarter of what a start imports."""
    packages = brought(
        "houston_daemon.service.daemon_process", "houston_daemon.recorder.recorder_thread"
    )
    assert not set().union(*packages.values()) & {"httpx", "rich", "click"}


def test_pages_written_from_the_code_are_up_to_date() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_pages_promise_no_format_of_an_export_that_is_not_there() -> None:
    promised = {
        name
        for page in PAGES
        for names in re.findall(r"export to ((?:[\w-]+(?:, | or | and ))*[\w-]+)", page.read_text())
        for name in re.split(", | or | and ", names)
    }
    assert promised and promised <= FORMATS.keys()


def test_the_readme_names_the_system_and_the_python_that_are_needed() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["project"]["requires-python"].removeprefix(">=")
    assert f"Linux and Python {needed} or newer" in (ROOT / "README.md").read_text()
