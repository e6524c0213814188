"""Terminals: a whole log in pages, what a step left, colours, and the way to the session itself."""

import asyncio
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_console.panes import terminal_log_reader as logs
from houston_console.panes import terminals_pane
from houston_console.panes.terminal_attach import LEAVE_HINT, attach_command
from houston_console.panes.terminal_log_reader import (
    FetchedLogs,
    LogIndex,
    TerminalSnapshot,
    count_lines,
    parse_all_lines,
    parse_tail_lines,
    update_log_index,
)
from houston_console.panes.terminals_pane import TerminalView
from houston_console.transcript.transcript_search import HitsDialog
from houston_console.widgets.styled_text import line_text
from houston_shared import terminal_log_files
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec, TaskRecord, TerminalSpan
from houston_shared.store.store_reader import Reader
from tests.console.conftest import SECONDS, SMALL, Sit
from tests.console.home_builder import HomeBuilder
from tests.support.sshd import Sshd

PROMPT = b"\x1b]7771;p;\x07$ "


def _write(folder: Path, data: bytes, segment: int) -> None:
    """A log cut into segments, as a host does."""
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(0, len(data), segment):
        terminal_log_files.segment_file(folder, at).write_bytes(data[at : at + segment])


def _log(lines: int) -> bytes:
    words = (
        b"%d \x1b[32mok\x1b[0m",
        b"%d",
        b"10 %%\r%d %%",
        b"%d \xe4\xb8\xad",
        PROMPT + b"run %d",
    )
    return b"\r\n".join(words[number % 5] % number for number in range(lines)) + b"\r\n"


LOGS = {
    "short": (b"one\r\ntwo\r\n", 99),
    "without an end": (b"one\r\ntwo", 99),
    "a prompt within a line": (b"no line feed" + PROMPT + b"ls\r\n", 5),
    "many pages in segments": (_log(12_000), 50_000),
    "a line longer than a page": (b"x" * 700_000 + b"\r\n" + b"end", 300_000),
    "only line feeds": (b"\r\n" * 40_000, 30_000),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_in_pages_has_the_lines_of_the_whole(name: str, tmp_path: Path) -> None:
    data, segment = LOGS[name]
    _write(tmp_path / "main", data, segment)
    index = update_log_index(LogIndex(tmp_path / "main"))
    whole = [line_text(row) for row in parse_all_lines(data)]
    lines = [line_text(index.line(number)) for number in range(index.lines)]
    assert lines == whole
    assert count_lines(data) == len(whole)


def test_a_log_is_read_on_where_it_has_grown(tmp_path: Path) -> None:
    data = _log(4_000)
    _write(tmp_path / "main", data[:50_000], 20_000)
    before = update_log_index(LogIndex(tmp_path / "main"))
    assert update_log_index(before) is before
    _write(tmp_path / "main", data, 20_000)
    after = update_log_index(before)
    assert after.pages[0] == before.pages[0]
    assert after == update_log_index(LogIndex(tmp_path / "main"))
    shutil.rmtree(tmp_path / "main")
    _write(tmp_path / "main", b"another\r\n", 99)
    assert [line_text(row) for row in (update_log_index(after).line(0),)] == ["another"]


def test_what_is_before_a_gap_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path / "main", b"1234567\r\nabcdefg\r\nlast\r\n", 9)
    (tmp_path / "main" / "log.0000000000000009").unlink()
    index = update_log_index(LogIndex(tmp_path / "main"))
    assert (index.start, index.lines, line_text(index.line(0))) == (18, 1, "last")


