"""The emulator shows of bytes what tmux shows of them, wherever they are cut.

tmux itself is asked, in a pane of the size that terminals of rollouts have. Left out is where tmux
3.3 is odd: half a wide character that was erased, text inserted at the last column, and the wrap of
a line that IL has moved to the bottom of the screen.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from houston_console.panes.terminal_emulator import TerminalEmulator
from houston_console.widgets.styled_text import TextLine, line_text
from tests.console.record_terminals import ON_ONE_LINE, RECORDED, STILL_OPEN
from tests.support.tmux_pane import TmuxPane

TEXTS = [b"hello", b"x" * 50, b"y" * 200, b"z" * 160, "é".encode(), "e\u0301".encode()]
CONTROLS = [b"\r\n", b"\r\n", b"\r\n", b"\r", b"\n", b"\t", b"\b", b"line\r\n" * 30]
SEQUENCES = [
    *(b"\x1b[A", b"\x1b[3A", b"\x1b[B", b"\x1b[C", b"\x1b[7D", b"\x1b[E", b"\x1b[2F", b"\x1b[10G"),
    *(b"\x1b[H", b"\x1b[5;10H", b"\x1b[48;150H", b"\x1b[5d", b"\x1b[3;20r", b"\x1b[r", b"\x1b[Z"),
    *(b"\x1b[2J", b"\x1b[J", b"\x1b[1J", b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[3b"),
    *(b"\x1b[2M", b"\x1b[3P", b"\x1b[4X", b"\x1b[5@", b"\x1b[2S", b"\x1b[2T"),
    *(b"\x1b7", b"\x1b8", b"\x1bM", b"\x1bD", b"\x1bE", b"\x1b[s", b"\x1b[u", b"\x1b[31m"),
    *(b"\x1b[0m", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?7l", b"\x1b[?7h", b"\x1b[?6h"),
    *(b"\x1b[?6l", b"\x1b]0;title\x07", b"\x1bP1;2q\x1b\\", b"\x1b[?25l", b"\x1b[>4;1m"),
]
PRINTED = {
    "a bar that is longer than the line": b"0 %" + b"#" * 170 + b"\r" + b"90 %" + b"#" * 160,
    "two bars, one below the other": b"one\r\ntwo" + b"\x1b[A\rONE\x1b[B\rTWO\r\n",
    "a list that is drawn again": b"a\r\nb\r\nc\r\n\x1b[3A\x1b[JA\r\nB\r\n",
    "the screen erased after a page": b"n\r\n" * 70 + b"\x1b[H\x1b[2Jx",
    "a bar below what scrolls": b"\x1b[1;49r\x1b[50;1Hbar\x1b[49;1H" + b"got\r\n" * 60 + b"\x1b[r",
    "wide characters at the edge": "中".encode() * 81 + b"\r\n" + "🚀 ok".encode(),
    "an editor that was left": b"before\r\n\x1b[?1049h\x1b[Hfile\x1b[24;1H~\x1b[?1049lafter",
    "lines inserted and deleted": b"a\r\nb\r\nc\x1b[2;1H\x1b[2Lnew\x1b[1;1H\x1b[M",
    "written over": b"12345678\x1b[4D" + "中".encode() + b"x",
    "line feeds alone": b"a\nb\nc",
    "sequences it does not know": b"a\x1b[?2026hb\x1b[>1uc\x1b[38:2::1:2:3md\x1b]8;;x\x1b\\e",
    "half a sequence at the end": b"abc\x1b[3",
    "a number far too large": b"a\x1b[99999Cb\x1b[99999;99999Hc",
}  # fmt: skip


@pytest.fixture(scope="module")
def pane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TmuxPane]:
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    pane = TmuxPane(tmp_path_factory.mktemp("p"))
    yield pane
    pane.close()


def _drawn(*parts: bytes) -> list[TextLine]:
    emulator = TerminalEmulator()
    for part in parts:
        emulator.feed(part)
    return [parts for parts, _ in emulator.lines()]


def _texts(lines: list[TextLine]) -> list[str]:
    texts = [line_text(parts).rstrip() for parts in lines]
    while texts and not texts[-1]:
        texts.pop()
    return texts


def _compare(data: bytes, pane: TmuxPane) -> None:
    shown, texts = pane.show(data), _texts(_drawn(data))
    if data.rfind(b"\x1b[?1049h") > data.rfind(b"\x1b[?1049l"):  # the alternate screen
        assert texts[len(texts) - len(shown.screen) :] == shown.screen
    else:
        assert texts == shown.lines


@pytest.mark.parametrize("name", PRINTED)
def test_what_programs_print_is_shown_as_tmux_does(name: str, pane: TmuxPane) -> None:
    _compare(PRINTED[name], pane)


@pytest.mark.parametrize("log", sorted(RECORDED.glob("*.log")), ids=lambda log: log.stem)
def test_a_recorded_log_is_drawn_as_tmux_shows_the_same_bytes(log: Path, pane: TmuxPane) -> None:
    data = log.read_bytes()
    if log.stem == ON_ONE_LINE.replace(" ", "_"):  # prompts of ours have lines of their own
        data = data.replace(b"\x1b]7771;p;", b"\r\n\x1b]7771;p;").replace(b"\r\n\r\n", b"\r\n")
    _compare(data, pane)


COLOURED = ("colours", "git_with_colours", "top", "progress_bars_of_rich")


@pytest.mark.parametrize("stem", COLOURED)
def test_its_colours_are_those_that_tmux_has_kept(stem: str, pane: TmuxPane) -> None:
    data = (RECORDED / f"{stem}.log").read_bytes()
    of_tmux = pane.show(data).coloured.replace(b"\n", b"\r\n")
    cells = [[_cells(parts) for parts in _drawn(bytes_)] for bytes_ in (data, of_tmux)]
    assert cells[0] == cells[1][: len(cells[0])]
    assert not any(cells[1][len(cells[0]) :])
    assert {tone for line in cells[0] for _, tone in line} > {"text"}


def _cells(parts: TextLine) -> list[tuple[str, str]]:
    cells = [(character, part.tone) for part in parts for character in part.text]
    while cells and cells[-1][0] == " ":
        cells.pop()
    return [(character, tone if character != " " else "text") for character, tone in cells]


@pytest.mark.parametrize("seed", range(40))
def test_random_sequences_are_shown_as_tmux_does(seed: int, pane: TmuxPane) -> None:
    choose = random.Random(seed)
    pieces = [*TEXTS, *CONTROLS, *SEQUENCES]
    _compare(b"".join(choose.choice(pieces) for _ in range(choose.randint(3, 25))), pane)


hostile = st.lists(
    st.sampled_from([*TEXTS, *CONTROLS, *SEQUENCES, b"\x1b[4h", "中🚀".encode(), b"\xf0\x9f"])
    | st.binary(max_size=4),
    max_size=40,
).map(b"".join)


@given(hostile, st.integers(0))
@settings(max_examples=200)
def test_a_screen_that_was_kept_goes_on_as_if_it_had_not_been(data: bytes, cut: int) -> None:
    at = cut % (len(data) + 1)
    whole, before = TerminalEmulator(), TerminalEmulator()
    whole.feed(data)
    before.feed(data[:at])
    closed = before.closed_lines()
    after = TerminalEmulator(before.packed())
    assert after.packed() == before.packed()
    after.feed(data[at:])
    assert before.lines()[:closed] + after.lines() == whole.lines()
    assert closed + after.line_count() == whole.line_count() == len(whole.lines())


def test_frames_are_drawn_with_lines() -> None:
    assert _texts(_drawn(b"\x1b(0lqqk\x1b(B ok\r\n\x0ex\x0fx")) == ["┌──┐ ok", "│x"]


def test_a_line_without_an_end_takes_little_room() -> None:
    emulator = TerminalEmulator()
    for _ in range(20):
        emulator.feed(b"x" * 100_000)
    assert emulator.line_count() == 1
    assert len(emulator.packed().rows) < 60
    assert line_text(emulator.lines()[0][0]).startswith("x" * 1_000)


def test_an_editor_that_is_open_stands_behind_what_was_before() -> None:
    data = (RECORDED / f"{STILL_OPEN.replace(' ', '_')}.log").read_bytes()
    texts = _texts(_drawn(data))
    assert texts[:2] == ["/workspace $ echo before", "before"]
    assert texts[3] == "hello"
    assert texts[4] == "~"
