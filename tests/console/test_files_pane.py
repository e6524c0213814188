"""Files and searches: the history of a file, diffs in both forms, code in colours."""

import json
from typing import Any

import pytest

from houston_console.panes import diff_rendering
from houston_console.panes.diff_rendering import (
    hard_wrap_spans,
    highlight_code,
    parse_diff,
    side_by_side_diff_lines,
    unified_diff_lines,
)
from houston_console.panes.files_pane import DiffView, FileList
from houston_console.screens.rollout_lists import ORDER_HOLD_SECONDS
from houston_console.widgets.styled_text import TextLine, line_text, line_width
from houston_shared.command import main
from houston_shared.records import FileChange
from houston_shared.safe_text import SafeText, safe_line
from houston_shared.store import workspace_queries
from houston_shared.store.store_reader import Reader
from houston_shared.store.workspace_queries import FileHistoryRow
from tests.console.conftest import Sit
from tests.console.home_builder import HomeBuilder

DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n same\n-old line\n+new line\n"
LONG = """--- a/x.py
+++ b/x.py
@@ -10,4 +10,5 @@ def f():
 one
-two
-three
+2
+3
+4
 five
"""


def _texts(drawn: list[diff_rendering.DrawnLine]) -> list[str]:
    return [line_text(row.line).rstrip() for row in drawn]


def test_every_line_of_a_diff_has_its_number_and_its_sign() -> None:
    assert _texts(unified_diff_lines(parse_diff("x.py", LONG), 60)) == [
        "@@ -10,4 +10,5 @@ def f():",
        "  10  one",
        "  11 −two",
        "  12 −three",
        "  11 +2",
        "  12 +3",
        "  13 +4",
        "  14  five",
    ]


def test_old_and_new_stand_side_by_side() -> None:
    drawn = side_by_side_diff_lines(parse_diff("x.py", LONG), 41)
    assert _texts(drawn)[1:] == [
        "  10  one           │  10  one",
        "  11 −two           │  11 +2",
        "  12 −three         │  12 +3",
        "                    │  13 +4",
        "  13  five          │  14  five",
    ]
    assert [
        [(background.start, background.kind) for background in row.backgrounds]
        for row in drawn[2:5]
    ] == [
        [(5, "-"), (26, "+")],
        [(5, "-"), (26, "+")],
        [(26, "+")],
    ]


HOSTILE = {
    "an escape sequence": "@@ -1 +1 @@\n-a\x1b[31m\n+b\x07\n",
    "no newline at the end": "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n",
    "a line that looks like a head": "@@ -1,2 +1,2 @@\n---- x\n+++ y\n same\n",
    "tabs and wide characters": "@@ -1 +1 @@\n-\tif x:\n+\t中文字符 = 1\n",
    "an open quote": '@@ -1 +1 @@\n-s = """\n+t = 1\n',
    "no hunk at all": "Binary files differ\n",
    "nothing": "",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("width", [24, 60, 130])
def test_any_diff_fits_and_is_harmless(name: str, width: int) -> None:
    rows = parse_diff("x.py", HOSTILE[name])
    for drawn in (*unified_diff_lines(rows, width), *side_by_side_diff_lines(rows, width)):
        assert line_width(drawn.line) <= width
        assert "\x1b" not in line_text(drawn.line)
    if name == "a line that looks like a head":
        assert [row.kind for row in rows] == ["@", "-", "+", " "]
    if name == "an open quote":
        assert rows[-1].code[0].tone != "code_string"


def _tones(line: TextLine) -> list[tuple[str, str]]:
    return [(part.text.strip(), part.tone) for part in line if part.text.strip()]


def test_code_is_coloured_by_its_kind() -> None:
    code = [safe_line(text) for text in ("def f(x):  # why", "    return 'a', 1", "")]
    first, second, _ = highlight_code("pkg/x.py", code)
    assert {("def", "code_keyword"), ("f", "code_name"), ("# why", "code_comment")} <= {
        *_tones(first)
    }
    assert {("'a'", "code_string"), ("1", "code_number")} <= {*_tones(second)}
    assert _tones(highlight_code("data.unknown", code)[0]) == [("def f(x):  # why", "text")]
    assert _tones(highlight_code("x.py", [SafeText("x = 1" * 20_000)])[0])[0][1] == "text"


def test_spans_are_folded_by_cells() -> None:
    line = highlight_code("x.py", [safe_line("字 = '字字字字字字'")])[0]
    parts = hard_wrap_spans(line, 7)
    assert [line_width(row) for row in parts] == [6, 6, 7]
    assert "".join(line_text(row) for row in parts) == line_text(line)


def _home(builder: HomeBuilder) -> None:
    change = FileChange(path="x.py", kind="changed", added=1, removed=1, diff=DIFF)
    other = FileChange(path="pic.png", kind="added", added=0, removed=0, note="binary")
    edit: Any = (("edit_file", {"path": "x.py"}),)
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "edits", edit, files=(change,))
        builder.whole("r", 2, "draws", files=(other,))
        builder.whole("r", 3, "edits again", edit, files=(change,))
        builder.whole("r", 4, "looks")