def test_only_pages_that_are_looked_at_are_read(tmp_path: Path) -> None:
    _write(tmp_path / "main", _log(20_000), 10**9)
    index = update_log_index(LogIndex(tmp_path / "main"))
    logs._read_page_lines.cache_clear()
    assert line_text(index.line(index.lines // 2)).strip()
    assert logs._read_page_lines.cache_info().misses == 1


def test_the_log_as_it_was_when_a_step_ended(tmp_path: Path) -> None:
    parts = [b"$ one\r\na\r\n", b"$ two\r\n10 %\r20 %\r", b"99 %\r\n$ three\r\n"]
    _write(tmp_path / "main", b"".join(parts), 12)
    index = update_log_index(LogIndex(tmp_path / "main"))
    start, end = len(parts[0]), len(parts[0]) + len(parts[1])
    then = index.up_to(end)
    assert [line_text(then.line(n)) for n in range(then.lines)] == ["$ one", "a", "$ two", "20 %"]
    assert [index.line_of(at) for at in (0, start, start + 1, index.end)] == [0, 2, 2, 5]
    assert index.up_to(index.end + 99) == index


COLOURS = {
    b"\x1b[1;32mx": "success",
    b"\x1b[1mx": "strong",
    b"\x1b[1m\x1b[22mx": "text",
    b"\x1b[31m\x1b[mx": "text",
    b"\x1b[38;5;196mx": "error",
    b"\x1b[38;5;34mx": "success",
    b"\x1b[38;5;1mx": "error",
    b"\x1b[38;2;250;240;10mx": "warning",
    b"\x1b[38:2::10:10:250mx": "tool",
    b"\x1b[38;5;244mx": "dim",
    b"\x1b[48;5;196mx": "text",
    b"\x1b[44;33mx": "warning",
}


@pytest.mark.parametrize("data", COLOURS)
def test_colours_become_tones(data: bytes) -> None:
    assert [(part.text, part.tone) for part in parse_tail_lines(data)[0]] == [("x", COLOURS[data])]


def _home(builder: HomeBuilder, root: Path) -> Path:
    """Three steps that printed, and one that did not."""
    folder = root / "rollouts" / "r" / "terminals" / "main"
    texts = [f"output of step {number}\r\n".encode() for number in (1, 2, 4)]
    _write(folder, b"".join(texts), 10)
    with builder.bulk():
        builder.start("r", host_root=str(root))
        at = 0
        for number in range(1, 5):
            size = 0 if number == 3 else len(texts[0])
            span = TerminalSpan(host="local", terminal="main", start=at, end=at + size)
            builder.whole("r", number, "runs", spans=(span,) if size else ())
            at += size
    return folder


async def test_a_terminal_shows_what_each_step_left(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    folder = _home(builder, tmp_path / "host")
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("2", "k", "3", "at")
        await seat.until(lambda: "as step 2 left it" in seat.frame("#terminals"), "the step before")
        assert "output of step 4" not in seat.text(TerminalView)
        assert "▎output of step 2" in seat.text(TerminalView)
        with (folder / "log.0000000000000050").open("ab") as file:
            file.write(b"news\r\n")
        await seat.press("right_curly_bracket")
        await seat.until(lambda: "as step 4 left it" in seat.frame("#terminals"), "the next")
        assert "news" not in seat.text(TerminalView)
        await seat.press("left_curly_bracket", "left_curly_bracket", "left_curly_bracket")
        assert "as step 1 left it" in seat.frame("#terminals")
        assert "No step before step 1" in seat.bar("#hints")
        assert await seat.app.watch_screen.terminals.text.text_to_copy() == (
            "what the step printed",
            "output of step 1",
        )
        await seat.press("at")
        await seat.until(lambda: "news" in seat.text(TerminalView), "live again")
        await seat.press("left_curly_bracket", "enter")
        await seat.until(lambda: seat.transcript.cursor == 2, "at the step")


def _two_terminals(builder: HomeBuilder, root: Path) -> Path:
    """One here, and one elsewhere whose log is not here; another rollout has one, too."""
    first = _home(builder, root)
    span = TerminalSpan(host="gpu", terminal="train", start=0, end=9)
    builder.whole("r", 5, "trains", spans=(span,))
    log = root / "rollouts" / "next" / "terminals" / "main"
    _write(log, b"".join(b"line %d\r\n" % number for number in range(90)), 10)
    builder.start("next", host_root=str(root))
    builder.whole("next", 1, spans=(TerminalSpan(host="local", terminal="main", start=0, end=9),))
    return first


@pytest.mark.parametrize("way", ["another terminal", "another rollout"])
async def test_a_line_of_a_log_that_is_not_here_is_not_looked_for_in_the_next(
    builder: HomeBuilder, sit: Sit, tmp_path: Path, way: str
) -> None:
    log = _two_terminals(builder, tmp_path / "host")
    async with sit(builder.home, "r") as seat:
        terminals = seat.app.watch_screen.terminals
        await seat.until(lambda: len(terminals.names) == 2, "both")
        await terminals.show_line("train", 3, "gpu")
        assert "is on the host gpu, not here" in seat.text(TerminalView)
        if way == "another terminal":
            await terminals.action_terminal(1)
            with (log / "log.0000000000000050").open("ab") as file:
                file.write(b"news\r\n")
            await seat.until(lambda: "news" in seat.text(TerminalView), "the log")
        else:
            await seat.app.watch_screen.open_rollout("next")
            await seat.until(lambda: "line 89" in seat.text(TerminalView), "the end of the log")
        assert "▎" not in seat.text(TerminalView)


@pytest.mark.parametrize("way", ["another terminal", "another rollout"])
async def test_what_was_read_of_a_terminal_that_was_left_is_not_shown(
    builder: HomeBuilder, sit: Sit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    _two_terminals(builder, tmp_path / "host")
    may_go_on, reads_log = threading.Event(), threading.Event()
    up_to = LogIndex.up_to

    def read_late(index: LogIndex, byte: int) -> LogIndex:
        reads_log.set()
        may_go_on.wait(SECONDS)
        return up_to(index, byte)

    monkeypatch.setattr(LogIndex, "up_to", read_late)
    async with sit(builder.home, "r") as seat:
        terminals = seat.app.watch_screen.terminals
        await seat.until(lambda: len(terminals.names) == 2, "both")
        await terminals.show_line("main", -1)
        replay = asyncio.create_task(terminals._replay_step(2))
        await seat.until(reads_log.is_set, "the log is read")
        if way == "another terminal":
            await terminals.action_terminal(1)
        else:
            await seat.app.watch_screen.open_rollout("next")
        may_go_on.set()
        await replay
        assert "as step 2 left it" not in seat.frame("#terminals")
        assert "output of step 2" not in seat.text(TerminalView)


async def test_a_log_that_is_read_late_is_not_shown_under_the_next_rollout(
    builder: HomeBuilder, sit: Sit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a terminal of the same name; a line that is looked for in the next stays so."""
    left = _two_terminals(builder, tmp_path / "host")
    was_read, may_go_on = asyncio.Event(), asyncio.Event()
    read_terminal = logs.read_terminal

    async def read_late(folder: Path, before: TerminalSnapshot) -> TerminalSnapshot:
        snapshot = await read_terminal(folder, before)
        if folder == left:
            was_read.set()
            await may_go_on.wait()
        return snapshot

    async with sit(builder.home, "r") as seat:
        terminals = seat.app.watch_screen.terminals
        await seat.until(lambda: len(terminals.names) == 2, "both")
        await terminals.show_line("main", -1)
        monkeypatch.setattr(logs, "read_terminal", read_late)
        late = asyncio.create_task(terminals._read_chosen(("local", "main")))
        await was_read.wait()
        await seat.app.watch_screen.open_rollout("next")
        await seat.until(lambda: terminals.names == [("local", "main")], "those of the next")
        terminals._wanted_byte = 3
        may_go_on.set()
        assert not await late
        assert "output of step" not in seat.text(TerminalView)
        assert terminals._wanted_byte == 3 or "▎line" in seat.text(TerminalView)


async def test_a_search_in_a_log_opens_its_line(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    folder = _home(builder, tmp_path / "host")
    with (folder / "log.0000000000000050").open("ab") as file:
        file.write(b"".join(b"line %d of many\r\n" % number for number in range(300)))
    async with sit(builder.home) as seat:
        await seat.press("slash", "ctrl+t", "ctrl+t", "ctrl+t")
        await seat.write("line 150 of")
        await seat.press("enter")
        search = seat.app.watch_screen.trajectory.search
        await seat.until(lambda: search.hits and search.hits.hits, "found")
        await seat.until(lambda: isinstance(seat.app.screen, HitsDialog), "listed")
        await seat.press("enter")
        text = seat.app.watch_screen.terminals.text
        await seat.until(lambda: "▎line 150 of many" in seat.text(TerminalView), "at its line")
        assert text.has_focus
        with (folder / "log.0000000000000050").open("ab") as file:
            file.write(b"news\r\n")
        await seat.until(lambda: text.line_count() == 304, "more was printed")
        assert "▎line 150 of many" in seat.text(TerminalView)  # it stays in view


def test_a_branch_shows_terminals_of_the_past_that_it_shares(
    builder: HomeBuilder, tmp_path: Path
) -> None:
    _home(builder, tmp_path / "host")
    builder.rollout("limb", parent="r", parent_step=2)
    span = TerminalSpan(host="local", terminal="main", start=0, end=7)
    builder.whole("limb", 3, "runs", spans=(span,))
    expected = {(3, 0): ("limb", 3), (2, 0): ("r", 2), (3, -1): ("r", 2), (2, 1): ("limb", 3)}
    with Reader(builder.home) as reader:
        for (step, by), place in expected.items():
            printed = reader.run(terminals_pane.read_step_output("limb", "local", "main", step, by))
            assert printed
            assert (printed.rollout, printed.step) == place
        assert reader.run(terminals_pane.read_step_output("limb", "local", "main", 1, -1)) is None
        assert reader.run(terminals_pane.read_step_output("limb", "local", "main", 3, 1)) is None


async def test_a_terminal_over_the_whole_screen(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    _home(builder, tmp_path / "host")
    async with sit(builder.home) as seat:
        await seat.press("3", "z")
        text = seat.app.watch_screen.terminals.text
        await seat.until(lambda: text.size.width > 150, "whole")
        await seat.press("2")
        await seat.until(lambda: text.size.width < 80, "and back with another area")


def _spec(root: Path, **fields: Any) -> RolloutSpec:
    task = TaskRecord(name="t", folder="/t", definition="", instructions="")
    return RolloutSpec(
        rollout="r", task=task, engine="x", engine_settings={}, host_root=str(root), **fields
    )


def test_the_way_to_a_session_is_named_or_why_there_is_none(tmp_path: Path) -> None:
    far = {"ssh": "me@far", "port": 2222, "host_root": "/data/h"}
    spec = _spec(tmp_path, hosts={"gpu": far, "own": {"ssh": "own"}}, host_key="k")
    assert "no tmux session" in attach_command(spec, "local", "main").reason
    assert "does not say where" in attach_command(spec, "moon", "main").reason
    command = attach_command(spec, "gpu", "main").command
    assert command[:6] == ("ssh", "-t", "-p", "2222", "--", "me@far")
    assert '-S "$(cat /data/h/rollouts/r/terminals/socket)"' in command[6]
    assert "attach-session -r -t =main" in command[6]
    assert "~/.local/state/houston/k/rollouts" in attach_command(spec, "own", "main").command[-1]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
async def test_a_person_attaches_read_only_and_leaves_with_one_key(tmp_path: Path) -> None:
    terminals = tmp_path / "rollouts" / "r" / "terminals"
    terminals.mkdir(parents=True)
    socket, outer = tmp_path / "a", tmp_path / "o"
    terminal_log_files.socket_note(terminals).write_text(f"{socket}\n")

    def tmux(at: Path, *words: str) -> str:
        command = ("tmux", "-f", "/dev/null", "-S", str(at), *words)
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return process.stdout

    async def until(text: str) -> None:
        for _ in range(200):
            if text in tmux(outer, "capture-pane", "-p", "-t", "=person:"):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(tmux(outer, "capture-pane", "-p", "-t", "=person:"))

    try:
        tmux(
            socket,
            "new-session",
            "-d",
            "-s",
            "main",
            "cat; echo ended",
            ";",
            "set",
            "prefix",
            "None",
        )
        command = attach_command(_spec(tmp_path), "local", "main").command
        shell = f"env -u TMUX {shlex.join(command)}; cat"
        tmux(outer, "new-session", "-d", "-s", "person", "-x", "90", "-y", "20", shell)
        await until(LEAVE_HINT)
        tmux(outer, "send-keys", "-t", "=person:", "typed", "C-c")
        tmux(socket, "send-keys", "-t", "=main:", "from the agent", "Enter")
        await until("from the agent")
        assert "typed" not in tmux(socket, "capture-pane", "-p", "-t", "=main:")
        tmux(outer, "send-keys", "-t", "=person:", "C-q")
        await until("[detached")
        assert "main" in tmux(socket, "list-sessions")
    finally:
        for at in (outer, socket):
            tmux(at, "kill-server")


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Sshd]:
    """Another machine, over a real sshd."""
    sshd = Sshd(tmp_path / "s")
    sshd.start()
    yield sshd
    sshd.close()


async def test_a_log_elsewhere_is_fetched_and_then_what_is_new_of_it(
    builder: HomeBuilder, sit: Sit, remote: Sshd
) -> None:
    far = terminal_log_files.terminals_folder(Path(remote.host.host_root), "r") / "train"
    _write(far, b"epoch 1\r\n", 99)
    keys = ("ssh", "ssh_config", "host_root", "command")
    hosts = {"gpu": {key: getattr(remote.host, key) for key in keys}}
    with builder.bulk():
        builder.start("r", hosts=hosts)
        span = TerminalSpan(host="gpu", terminal="train", start=0, end=9)
        builder.whole("r", 1, "trains", spans=(span,))
    async with sit(builder.home) as seat:
        await seat.press("3", "F")
        await seat.until(lambda: "epoch 1" in seat.text(TerminalView), "fetched")
        with (far / "log.0000000000000000").open("ab") as file:
            file.write(b"epoch 2\r\n")
        await seat.press("F")
        await seat.until(lambda: "epoch 2" in seat.text(TerminalView), "what is new")
        assert seat.lines(TerminalView)[:2] == ["epoch 1", "epoch 2"]
        await seat.press("at")
        await seat.until(lambda: "as step 1 left it" in seat.frame("#terminals"), "at its step")
        assert "epoch 2" not in seat.text(TerminalView)


async def test_a_log_elsewhere_says_so_and_why_it_cannot_be_fetched(
    builder: HomeBuilder, sit: Sit, tmp_path: Path
) -> None:
    with builder.bulk():
        builder.start("r", host_root=str(tmp_path))
        span = TerminalSpan(host="gpu", terminal="train", start=0, end=5)
        builder.whole("r", 1, "runs", spans=(span,))
    async with sit(builder.home) as seat:
        await seat.press("3")
        await seat.until(lambda: "is on the host gpu, not here" in seat.text(TerminalView), "said")
        await seat.press("exclamation_mark")
        assert "does not say where the host gpu is" in seat.bar("#hints")
    fetched = FetchedLogs()
    with pytest.raises(HoustonError, match="has no terminals on 'gpu'"):
        await fetched.fetch(builder.home.path, "r", "gpu", "train")
    place = fetched.folder_of("r", "gpu", "train")
    fetched.close()
    assert not os.path.exists(place)
