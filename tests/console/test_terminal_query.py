"""A terminal is asked for its colours and for UTF-8; what is typed meanwhile is not lost.

Answers were recorded from the terminals that are named. tmux is asked for real; xterm and screen
too, where they are installed (the development install brings neither).
"""

import fcntl
import os
import pty
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.cells import cell_len

from houston_console.app.terminal_query import (
    NO_ANSWER,
    TerminalAnswer,
    ask_terminal,
    interpret_answers,
)
from houston_console.widgets.ascii_marks import ascii_text, takes_utf8
from houston_console.widgets.color_themes import choose_color_depth
from houston_shared.config_sections import ColorDepth
from tests.console.draw_console import build
from tests.console.test_color_depth import SECONDS, Terminal

XTERM = (
    b"\x1bP1$r0;48:2::1:2:3m\x1b\\\x1bP>|XTerm(379)\x1b\\\x1b[1;1R\x1b[1;2R"
    b"\x1b[?64;1;2;6;9;15;16;17;18;21;22;28c"
)
LATIN_1 = XTERM.replace(b"\x1b[1;2R", b"\x1b[1;3R")
ANSWERS = {
    "xterm": (XTERM, TerminalAnswer("truecolor", True)),
    "xterm without direct colours": (
        XTERM.replace(b"48:2::1:2:3", b"48:5:16"),
        TerminalAnswer("256", True),
    ),
    "xterm that takes no UTF-8": (LATIN_1, TerminalAnswer("truecolor", False)),
    "tmux": (b"\x1bP>|tmux 3.3a\x1b\\\x1b[1;1R\x1b[1;2R\x1b[?1;2c", TerminalAnswer("", True)),
    "screen that takes no UTF-8": (b"\x1b[5;9R\x1b[5;11R\x1b[?1;2c", TerminalAnswer("", False)),
    "known by its name": (b"\x1bP>|WezTerm 2024\x1b\\\x1b[?65c", TerminalAnswer("truecolor")),
    "it does not know the question": (b"\x1bP0$r\x1b\\\x1b[?6c", TerminalAnswer()),
    "written at the edge": (b"\x1b[1;80R\x1b[2;1R\x1b[?6c", TerminalAnswer()),
    "nothing at all": (b"", TerminalAnswer()),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("typed", ["", "jé\x1b[A"], ids=["", "while somebody types"])
def test_what_a_terminal_answers(name: str, typed: str) -> None:
    data, expected = ANSWERS[name]
    before, between, after = (part.encode() for part in (typed, typed, typed))
    split = data.find(b"\x1b[1;1R") if b"\x1b[1;1R" in data else 0
    mixed = before + data[:split] + between + data[split:] + after
    assert interpret_answers(mixed) == expected._replace(typed=typed * 3)


CHOICES: dict[str, tuple[dict[str, str], TerminalAnswer, ColorDepth]] = {
    "over ssh": ({"TERM": "xterm-256color"}, TerminalAnswer("truecolor"), "truecolor"),
    "it does not say": ({"TERM": "xterm-256color"}, NO_ANSWER, "256"),
    "tmux on a terminal of 256": (
        {"TERM": "tmux-256color", "COLORTERM": "truecolor", "TMUX": "x"},
        TerminalAnswer("256"),
        "256",
    ),
    "who wants none": ({"TERM": "xterm", "NO_COLOR": "1"}, TerminalAnswer("truecolor"), "none"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_made_of_the_answer(name: str) -> None:
    environment, answer, depth = CHOICES[name]
    assert choose_color_depth("auto", environment, answer.colors) == depth
    assert choose_color_depth("16", environment, answer.colors) == "16"


def _ask(
    environment: Mapping[str, str], answer: bytes, typed: bytes
) -> tuple[TerminalAnswer, bool]:
    """Ask a terminal that answers so, in pieces; and whether its settings are as before."""
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    os.write(master, typed)

    def play() -> None:
        asked = b""
        while not asked.endswith(b"\x1b[c"):
            asked += os.read(master, 4096)
        for at in range(0, len(answer), 7):
            os.write(master, answer[at : at + 7])

    terminal = threading.Thread(target=play, daemon=True)
    terminal.start()
    try:
        told = ask_terminal(slave, environment)
        return told, termios.tcgetattr(slave) == before
    finally:
        os.close(slave)
        os.close(master)


def test_a_terminal_is_asked_and_left_as_it_was() -> None:
    told = _ask({"TERM": "xterm-256color"}, XTERM, b"5hello")
    assert told == (TerminalAnswer("truecolor", True, "5hello"), True)


def test_a_terminal_that_does_not_answer_is_not_waited_for() -> None:
    assert _ask({"TERM": "xterm"}, b"", b"5") == (TerminalAnswer(typed="5"), True)


@pytest.mark.parametrize("term", ["", "dumb", "linux", "vt220"])
def test_a_terminal_that_might_print_the_question_is_not_asked(term: str) -> None:
    master, slave = pty.openpty()
    try:
        assert ask_terminal(slave, {"TERM": term}) == NO_ANSWER
        assert not select.select([master], [], [], 0)[0]
    finally:
        os.close(master)
        os.close(slave)


_ASK = """
import os, sys
from houston_console.app.terminal_query import ask_terminal
answer = ask_terminal(0, os.environ)
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{answer.colors} {answer.utf8}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
"""


def _ask_in(command: list[str], into: Path, **variables: str) -> str:
    """What a terminal that runs our question says; command: without what it runs."""
    script = into.with_suffix(".py")
    script.write_text(_ASK)
    outer = ("TMUX", "COLORTERM", "LC_ALL", "LANG", "STY", "TERM")
    inherited = {name: value for name, value in os.environ.items() if name not in outer}
    paths = os.pathsep.join(filter(None, sys.path))
    asking = shlex.join(["env", f"PYTHONPATH={paths}", sys.executable, str(script), str(into)])
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*command, asking],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**inherited, "TERM": "xterm-256color", **variables},
        start_new_session=True,
    )
    os.close(slave)
    try:
        end = time.monotonic() + SECONDS
        while not into.exists():
            assert time.monotonic() < end, "no answer"
            if select.select([master], [], [], 0.05)[0]:
                try:
                    os.read(master, 4096)
                except OSError:  # it has ended
                    break
        end = time.monotonic() + 5
        while not into.exists():
            assert time.monotonic() < end, "it ended without an answer"
        return into.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(master)


