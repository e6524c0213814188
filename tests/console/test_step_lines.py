"""What a step's line says, at every width, and when two failures are equal."""

from typing import Any

import pytest

from houston_console.commands import step_outcomes
from houston_console.commands.step_outcomes import call_outcome, failure_key, shown_duration
from houston_console.transcript import step_rendering
from houston_console.transcript.trajectory_reader import FoldedStepRow, FoldMarks, read_step_rows
from houston_console.widgets.styled_text import line_text, line_width
from houston_shared.records import FileChange, ToolCall, ToolResult
from houston_shared.store.store_reader import Reader
from tests.console.home_builder import HomeBuilder

RUN = "run_command"


def _result(
    arguments: dict[str, Any], text: str = "", name: str = RUN, success: bool = False, **given: Any
) -> ToolResult:
    fields = {"kind": "command", "fields": {"exit_code": 2}, **given}
    call = ToolCall(id="1.0", name=name, arguments=arguments)
    return ToolResult(call=call, success=success, text=text, **fields)


MISSING = "[session main: exit code 2 after 0.3 s]\nNo such file"
TYPO = _result({"command": "python3 src/trian.py"}, MISSING)


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        pytest.param(TYPO, True, id="the same"),
        pytest.param(_result({"command": " python3  src/trian.py\n"}, MISSING), True, id="blanks"),
        pytest.param(
            _result({"command": "python3 src/trian.py"}, MISSING.replace("0.3", "12.9")), True,
            id="another time"),
        pytest.param(
            _result({"command": "python3 src/trian.py"}, f"Traceback\n{MISSING}"), True,
            id="more above the last line"),
        pytest.param(_result({"command": "python3 src/train.py"}, MISSING), False, id="command"),
        pytest.param(
            _result({"command": "python3 src/trian.py"}, MISSING, fields={"exit_code": 1}), False,
            id="exit code"),
        pytest.param(
            _result({"command": "python3 src/trian.py"}, "[...]\nPermission denied"), False,
            id="what it said last"),
        pytest.param(
            _result({"command": "python3 src/trian.py"}, MISSING, name="python"), False,
            id="action"),
        pytest.param(
            _result({"command": "python3 src/trian.py", "session_id": "b"}, MISSING), False,
            id="another terminal"),
    ],
)  # fmt: skip
def test_failures_are_equal_by_action_command_and_result(other: ToolResult, equal: bool) -> None:
    assert (failure_key([TYPO]) == failure_key([other])) is equal


def test_numbers_in_the_last_words_count_as_one() -> None:
    texts = ("worker 4711 died at 0.31 s", "worker 12 died at 10:59:07 s", "worker x died")
    keys = [failure_key([_result({"command": "make"}, text)]) for text in texts]
    assert keys[0] == keys[1] != keys[2]


def test_what_did_not_fail_equals_nothing_and_every_call_counts() -> None:
    done = _result({"command": "ls"}, success=True, fields={"exit_code": 0})
    assert failure_key([]) is failure_key([done]) is None
    assert failure_key([done, TYPO]) != failure_key([TYPO])


OUTCOMES = {
    "a command that failed": (TYPO, ("python3 src/trian.py", "exit 2")),
    "a command of several lines": (
        _result({"command": "cat <<E\n a\n\nE"}, success=True, fields={"exit_code": 0}),
        ("cat <<E a E", "")),
    "a command that goes on": (
        _result({"command": "make"}, success=True, fields={"running": True, "exit_code": 0}),
        ("make", "still running")),
    "a search": (
        _result({"path": ".", "query": "def main"}, success=True, fields={"total_results": 3}),
        ("def main", "3 found")),
    "an edit that was refused": (
        _result({"path": "a.py", "text": "x"}, kind="error",
                fields={"error": "There are\nonly 3 lines."}),
        ("a.py", "There are only 3 lines.")),
    "a command without an exit code": (_result({"command": "x"}, fields={}), ("x", "failed")),
    "a sleep": (_result({"seconds": 600}, success=True, fields={}), ("600 s", "")),
    "nothing to name": (_result({"force": True}, success=True, fields={}), ("", "")),
    "an argument of another tool": (
        _result({"room": "kitchen"}, success=True, fields={}), ("kitchen", "")),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_call_is_its_command_or_file_and_what_came_of_it(name: str) -> None:
    result, words = OUTCOMES[name]
    outcome = call_outcome(result.call, result)
    assert (outcome.target, outcome.result) == words
    assert outcome.failed is not result.success


def test_the_call_that_failed_is_named_not_the_first() -> None:
    fine = _result({"command": "ls"}, success=True, fields={"exit_code": 0})
    outcomes = [call_outcome(result.call, result) for result in (fine, TYPO)]
    named = step_outcomes.main_outcome(outcomes)
    assert named and named.target == "python3 src/trian.py"


def test_durations_are_said_from_one_second_on() -> None:
    assert [shown_duration(seconds) for seconds in (0.0, 0.9, 1.04)] == ["", "", "1.0 s"]


# --- the line ------------------------------------------------------------------------------------


def _rows(builder: HomeBuilder) -> dict[int, FoldedStepRow]:
    change = FileChange(path="src/train.py", kind="changed", added=12, removed=4)
    edit = (("edit_file", {"path": "src/train.py", "text": "x"}),)
    command = "python3 src/train.py --epochs 3 --learning-rate 0.001"
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "The rate was too high.", edit, files=(change,))
        builder.whole("r", 2, "Now I train with the lower rate and see.",
                      ((RUN, {"command": command}),), success=False,
                      result={"seconds": 754.0, "fields": {"exit_code": 137}})  # fmt: skip
        builder.scored("r", 3, "Try it.", 40.0)
        builder.scored("r", 4, "Try again.", 61.5)
        builder.scored("r", 5, "And again.", 60.0)
        builder.scored("r", 6, "Once more.", 60.0)
        builder.begin("r", 7, "waits", (("sleep", {"seconds": 9}),))
        builder.close_step("r", 7)
        builder.begin("r", 8, "Hm.", (), malformed="no JSON in it")
    with Reader(builder.home) as reader:
        return {row.step: row for row in reader.run(read_step_rows("r", 1, 8))}


