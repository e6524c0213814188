"""Text in lines: nothing is wider than its room, nothing is lost, nothing reaches the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from houston_console.panes.terminal_log_reader import parse_tail_lines
from houston_console.widgets.line_view import highlight_needles, highlight_ranges
from houston_console.widgets.styled_text import (
    fit_text,
    justify_line,
    line,
    line_text,
    line_width,
    span,
    with_cursor,
    wrap_text,
)
from houston_shared.safe_text import safe, safe_line

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(texts, st.integers(4, 60))
def test_wrapped_lines_fit_and_keep_every_letter(text: str, width: int) -> None:
    lines = wrap_text(text, width)
    assert all(cell_len(row) <= width for row in lines)
    letters = "".join("".join(lines).split())
    assert letters == "".join(safe(text).split())


@given(texts, st.integers(0, 40))
def test_fitted_text_takes_exactly_its_room(text: str, width: int) -> None:
    fitted = fit_text(text, width)
    assert cell_len(fitted) == width
    assert fitted.endswith("…") or safe_line(text).rstrip(" ") == fitted.rstrip(" ") or not width


@given(texts, texts, st.integers(1, 80))
def test_the_left_gives_way_to_the_right(left: str, right: str, width: int) -> None:
    end = line(span(right[: width // 3]))
    if line_width(end) <= width:
        row = justify_line(line(span(left)), end, width)
        assert line_width(row) == width
        assert line_text(row).endswith(line_text(end))


def test_a_left_that_is_cut_does_not_touch_the_right() -> None:
    row = justify_line(line(span("speed-up-attention")), line(span("best steps")), 20)
    assert line_text(row) == "speed-up… best steps"


def test_words_stay_whole_where_they_can() -> None:
    assert wrap_text("the quick brown fox", 10) == ["the quick", "brown fox"]
    assert wrap_text("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert wrap_text("a\tb\n\nc", 20) == ["a   b", "", "c"]


@given(st.binary(max_size=400))
def test_no_byte_of_a_terminal_is_a_control_character_on_the_screen(data: bytes) -> None:
    for row in parse_tail_lines(data):
        assert safe(line_text(row)) == line_text(row)
        assert "\n" not in line_text(row)


TERMINALS = {
    "a progress bar shows its last state": (b"10 %\r50 %\r90 %", ["90 %"]),
    "colours become tones, not text": (b"\x1b[31mred\x1b[0m plain", ["red plain"]),
    "a prompt begins on a fresh line": (b"no feed\x1b]7771;p;\x07$ ls", ["no feed", "$ ls"]),
    "marks with secrets never show": (b"a\x1b]7771;e;SECRET;0\x07b", ["ab"]),
    "erase to the end of the line": (b"abcdef\r\x1b[Kxy", ["xy"]),
    "backspace goes back": (b"abd\bc", ["abc"]),
    "invalid UTF-8 shows as such": (b"a\xffb", ["a\ufffdb"]),
    "a huge column is not believed": (b"\x1b[999999999Gx", [" " * 159]),
}


def test_a_terminal_reads_as_a_person_would_see_it() -> None:
    for what, (data, expected) in TERMINALS.items():
        assert [line_text(row).rstrip("x") for row in parse_tail_lines(data)] == [
            row.rstrip("x") for row in expected
        ], what


POINTED = {
    "the first blank": (" ± count.py", "»± count.py"),
    "behind a mark": ("▸     61", "▸»    61"),
    "behind two": ("▲● r-7f3a", "▲●»r-7f3a"),
    "nowhere": ("words from the start", "words from the start"),
    "an empty line": ("", ""),
}


@pytest.mark.parametrize("name", POINTED)
def test_the_cursor_is_told_without_a_colour(name: str) -> None:
    text, wanted = POINTED[name]
    parts = (span(text[:2], "tool"), span(text[2:]))
    assert line_text(with_cursor(parts, True)) == wanted
    assert line_text(with_cursor(parts, False)) == wanted.replace("»", "›")


HIT = Style(reverse=True)
CUT = {
    "whole": ("a hit here", 10, "hit"),
    "cut off within": ("a hit here", 4, "hi"),
    "cut off before": ("a hit here", 2, ""),
    "cut off within a wide character": ("中hit", 1, ""),
    "behind wide characters": ("中文hit", 5, "h"),
    "nothing is shown": ("a hit here", 0, ""),
}


@pytest.mark.parametrize("what", CUT)
def test_a_hit_in_a_line_that_is_cut_off_is_marked_as_far_as_it_shows(what: str) -> None:
    text, width, marked = CUT[what]
    strip = Strip([Segment(text, Style())]).adjust_cell_length(width, Style())
    start = text.index("hit")
    for shown in (
        highlight_ranges(strip, [(start, start + 3)], HIT),
        highlight_needles(strip, text, ["hit"], HIT),
    ):
        assert shown.text == strip.text
        assert "".join(part.text for part in shown if part.style == HIT) == marked