def test_a_branch_has_the_past_that_it_shares(builder: HomeBuilder) -> None:
    _home(builder)
    change = FileChange(path="x.py", kind="removed", added=0, removed=9)
    builder.rollout("limb", parent="r", parent_step=2)
    builder.whole("limb", 3, "goes its own way", files=(change,))
    with Reader(builder.home) as reader:
        files = reader.run(workspace_queries.list_changed_files("limb"))
        edits = reader.run(workspace_queries.list_file_edits("limb", "x.py"))
        shared = reader.run(workspace_queries.list_file_edits_of_step("limb", 2))
    assert [(file.path, file.changes, file.removed) for file in files] == [
        ("x.py", 2, 10),
        ("pic.png", 1, 0),
    ]
    assert [(edit.step, edit.kind) for edit in edits] == [(3, "removed"), (1, "changed")]
    assert [file.path for file in shared] == ["pic.png"]


async def test_a_diff_follows_the_step_and_every_file_has_its_history(
    builder: HomeBuilder, sit: Sit
) -> None:
    _home(builder)
    async with sit(builder.home) as seat:
        files = seat.lines(FileList)
        assert files[0].split() == ["±", "x.py", "2×", "+2", "−2", "3"]
        assert files[1].split()[:2] == ["+", "pic.png"]
        assert seat.lines(DiffView)[0].startswith("step 3 x.py")
        assert "−old line" in seat.text(DiffView)
        assert "+new line" in seat.text(DiffView)
        await seat.press("k", "k")
        await seat.until(lambda: "binary" in seat.text(DiffView), "the diff of step 2")
        await seat.press("4", "enter")
        rows = seat.lines(FileList)
        assert rows[0].split()[:5] == ["±", "step", "3", "agent", "edit_file"]
        assert rows[1].split()[:3] == ["±", "step", "1"]
        await seat.press("j")
        await seat.until(lambda: "step 1 x.py" in seat.text(DiffView), "the diff below follows")
        await seat.press("enter")
        await seat.until(lambda: seat.transcript.cursor == 1, "at the step of the change")
        await seat.press("4")
        assert "‹x.py›" in seat.frame("#files")
        await seat.press("escape")
        assert "pic.png" in seat.text(FileList)


def _changed(path: str) -> FileChange:
    return FileChange(path=path, kind="changed", added=1, removed=1, diff=DIFF)