TMUX_SETTINGS = {
    "RGB": ("set -as terminal-features ',xterm-256color:RGB'\n", "C.UTF-8", "truecolor True"),
    "256": ("", "C.UTF-8", "256 True"),
    "no UTF-8": ("", "C", "256 False"),
}


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
@pytest.mark.parametrize("name", TMUX_SETTINGS)
def test_tmux_says_what_it_knows_of_the_terminal_around_it(name: str, tmp_path: Path) -> None:
    settings, locale, expected = TMUX_SETTINGS[name]
    (tmp_path / "tmux.conf").write_text(settings)
    socket = str(tmp_path / "s")
    command = ["tmux", "-S", socket, "-f", str(tmp_path / "tmux.conf"), "new-session"]
    try:
        assert _ask_in(command, tmp_path / "told", LC_ALL=locale) == expected
    finally:
        subprocess.run(["tmux", "-S", socket, "kill-server"], check=False, capture_output=True)


@pytest.mark.skipif(shutil.which("screen") is None, reason="needs GNU screen")
@pytest.mark.parametrize("locale, utf8", [("C.UTF-8", "True"), ("C", "False")])
def test_screen_says_whether_it_takes_utf8(locale: str, utf8: str, tmp_path: Path) -> None:
    command = ["screen", "-S", f"asked{os.getpid()}", "sh", "-c"]
    assert _ask_in(command, tmp_path / "told", LC_ALL=locale).split() == [utf8]


@pytest.mark.skipif(shutil.which("xvfb-run") is None, reason="needs xterm and Xvfb")
@pytest.mark.parametrize(
    "options, locale, expected",
    [
        ([], "C.UTF-8", "truecolor True"),
        (["-xrm", "*directColor: false"], "C.UTF-8", "256 True"),
        (["-xrm", "*locale: false", "-xrm", "*utf8: 0"], "C", "truecolor False"),
    ],
    ids=["as it comes", "256 colours", "Latin 1"],
)
def test_a_real_xterm_answers(
    options: list[str], locale: str, expected: str, tmp_path: Path
) -> None:
    command = ["xvfb-run", "-a", "xterm", *options, "-e", "sh", "-c"]
    assert _ask_in(command, tmp_path / "told", LC_ALL=locale) == expected


