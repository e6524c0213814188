"""The picture of README that moves: each frame's rows are seen in its time, and no others."""

import io
import re
from xml.etree import ElementTree

from rich.console import Console

from tests.console.animation import Frame, animate


def _frame(*rows: str, seconds: float = 1.0) -> Frame:
    console = Console(record=True, width=20, file=io.StringIO())
    for row in rows:
        console.print(row)
    return Frame(console.export_svg(title="t"), seconds)


def test_a_row_that_stays_is_there_once_and_others_have_their_time() -> None:
    svg = animate([_frame("stays", "one"), _frame("stays", "two"), _frame("stays", "two", "more")])
    ElementTree.fromstring(svg)
    seen = {
        text: re.findall(rf'class="(t\d+-\d+)"><text [^>]*>{text}<', svg)
        for text in ("stays", "one", "two", "more")
    }
    assert svg.count(">stays<") == 1
    assert seen == {"stays": [], "one": ["t0-1"], "two": ["t1-3"], "more": ["t2-3"]}


def test_times_are_shares_of_the_whole_and_the_last_frame_is_what_stands_still() -> None:
    svg = animate([_frame("one", seconds=1), _frame("two", seconds=3)])
    hidden, visible = "{visibility:hidden}", "{visibility:visible}"
    assert f"@keyframes t0-1{{0%{visible}25.00%{hidden}}}" in svg
    assert f"@keyframes t1-2{{0%{hidden}25.00%{visible}}}" in svg
    assert ".t0-1{visibility:hidden;" in svg and ".t1-2{visibility:visible;" in svg
    assert "4s step-end infinite" in svg


def test_nothing_of_it_is_from_elsewhere() -> None:
    assert re.findall(r"https?://(?!www\.w3\.org)", animate([_frame("one")])) == []
