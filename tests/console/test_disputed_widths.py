"""Whatever a terminal takes a character's width for, what follows stands where it belongs."""

import re
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from houston_console.app.terminal_driver import (
    SCREEN_SEQUENCES,
    allow_only,
    reposition_after_disputed_width,
)

TEXTS = (
    "⚠\ufe0f warning",
    "1\ufe0f\u20e3 first",
    "👍🏽 well done",
    "👩🏽\u200d💻 and 👨\u200d👩\u200d👧\u200d👦",
    "हिन्दी नमस्ते",
    "🇨🇳 评论 👍🏽 好看",
    "plain é 中文",
)


def _screen(data: str, width: Callable[[str], int]) -> dict[int, str]:
    """What stands in each column of the first row, in a terminal that knows its own widths."""
    cells: dict[int, str] = {}
    column = 1
    for part in re.split(r"(\x1b\[[0-9;]*[Hm])", data):
        place = re.fullmatch(r"\x1b\[1;([0-9]+)H", part)
        if place:
            column = int(place[1])
        elif not part.startswith("\x1b"):
            for character in part:
                if width(character):
                    cells[column] = character
                column += width(character)
    return cells


def _marks(character: str) -> bool:
    return character in "\ufe0f\u20e3\u200d\u094d\u0301"


def _chinese(character: str) -> bool:
    return "\u2e80" <= character <= "\uffff" and character != "\ufe0f"


WIDTHS: dict[str, Callable[[str], int]] = {
    "emoji one": lambda character: 0 if _marks(character) else 1 + _chinese(character),
    "emoji and tones two": lambda character: (
        0 if _marks(character) else 1 + (_chinese(character) or character > "\U0001f000")
    ),
    "selectors two": lambda character: (
        2 if character == "\ufe0f" else 0 if _marks(character) else 1 + _chinese(character)
    ),
}


@pytest.mark.parametrize("terminal", WIDTHS)
@pytest.mark.parametrize("text", TEXTS)
def test_the_frame_stands_where_it_belongs(text: str, terminal: str) -> None:
    line = f"\x1b[1;3H\x1b[1m{text}\x1b[0m  \x1b[1;30H│\n"
    shown = _screen(reposition_after_disputed_width(line), WIDTHS[terminal])
    assert shown[30] == "│"
    behind = reposition_after_disputed_width(f"\x1b[1;3H{text}\x1b[1m|end")
    where = _screen(behind, WIDTHS[terminal])
    ours = [column for column, character in where.items() if character == "|"]
    assert ours == [3 + cell_len(text)]


def test_nothing_stays_of_what_stood_there_before() -> None:
    """A terminal that takes a warning sign for one cell still has its second one emptied."""
    shown = _screen(
        "\x1b[1;1Habcdef" + reposition_after_disputed_width("\x1b[1;1H⚠\ufe0fX"),
        WIDTHS["emoji one"],
    )
    assert (shown[2], shown[3], shown[4]) == (" ", "X", "d")


@pytest.mark.parametrize(
    "data",
    ["plain", "\x1b[1;1Hé 中 ✗ │", "no place known ⚠\ufe0f", "\x1b[?2026h", "\x1b[2;4H\x1b[0m"],
)
def test_all_else_is_written_as_it_is(data: str) -> None:
    assert reposition_after_disputed_width(data) == data


def test_only_positions_are_added() -> None:
    for text in TEXTS:
        output = reposition_after_disputed_width(f"\x1b[7;9H{text}")
        assert allow_only(SCREEN_SEQUENCES, output) == output
        assert re.sub(r"\x1b\[7;[0-9]+H *", "", output).replace(" ", "") == text.replace(" ", "")


def test_words_of_scripts_with_vowels_beside_a_letter_stay_whole() -> None:
    assert reposition_after_disputed_width("\x1b[1;1Hहिन्दी") == "\x1b[1;1Hहिन्दी\x1b[1;4H"