class AnsweringTerminal(Terminal):
    """A terminal that answers, and a person who types at once."""

    def answer(self, data: bytes) -> None:
        self.until(b"\x1b[c")
        os.write(self._master, data)


def _screen(tmp_path: Path, answer: bytes, shown: bytes, **variables: str) -> AnsweringTerminal:
    with build(tmp_path) as builder:
        terminal = AnsweringTerminal(builder.home.path, tmp_path / "state", **variables)
        try:
            terminal.answer(answer)
            terminal.until(shown)
        finally:
            terminal.close()
    return terminal


def test_over_ssh_the_console_has_all_colours_and_what_was_typed(tmp_path: Path) -> None:
    variables = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    terminal = _screen(tmp_path, b"?" + XTERM, b"to filter", **variables)  # the help is open
    assert any(code.startswith("38;2;") for code in terminal.colours())


def test_a_terminal_without_utf8_gets_marks_in_ascii(tmp_path: Path) -> None:
    variables = {"TERM": "xterm-256color", "LC_ALL": "C"}
    terminal = _screen(tmp_path, LATIN_1, b"counts.pop", **variables)
    drawn = terminal.output.split(b"\x1b[?1049h", 1)[1]
    assert drawn.isascii()
    assert b"2 count-words" in drawn
    assert b"+---" in drawn


TEXTS = {
    "─│╭ ● ✓ ✗ ▸ …": "-|+ * v x > .",
    "naïve café": "naive cafe",
    "中文 ok": "???? ok",
    "⣿⣀": "::",
    "plain": "plain",
    "🚀": "??",
}


@pytest.mark.parametrize("text", TEXTS)
def test_every_character_has_one_in_ascii_of_its_width(text: str) -> None:
    assert ascii_text(text) == TEXTS[text]
    assert len(ascii_text(text)) == cell_len(text)


LOCALES: dict[str, tuple[dict[str, str], bool]] = {
    "as most": ({"LANG": "en_GB.UTF-8"}, True),
    "none": ({}, False),
    "C": ({"LANG": "en_GB.UTF-8", "LC_ALL": "C"}, False),
    "Latin 1": ({"LANG": "de_DE.ISO-8859-1"}, False),
    "characters alone": ({"LANG": "C", "LC_CTYPE": "C.utf8"}, True),
    "an empty one is none": ({"LC_ALL": "", "LANG": "C.UTF-8"}, True),
}


@pytest.mark.parametrize("name", LOCALES)
def test_which_locales_take_utf8(name: str) -> None:
    environment, expected = LOCALES[name]
    assert takes_utf8(environment) == expected


def _run(folder: Path, home: Path, words: str) -> tuple[subprocess.Popen[bytes], int]:
    """The console with other streams, and its terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    command = f"{shlex.quote(sys.executable)} -m houston_shared.command console r-7f3a {words}"
    own = {"HOUSTON_HOME": str(home), "XDG_STATE_HOME": str(folder), "TERM": "xterm"}
    process = subprocess.Popen(
        ["sh", "-c", command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, **own},
        start_new_session=True,
    )
    os.close(slave)
    return process, master


STREAMS = {
    "errors into a file": ("--colors 256 2>{folder}/errors", b"run_command", True),
    "input from a pipe": ("--colors 256 </dev/null", b"needs a terminal", False),
    "output into a pipe": ("--colors 256 | cat", b"needs a terminal", False),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_are_no_terminal(name: str, tmp_path: Path) -> None:
    words, text, opens = STREAMS[name]
    with build(tmp_path) as builder:
        home, state = builder.home.path, tmp_path / "state"
        process, master = _run(state, home, words.format(folder=tmp_path))
        output, end = b"", time.monotonic() + SECONDS
        try:
            while text not in output:
                assert time.monotonic() < end, output[-2000:]
                if select.select([master], [], [], 0.1)[0]:
                    output += os.read(master, 1 << 16)
            assert (b"\x1b[?1049h" in output) == opens
            if opens:
                os.write(master, b"q")
                assert process.wait(timeout=SECONDS) == 0
                assert (tmp_path / "errors").read_bytes() == b""
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the shell, and the console in it
            process.wait()
            os.close(master)