async def test_files_keep_their_places_between_two_keys(builder: HomeBuilder, sit: Sit) -> None:
    with builder.bulk():
        builder.start("r")
        for step, path in enumerate(("a.py", "b.py", "c.py"), 1):
            builder.whole("r", step, files=(_changed(path),))
    async with sit(builder.home) as seat:
        listed, now = seat.app.watch_screen.files.list, 0.0

        def paths() -> list[str]:
            return [row.path for row in listed.items if isinstance(row, FileHistoryRow)]

        listed.attention.clock = lambda: now
        await seat.press("4", "j")
        assert paths() == ["c.py", "b.py", "a.py"]
        builder.whole("r", 4, files=(_changed("a.py"), _changed("d.py")))
        await seat.until(lambda: listed.is_order_held, "another order waits")
        assert paths() == ["c.py", "b.py", "a.py", "d.py"]
        assert listed.cursor == 1
        now += ORDER_HOLD_SECONDS
        await seat.until(
            lambda: not listed.is_order_held, "the newest first, where nobody presses a key"
        )
        assert (paths(), listed.cursor) == (["a.py", "d.py", "c.py", "b.py"], 3)
        await seat.press("enter")
        builder.whole("r", 5, files=(_changed("b.py"),))
        await seat.until(lambda: len(listed.items) == 2, "its changes")
        await seat.press("escape")
        assert (paths()[0], listed.cursor) == ("b.py", 0)


async def test_a_wide_diff_stands_side_by_side_until_somebody_says_otherwise(
    builder: HomeBuilder, sit: Sit
) -> None:
    _home(builder)
    async with sit(builder.home) as seat:
        await seat.press("4")
        assert "│" not in seat.text(DiffView)
        await seat.press("z")
        await seat.until(lambda: "−old line" in seat.text(DiffView) and "│" in seat.text(DiffView))
        assert any("−old line" in row and "+new line" in row for row in seat.lines(DiffView))
        await seat.press("vertical_line")
        assert "│" not in seat.text(DiffView)


async def test_searches_are_listed_with_what_they_found(builder: HomeBuilder, sit: Sit) -> None:
    result = {"kind": "search", "fields": {"query": "tokenize", "total_results": 7}}
    with builder.bulk():
        builder.start("r")
        call = ("search_dir", {"query": "tokenize"})
        builder.whole("r", 1, "", (call,), ("7 hits",), result=result)
        builder.whole("r", 2, "looks")
    async with sit(builder.home) as seat:
        await seat.press("4", "right")
        assert seat.lines(FileList)[0].split() == ["⌕", "search_dir", "tokenize", "7", "found", "1"]
        assert "7 hits" in seat.text(DiffView)
        await seat.press("enter")
        await seat.until(lambda: seat.transcript.cursor == 1, "at the step of the search")


def test_the_command_lists_files_changes_and_searches(builder: HomeBuilder, capsys) -> None:  # type: ignore[no-untyped-def]
    _home(builder)
    result = {"kind": "search", "fields": {"query": "tokenize", "total_results": 7}}
    call = ("search_dir", {"query": "tokenize"})
    builder.whole("r", 5, "", (call,), ("7 hits",), result=result)

    def report(*words: str) -> list[dict[str, Any]]:
        assert main(["--home", str(builder.home.path), "files", *words, "--json"]) == 0
        return [json.loads(row) for row in capsys.readouterr().out.splitlines()]

    assert [(row["path"], row["changes"]) for row in report("r")] == [("x.py", 2), ("pic.png", 1)]
    assert [(row["step"], row["tools"], row["diff"]) for row in report("r", "x.py")] == [
        (3, ["edit_file"], DIFF),
        (1, ["edit_file"], DIFF),
    ]
    assert [row["note"] for row in report("r@2")] == ["binary"]
    assert report("r@2", "x.py") == []
    assert report("r", "--searches") == [
        {"step": 5, "kind": "search_dir", "query": "tokenize", "results": 7}
    ]
    assert main(["--home", str(builder.home.path), "files", "r", "x.py"]) == 0
    assert "-old line" in capsys.readouterr().out
    assert main(["--home", str(builder.home.path), "files", "r", "x.py", "--searches"]) == 2
