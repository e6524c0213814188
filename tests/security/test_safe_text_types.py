"""Only a SafeText reaches a widget or a line: by types, and by what no module may write itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = [ROOT / "console", ROOT / "daemon" / "houston_daemon", ROOT / "shared"]
PRINTING = {
    "shared/houston_shared/command_output.py": "the door of every command; flushes",
    "daemon/houston_daemon/service/fork_server.py": "a worker's own streams, which are a log file",
    "daemon/houston_daemon/service/ray_cluster.py": "a child's own stream, which is a log file",
    "daemon/houston_daemon/maintenance/projection_replay.py": "a child's answer, as data",
    "shared/houston_shared/store/search_process.py": "a child's answer, as data",
    "daemon/houston_daemon/maintenance/host_cleanup_child.py": "a child's answer, as data",
    "daemon/houston_daemon/environments/workstation/document_to_markdown.py": "a child's answer",
    "daemon/houston_daemon/environments/mcp/mcp_relay.py": "between two programs, as data",
    "daemon/houston_daemon/environments/python/python_child.py": "a child's answer, as data",
    "daemon/houston_daemon/environments/questions/hidden_tests_child.py": "a child's answer",
    "daemon/houston_daemon/environments/questions/math_child.py": "a child's answer, as data",
    "daemon/houston_daemon/importers/innovatorbench_evaluate.py": "a task's evaluator",
    "console/houston_console/commands/rollout_html_command.py": "a page, for `--out -`",
}
"""Modules that touch a standard stream, and why they may."""
TASKS = ROOT / "daemon" / "houston_daemon" / "demo" / "tasks"
"""What agents and evaluators run, in a sandbox: no part of Houston's own programs."""
DRAWING = {
    "console/houston_console/widgets/styled_text.py": ("Segment",),
    "console/houston_console/widgets/color_themes.py": ("Segment",),
    "console/houston_console/widgets/ascii_marks.py": ("Segment",),
    "console/houston_console/widgets/line_view.py": ("Content",),
    "console/houston_console/panes/guidance_composer.py": ("Text",),
    "console/houston_console/app/terminal_driver.py": ("Console",),
    "console/houston_console/commands/output_page.py": ("Text", "Console"),
}
"""Modules that hand text to Textual or rich, and with what."""
MAKERS = {"Segment", "Content", "Text", "Console", "Markup", "Panel", "Table", "Syntax", "Markdown"}
NEVER = {
    "from_markup", "from_ansi", "notify", "Static", "Label", "RichLog", "Log", "DataTable",
    "OptionList", "MarkdownViewer", "Toast", "Tree", "Button", "Checkbox", "Select", "Pretty",
    "tooltip", "sub_title", "set_window_title", "open_url", "bell", "deliver_text", "action_notify",
}  # fmt: skip
"""Names of Textual and rich that read markup, or show text by a way of their own."""


SETTINGS = {"console/houston_console/app/background_alerts.py": {"bell"}}
"""Modules that read a setting of such a name."""


def _modules() -> list[Path]:
    files = (file for room in ROOMS for file in sorted(room.rglob("*.py")))
    return [file for file in files if TASKS not in file.parents]


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def _words(tree: ast.AST) -> set[str]:
    """Names that are called, read from a module, or imported."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            found |= {one.name for one in node.names}
    return found


def _streams(tree: ast.AST) -> list[int]:
    """Lines that write to a standard stream: print, sys.stdout.write and their like."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print":
                found.append(node.lineno)
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in ("write", "writelines", "buffer")
            and isinstance(node.value, ast.Attribute)
            and node.value.attr.strip("_") in ("stdout", "stderr")
        ):
            found.append(node.lineno)
    return found


def test_one_door_writes_what_commands_say() -> None:
    writers = {_name(file) for file in _modules() if _streams(ast.parse(file.read_text()))}
    assert writers <= set(PRINTING), "write through houston_shared.command_output"


def test_few_modules_hand_text_to_the_screen() -> None:
    for file in [one for one in _modules() if "console" in one.parts]:
        words = _words(ast.parse(file.read_text())) - SETTINGS.get(_name(file), set())
        assert not words & NEVER, f"{_name(file)} uses {words & NEVER}"
        used = {word for word in words & MAKERS if _imports(file, word)}
        assert used <= set(DRAWING.get(_name(file), ())), f"{_name(file)} makes {used} itself"


def _imports(file: Path, word: str) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] in ("rich", "textual")
        and word in {one.name for one in node.names}
        for node in ast.walk(ast.parse(file.read_text()))
    )


def test_no_escape_sequence_is_written_by_hand() -> None:
    """Houston styles by tones; only what reads or filters sequences names them."""
    reading = {"terminal_driver.py", "terminal_log_reader.py", "terminal_log.py", "shell_marks.py"}
    reading |= {"step_commands.py", "guidance_tag.py", "terminal_emulator.py"}
    for file in _modules():
        if file.name in reading:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert "\x1b" not in node.value, f"{_name(file)}:{node.lineno}"


UNSAFE = {
    "a plain string as a span of the console": """
from houston_console.widgets.styled_text import TextSpan
TextSpan(input())
""",
    "a plain string as a span of a command": """
from houston_console.commands.output_page import OutputSpan
OutputSpan(input())
""",
    "a slice that is a plain string again": """
from houston_console.widgets.styled_text import TextSpan
from houston_shared.safe_text import safe
TextSpan(safe(input()).replace("a", input()))
""",
    "a line of strings for a widget": """
from houston_console.widgets.line_view import FixedLines
FixedLines([(input(),)])
""",
}
SAFE = """
from houston_console.widgets.styled_text import TextSpan, line, span
from houston_console.widgets.line_view import FixedLines
from houston_shared.safe_text import safe
FixedLines([line(span(input()), TextSpan(safe(input())))])
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says of all of them, in one run."""
    folder = tmp_path_factory.mktemp("typed")
    names = []
    for at, text in enumerate([*UNSAFE.values(), SAFE]):
        file = folder / f"case_{at}.py"
        file.write_text(text)
        names.append(str(file))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), *names],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=280,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("what", UNSAFE)
def test_types_refuse(what: str, judged: str) -> None:
    case = f"case_{list(UNSAFE).index(what)}.py"
    assert any(case in line and "error:" in line for line in judged.splitlines()), judged


def test_types_take_what_is_safe(judged: str) -> None:
    assert f"case_{len(UNSAFE)}.py" not in judged
