"""The house rules that a linter does not know: room sizes, words, light commands, true docs."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


def imported(statement: str) -> set[str]:
    """Top-level packages in a fresh interpreter after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(run.stdout)}


HEAVY = {"torch", "transformers", "textual"}


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c.module.startswith("houston_console.commands.")], ids=str
)
def test_headless_commands_import_nothing_heavy(command: object) -> None:
    assert not imported(f"import {command.module}") & HEAVY  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "module",
    [
        "houston_daemon.agent.rollout_worker",
        "houston_daemon.service.daemon_process",
        "houston_daemon.demo.demo_tour",
    ],
)
def test_workers_and_daemon_import_nothing_heavy(module: str) -> None:
    assert not imported(f"import {module}") & HEAVY


def test_a_start_and_a_stop_do_not_import_what_asks_engines() -> None:
    """httpx brings rich, click and pygments along: a quarter of what a start imports."""
    modules = "houston_daemon.service.daemon_process, houston_daemon.recorder.recorder_thread"
    assert not imported(f"import {modules}") & {"httpx", "rich", "click"}


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
