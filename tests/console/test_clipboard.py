"""What a person copies arrives: by the way that their terminal has, or in a file that is named."""

import asyncio
import base64
import re
import subprocess
from pathlib import Path

import pytest

from houston_console.app import terminal_driver
from houston_console.app.terminal_driver import clipboard_sequence
from tests.console.conftest import SMALL, Sit
from tests.console.home_builder import HomeBuilder

WAYS = {
    "a terminal": ({"TERM": "xterm-256color"}, "terminal"),
    "in a tmux": ({"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0"}, "tmux"),
    "a tmux before the SSH": ({"TERM": "tmux-256color"}, "passed through"),
    "a screen before the SSH": ({"TERM": "screen"}, "passed through"),
    "nothing is known": ({}, "terminal"),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_way_is_told_by_the_environment(name: str) -> None:
    environment, wanted = WAYS[name]
    assert terminal_driver.clipboard_method(environment) == wanted


_CLIPBOARD_SEQUENCE = re.compile(
    r"\x1b\]52;c;[A-Za-z0-9+/=]*\x07|\x1bPtmux;\x1b\x1b\]52;c;[A-Za-z0-9+/=]*\x07\x1b\\"
)


@pytest.mark.parametrize("passed", [False, True])
def test_what_is_sent_sets_the_clipboard_and_nothing_else(passed: bool) -> None:
    sequence = clipboard_sequence("words 中文\n", passed)
    assert _CLIPBOARD_SEQUENCE.fullmatch(sequence)
    assert base64.b64encode("words 中文\n".encode()).decode() in sequence


async def test_what_is_too_long_for_a_terminal_is_in_a_file(tmp_path: Path) -> None:
    sent: list[str] = []
    text = "long " * 20_000
    result = await terminal_driver.copy_text(text, "step 3", {}, sent.append, tmp_path / "state")
    (file,) = (tmp_path / "state").iterdir()
    assert str(file) in result.text
    assert file.read_text() == text
    assert file.stat().st_mode & 0o077 == 0
    assert not sent


async def test_a_tmux_that_is_gone_leaves_the_terminal(tmp_path: Path) -> None:
    sent: list[str] = []
    variables = {"TMUX": f"{tmp_path}/gone,1,0", "PATH": "/usr/bin:/bin"}
    result = await terminal_driver.copy_text("words", "a line", variables, sent.append, tmp_path)
    assert result.succeeded
    assert sent == [clipboard_sequence("words", False)]


async def test_a_real_tmux_has_it_in_its_buffer(tmp_path: Path) -> None:
    socket = tmp_path / "tmux"
    tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
    await asyncio.to_thread(subprocess.run, [*tmux, "new-session", "-d", "cat"], check=True)
    try:
        inside = {"TMUX": f"{socket},1,0", "PATH": "/usr/bin:/bin"}
        result = await terminal_driver.copy_text(
            "héllo\n中文", "step 3", inside, lambda _: None, tmp_path
        )
        shown = await asyncio.to_thread(
            subprocess.run, [*tmux, "show-buffer"], capture_output=True, check=True
        )
        assert shown.stdout.decode() == "héllo\n中文"
        assert result.text == "Copied step 3, 8 characters, through tmux."
    finally:
        await asyncio.to_thread(subprocess.run, [*tmux, "kill-server"], check=True)


async def test_a_key_copies_the_whole_step(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    builder.start("r")
    builder.whole("r", 1, "What I think of it", texts=("printed " * 40 + "END",))
    sent: list[str] = []
    async with sit(builder.home, size=SMALL) as seat:
        monkeypatch.setattr(seat.app, "_write_to_terminal", sent.append)
        await seat.press("y")
        await seat.until(lambda: sent, "copied")
        encoded = sent[0].removeprefix("\x1b]52;c;").removesuffix("\x07")
        text = base64.b64decode(encoded).decode()
        assert "What I think of it" in text
        assert "printed printed" in text
        assert text.count("END") == 1
        assert "Copied step 1" in seat.bar("#hints")
        seat.app.copy_in_background("what no key asked for", "words")
        await seat.pilot.pause()
        assert len(sent) == 1


async def test_what_the_mouse_selects_is_what_is_copied(
    builder: HomeBuilder, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    builder.start("r")
    builder.whole("r", 1, "first of all")
    builder.whole("r", 2, "second")
    sent: list[str] = []
    async with sit(builder.home, size=SMALL) as seat:
        monkeypatch.setattr(seat.app, "_write_to_terminal", sent.append)
        await seat.pilot.mouse_down("#transcript", offset=(0, 1))
        await seat.pilot.hover("#transcript", offset=(70, 2))
        await seat.pilot.mouse_up("#transcript", offset=(70, 2))
        await seat.press("y")
        await seat.until(lambda: sent, "copied")
        encoded = sent[0].removeprefix("\x1b]52;c;").removesuffix("\x07")
        text = base64.b64decode(encoded).decode()
        assert [line.split()[-1] for line in text.splitlines()] == ["all", "second"]
