"""How terminals stand is said on tabs and tiles, and how a command ended at its prompt."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from houston_console.panes.terminal_log_reader import (
    CommandRun,
    LogIndex,
    TerminalSnapshot,
    update_log_index,
)
from houston_console.panes.terminal_tiles import (
    TerminalTiles,
    command_outcome,
    tab_titles,
    terminal_state,
)
from houston_console.panes.terminals_pane import TerminalView
from houston_console.screens.base_screen import GoToTerminalLine
from houston_console.widgets.styled_text import line_text
from houston_shared import terminal_log_files
from houston_shared.records import TerminalSpan
from tests.console.conftest import SMALL, WIDE, Sit
from tests.console.home_builder import HomeBuilder
from tests.console.record_terminals import RECORDED

HOUR = 3600.0


def command(words: str, output: bytes, code: int | None, began: float, took: float = 1.0) -> bytes:
    """What a terminal prints for a command that began so many seconds ago; code None: it runs."""
    at = time.time() - began
    start = f"\x1b]7771;p;{at:.6f}\x07/workspace $ {words}\r\n\x1b]7771;s;{'0' * 32}\x07".encode()
    end = f"\x1b]7771;e;{'1' * 32};{code};{at + took:.6f}\x07".encode() if code is not None else b""
    return start + output + end


def snapshot(folder: Path, data: bytes) -> TerminalSnapshot:
    folder.mkdir(parents=True, exist_ok=True)
    terminal_log_files.segment_file(folder, 0).write_bytes(data)
    return TerminalSnapshot(update_log_index(LogIndex(folder)), (), "log")


def test_a_recorded_terminal_says_how_its_commands_ended(tmp_path: Path) -> None:
    data = (RECORDED / "errors.log").read_bytes()
    session = json.loads((RECORDED / "errors.json").read_text())
    index = snapshot(tmp_path, data).log_index
    assert index is not None
    assert [run.exit_code for run in index.commands] == [2, 1, 3, 127]
    assert all(run.seconds is not None and 0 <= run.seconds < 60 for run in index.commands)
    prompts = [n for n in range(index.lines) if index.command(n) is not None]
    texts = [line_text(index.line(number)) for number in prompts]
    assert texts == [f"/workspace $ {words}" for words in session["commands"]]
    ended = [line_text(command_outcome(index.command(number))).split()[0] for number in prompts]
    assert ended == ["✗2", "✗1", "✗3", "✗127"]


@pytest.mark.parametrize("page", [64, 32 * 1024])
def test_commands_are_known_on_whatever_page_they_end(
    page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("houston_console.panes.terminal_log_reader.PAGE_BYTES", page)
    parts = [command(f"run {n}", b"out\r\n" * 30, n % 3, 900 - n) for n in range(12)]
    whole = snapshot(tmp_path / "whole", b"".join(parts)).log_index
    grown = LogIndex(tmp_path / "grown")
    for count in range(1, 13):
        snapshot(tmp_path / "grown", b"".join(parts[:count]))
        grown = update_log_index(grown)
    assert whole is not None
    assert grown.commands == whole.commands
    assert [run.exit_code for run in grown.commands] == [n % 3 for n in range(12)]
    at = [number for number in range(grown.lines) if grown.command(number) is not None]
    assert [line_text(grown.line(n)) for n in at] == [f"/workspace $ run {n}" for n in range(12)]
    then = grown.up_to(len(parts[0]) + 60)
    assert [run.end > 0 for run in then.commands] == [True, False]


def test_how_a_command_ended_that_was_followed_by_another_is_not_made_up(tmp_path: Path) -> None:
    data = command("killed", b"", None, 60) + command("next", b"", 0, 30)
    index = snapshot(tmp_path, data).log_index
    assert index is not None
    outcomes = [line_text(command_outcome(run)) for run in index.commands]
    assert outcomes == [" ?", " ✓ 1.0 s"]


FORGED = {
    "a code that is none": (b"\x1b]7771;e;x;no;1\x07", None),
    "a time that is none": (b"\x1b]7771;e;x;2;99999999999999999\x07", 2),
    "no prompt before it": (b"", None),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_mark_that_a_command_made_up_does_no_harm(name: str, tmp_path: Path) -> None:
    mark, code = FORGED[name]
    before = b"" if name == "no prompt before it" else command("x", b"", None, 60)
    index = snapshot(tmp_path, b"\x1b]7771;e;x;1;1\x07" + before + mark).log_index
    assert index is not None
    assert [run.exit_code for run in index.commands] == ([code] if before else [])
    assert all(run.seconds is None for run in index.commands)


STATES: dict[str, tuple[Callable[[], bytes], str]] = {
    "idle": (lambda: command("ls", b"", 0, HOUR), "$ idle"),
    "failed a while ago": (lambda: command("train", b"", 1, 4 * HOUR, HOUR), "✗1 3 h ago"),
    "failed just now": (lambda: command("train", b"", 2, 31, 1), "✗2 just now"),
    "running": (lambda: command("serve", b"", None, 12 * 60 + 5), "… 12 min"),
    "running without a time": (lambda: b"\x1b]7771;p;\x07$ serve\r\n", "…"),
    "its shell was started again": (
        lambda: command("x", b"", None, 60) + b"\x1b]7771;r;n;/dev/pts/0 3\x07",
        "$ idle",
    ),
    "no marks": (lambda: b"words\r\n", ""),
}


@pytest.mark.parametrize("name", STATES)
def test_how_a_terminal_stands(name: str, tmp_path: Path) -> None:
    log, text = STATES[name]
    assert terminal_state(snapshot(tmp_path, log())).text == text


OUTCOMES = {
    "": None,
    " ✓": CommandRun(0, end=1, exit_code=0),
    " ✓ 2.0 s": CommandRun(0, 1, 0, 1e9, 1e9 + 2),
    " ✗1 2 min": CommandRun(0, 1, 1, 1e9, 1e9 + 120),
    " …": CommandRun(0),
    " ?": CommandRun(0, end=1),
}


@pytest.mark.parametrize("text", OUTCOMES)
def test_what_stands_at_a_prompt(text: str) -> None:
    assert line_text(command_outcome(OUTCOMES[text])) == text


def test_tabs_say_as_much_as_there_is_room_for(tmp_path: Path) -> None:
    terminals = [
        (name, snapshot(tmp_path / name, STATES[state][0]()))
        for name, state in (
            ("main", "idle"),
            ("serve", "running"),
            ("train", "failed a while ago"),
        )
    ]
    wanted = {
        60: ["main $ idle", "‹serve … 12 min›", "train ✗1 3 h ago"],
        44: ["main $", "‹serve … 12 min›", "train ✗1"],
        30: ["main $", "‹serve …›", "train ✗1"],
        22: ["main", "‹serve›", "train"],
        10: ["main", "‹serve›"],
    }
    assert {room: tab_titles(terminals, 1, room) for room in wanted} == wanted


def _home(builder: HomeBuilder, root: Path) -> Path:
    """Three terminals of one rollout."""
    terminals = root / "rollouts" / "r" / "terminals"
    snapshot(terminals / "main", command("ls", b"a.py\r\n", 0, HOUR, 0.3))
    snapshot(terminals / "serve", command("serve", b"GET /\r\n" * 9, None, 725))
    snapshot(terminals / "train", command("train", b"no memory\r\n", 1, 4 * HOUR, HOUR))
    with builder.bulk():
        builder.start("r", host_root=str(root))
        span = TerminalSpan(host="local", terminal="main", start=0, end=9)
        builder.whole("r", 1, "runs", spans=(span,))
    return terminals


async def test_where_there_is_room_all_terminals_are_seen(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    terminals = _home(builder, tmp_path / "host")
    async with sit(builder.home, size=WIDE) as seat:
        await seat.press("3")
        await seat.until(lambda: "no memory" in seat.text(TerminalTiles), "tiles")
        tiles = seat.lines(TerminalTiles)
        heads = [text for text in tiles if text.startswith("─")]
        assert heads[0].split()[1] == "serve" and heads[0].endswith("… 12 min")
        assert heads[1].split()[1] == "train" and heads[1].endswith("✗1 3 h ago")
        assert "/workspace $ ls" in seat.lines(TerminalView)[0]
        assert seat.lines(TerminalView)[0].endswith("✓ 0.3 s")
        with terminal_log_files.segment_file(terminals / "train", 0).open("ab") as file:
            file.write(b"grown\r\n")
        await seat.until(lambda: "grown" in seat.text(TerminalTiles), "a tile follows")
        at = next(n for n, text in enumerate(seat.lines(TerminalTiles)) if "train" in text)
        await seat.pilot.click(TerminalTiles, offset=(4, at))
        await seat.until(lambda: "no memory" in seat.text(TerminalView), "it has the keys")
        assert "‹train ✗1" in seat.frame("#terminals")
        assert "a.py" in seat.text(TerminalTiles)
        await seat.press("z")
        await seat.until(
            lambda: seat.app.screen.query_one(TerminalTiles).size.height > 40, "beside"
        )


async def test_a_small_pane_has_tabs_that_say_how_terminals_stand(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    _home(builder, tmp_path / "host")
    async with sit(builder.home, size=(150, 32)) as seat:
        await seat.press("3")
        await seat.until(lambda: "✗1" in seat.frame("#terminals"), "states")
        assert not seat.app.screen.query_one(TerminalTiles).display
        assert "‹main $›  serve …  train ✗1" in seat.frame("#terminals")
        await seat.press("right")
        await seat.until(lambda: "GET /" in seat.text(TerminalView), "the next")
        assert seat.lines(TerminalView)[0].startswith("/workspace $ serve")


async def test_another_pane_opens_a_terminal_at_a_byte_of_its_log(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    terminals = _home(builder, tmp_path / "host")
    data = terminal_log_files.segment_file(terminals / "serve", 0).read_bytes()
    async with sit(builder.home, size=SMALL) as seat:
        seat.app.screen.post_message(GoToTerminalLine("r", 0, "serve", data.index(b"GET")))
        await seat.until(lambda: "▎GET /" in seat.text(TerminalView), "at its line")
        assert seat.app.watch_screen.terminals.text.has_focus
        seat.app.screen.post_message(GoToTerminalLine("r", 0, "train", -1))
        await seat.until(lambda: "no memory" in seat.text(TerminalView), "at its end")
        seat.app.screen.post_message(GoToTerminalLine("r", 0, "gone", -1))
        await seat.until(lambda: "The log of gone is gone." in seat.hint(), "said")