def test_what_a_line_loses_as_it_narrows_goes_in_the_order_that_is_stated(
    builder: HomeBuilder,
) -> None:
    row = _rows(builder)[2]
    stated = ("Now I train", ":", RUN, "13 min", "0.001")  # thought, time, action, duration, all
    shown = {
        width: [word in line_text(step_rendering.folded_line(row, width)) for word in stated]
        for width in (150, 110, 90, 66, 50, 40)
    }
    assert shown == {
        150: [True, True, True, True, True],
        110: [False, True, True, True, True],
        90: [False, True, True, True, False],
        66: [False, False, True, True, False],
        50: [False, False, False, True, False],
        40: [False, False, False, False, False],
    }
    clock = line_text(step_rendering.folded_line(row, 110)).split()[2]
    assert clock.count(":") == 2
    for width in range(24, 200):
        text = line_text(step_rendering.folded_line(row, width))
        assert line_width(step_rendering.folded_line(row, width)) == width
        assert text.split()[1] == "2" and "✗" in text and "exit 137" in text, width


def test_a_line_says_changed_lines_and_which_way_a_score_went(builder: HomeBuilder) -> None:
    rows = _rows(builder)
    lines = {step: line_text(step_rendering.folded_line(row, 92)) for step, row in rows.items()}
    assert lines[1].split()[-2:] == ["+12", "−4"]
    assert "edit_file src/train.py" in lines[1]
    ends = [lines[step].split("Try")[-1].split()[-2:] for step in (4, 5, 6)]
    assert ends == [["61.5", "▲"], ["60", "▼"], ["60", "="]]
    assert lines[3].split()[-1] == "40"  # the first has nothing to be above
    assert "sleep 9 s" in lines[7]
    assert "no action no JSON in it" in lines[8]


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        pytest.param(None, "", id="not read yet"),
        pytest.param(FoldMarks(), "", id="none"),
        pytest.param(FoldMarks({"human0": 106}), "∅h", id="all masked"),
        pytest.param(FoldMarks({"judge1": 106}), "✓j", id="all kept"),
        pytest.param(FoldMarks({"human0": 12}), "∅ 12 of 106", id="some masked"),
        pytest.param(FoldMarks({"human0": 100, "rule0": 6}), "∅ 106 of 106", id="by several"),
        pytest.param(FoldMarks({}, seconds=7_500.0), "", id="how long"),
        pytest.param(FoldMarks({"human0": 12, "human1": 1}), "✓ 1 of 106", id="some kept"),
    ],
)
def test_equal_failures_are_one_line_that_counts_them_and_their_verdicts(
    builder: HomeBuilder, marks: FoldMarks | None, words: str
) -> None:
    row = _rows(builder)[2]._replace(step=61)
    text = line_text(step_rendering.fold_line(row, 166, marks, 92))
    assert line_width(step_rendering.fold_line(row, 166, marks, 92)) == 92
    assert text.split()[:3] == ["≡", "61–166", "✗"]
    assert text.rstrip().endswith(
        "exit 137  ×106" + ("  2 h 05 min" if marks and marks.seconds else "")
    )
    assert words in text
    assert ("of 106" in text) is ("of" in words)
