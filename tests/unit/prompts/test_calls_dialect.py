"""One call a line: a short head, calls as Python writes them, code in backticks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_daemon.environments.python.python_environment import RunPython
from houston_daemon.environments.small_workstation import FILE_ACTIONS
from houston_daemon.environments.tool_arguments import Catalog
from houston_daemon.prompts.calls_dialect import NO_CALL, CallsDialect
from houston_daemon.prompts.dialect_protocol import PromptToolResult
from houston_shared.guidance_tag import render_guidance
from houston_shared.records import DeliveredGuidance, ToolCall

DIALECT = CallsDialect()
ACTIONS = {action.name: action for action in (*FILE_ACTIONS, RunPython)}
TOOLS = {tool.name: tool for tool in Catalog(ACTIONS).tools}


def test_a_head_is_a_line_a_tool_and_the_task() -> None:
    pieces = DIALECT.head("You are an agent.", list(TOOLS.values()), "Do it.\n\n[You have 3.]")
    text = "".join(piece.text for piece in pieces)
    assert "You are an agent." not in text and "You have" not in text
    assert "read(path: str): Show what a file says\n" in text and "user\nDo it.<|im_end|>" in text


texts = st.text(st.characters(blacklist_categories=("Cs",)), max_size=30)


@given(texts, texts)
def test_a_call_is_read_as_it_was_written(path: str, text: str) -> None:
    call = ToolCall(id="2.0", name="write", arguments={"path": path, "text": text})
    written = "".join(piece.text for piece in DIALECT.assistant("I write.", [call]))
    action = DIALECT.parse(written.removesuffix("<|im_end|>"), 2, TOOLS)
    assert (action.thought, action.calls, action.malformed) == ("I write.", (call,), "")


CALLS = [
    ('read("a.txt")', "read", {"path": "a.txt"}),
    ("read(path='a.txt')", "read", {"path": "a.txt"}),
    ('I look.\n\nread("a.txt")\n', "read", {"path": "a.txt"}),
    ('write("a", """1\n2""")', "write", {"path": "a", "text": "1\n2"}),
    ("list()", "list", {}),
    ("```python\nprint(1)\nprint(2)\n```", "python", {"code": "print(1)\nprint(2)"}),
    ("```\nprint(1)\n```\nthat is all", "python", {"code": "print(1)"}),
]


@pytest.mark.parametrize(("text", "name", "arguments"), CALLS)
def test_usual_variants_are_read(text: str, name: str, arguments: dict[str, Any]) -> None:
    (call,) = DIALECT.parse(text, 1, TOOLS).calls
    assert (call.name, call.arguments, call.error) == (name, arguments, "")


@pytest.mark.parametrize(
    "text", ["", "read", "read(path)", 'read("a") then list()', 'read(b"a")', "read(1j)", "a.b()"]
)
def test_what_is_no_call_is_malformed(text: str) -> None:
    action = DIALECT.parse(text, 1, TOOLS)
    assert action.malformed and not action.calls and action.thought == text


@pytest.mark.parametrize(
    ("text", "says"),
    [("cat('a')", "no tool 'cat'"), ("read('a', 'b')", "no argument"), ("read()", "needs")],
)
def test_a_wrong_call_carries_its_error(text: str, says: str) -> None:
    assert says in DIALECT.parse(text, 1, TOOLS).calls[0].error


LISTS = "Sort:\n[3, 1, 2]\n[a b]\n['x', 'y']\nNow."


def test_lists_of_a_task_and_of_a_result_are_no_notes() -> None:
    task = LISTS + "\n\n[You have 3 steps and 1 minute of active time.]"
    head = "".join(piece.text for piece in DIALECT.head("", list(TOOLS.values()), task))
    assert LISTS in head and "You have" not in head
    shown = [PromptToolResult("1.0", "python", "[1, 2, 3]")]
    text = "".join(piece.text for piece in DIALECT.observation(shown, "[step 1 of 8]", ""))
    assert "user\n[1, 2, 3]<|im_end|>" in text


def test_clock_and_notes_are_left_out_and_people_are_not() -> None:
    tail = "[step 1 of 8; active 0:00:01]" + render_guidance(
        [DeliveredGuidance(id="1", author="a", text="Read b.txt.")]
    )
    shown = [PromptToolResult("1.0", "list", "a.txt")]
    text = "".join(piece.text for piece in DIALECT.observation(shown, tail, "<|im_end|>"))
    assert "user\na.txt\n<real_user>Read b.txt.</real_user><|im_end|>" in text
    nothing = "".join(piece.text for piece in DIALECT.observation([], "[step 1]", ""))
    assert nothing.startswith(f"<|im_end|>\n<|im_start|>user\n{NO_CALL}<|im_end|>")
