"""Every action of the workstation has a test against the real thing, and this is where it stands.

The table is checked, not believed: the test exists, nothing skips it always, it stands in a module
without mocks, and the action's name is among what it calls: in the test itself, in its parameters,
or in a table or function of its module that it names.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

from houston_daemon.environments.workstation_actions import ACTIONS

TESTS = Path(__file__).parents[2]
COMMANDS = "integration/environments/test_command_actions.py"
FILES = "integration/environments/test_file_actions.py::test_every_file_action_works"
PARSE = "integration/environments/test_parse_actions.py"
BROWSE = "integration/environments/test_browse_actions.py"
SCORES = "integration/environments/test_evaluator.py"
SYSTEM = "integration/environments/test_system_actions.py"
WINDOWS = f"{BROWSE}::test_a_long_page_is_read_in_windows_and_searched"
OPENED = f"{COMMANDS}::test_sessions_are_opened_listed_and_closed"
DOCUMENTS = f"{PARSE}::test_documents_become_markdown"
REAL = {
    "create_session": OPENED,
    "list_sessions": OPENED,
    "run_command": f"{COMMANDS}::test_a_command_that_succeeds_and_one_that_fails",
    "input_in_session": f"{COMMANDS}::test_input_answers_a_prompt",
    "get_session_output": f"{COMMANDS}::test_output_is_counted_back_from_the_newest",
    "get_session_recent_output": f"{COMMANDS}::test_output_since_a_time",
    "get_session_status": f"{COMMANDS}::test_status_and_idle",
    "check_session_idle": f"{COMMANDS}::test_status_and_idle",
    "clear_session_buffer": f"{COMMANDS}::test_cleared_output_stays_hidden_after_a_restart",
    "close_session": OPENED,
    "close_all_sessions": OPENED,
    "kill_session_processes": f"{COMMANDS}::test_kill_ends_the_command_and_keeps_the_session",
    "open_file": FILES,
    "file_goto_line": FILES,
    "file_scroll_down": FILES,
    "file_scroll_up": FILES,
    "create_file": FILES,
    "edit_file": FILES,
    "search_dir": FILES,
    "search_file": FILES,
    "find_file": FILES,
    "list_files": FILES,
    "get_file_info": FILES,
    "parse_pdf": DOCUMENTS,
    "parse_docx": DOCUMENTS,
    "parse_latex": DOCUMENTS,
    "parse_pptx": DOCUMENTS,
    "parse_audio": f"{PARSE}::test_speech_is_written_down",
    "parse_image": f"{PARSE}::test_a_picture_is_asked_about",
    "parse_video": f"{PARSE}::test_frames_of_a_video_are_asked_about",
    "web_search": "integration/retrieval/test_web_search.py::test_results_and_a_kept_answer",
    "web_browse": f"{BROWSE}::test_a_page_becomes_numbered_lines_and_numbered_links",
    "web_page_goto_line": WINDOWS,
    "web_page_scroll_down": WINDOWS,
    "web_page_scroll_up": WINDOWS,
    "web_page_search": WINDOWS,
    "web_page_search_next": WINDOWS,
    "web_page_get_links": f"{BROWSE}::test_a_page_becomes_numbered_lines_and_numbered_links",
    "think": f"{SYSTEM}::test_think_never_twice_in_a_row_even_over_a_restart",
    "sleep": f"{SYSTEM}::test_sleep_ends_by_time",
    "eval": f"{SCORES}::test_a_score_counts_and_shows_its_metrics",
    "finish": f"{SYSTEM}::test_finish_is_refused_too_early",
}


def test_the_table_names_each_action() -> None:
    assert [*REAL] == [*ACTIONS]
    assert len(ACTIONS) == 42


@pytest.mark.parametrize("action", REAL)
def test_the_real_test_exists_and_calls_it(action: str) -> None:
    file, _, name = REAL[action].partition("::")
    top = _top(file)
    assert name in top, f"{file} has no {name}"
    assert action in _strings(name, top), f"{REAL[action]} does not call {action}"
    skips = [d for d in getattr(top[name], "decorator_list", []) if _marks(d, "skip")]
    assert not skips, f"{REAL[action]} is skipped"
    names = {node.id for node in ast.walk(ast.Module([*top.values()], [])) if _is_name(node)}
    assert not names & {"Mock", "MagicMock", "AsyncMock", "patch"}, f"{file} uses mocks"


@cache
def _top(file: str) -> dict[str, ast.stmt]:
    """What stands at the top of a module, by name."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse((TESTS / file).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: node for one in targets if isinstance(one, ast.Name)}
    return found


def _strings(name: str, top: dict[str, ast.stmt]) -> set[str]:
    """Strings of a definition and of what it names, to any depth."""
    waiting, seen, strings = [name], set[str](), set[str]()
    while waiting:
        one = waiting.pop()
        if one in seen or one not in top:
            continue
        seen.add(one)
        for node in ast.walk(top[one]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.add(node.value)
            elif isinstance(node, ast.Name):
                waiting.append(node.id)
    return strings


def _marks(decorator: ast.expr, word: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == word for node in ast.walk(decorator)
    )


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)
