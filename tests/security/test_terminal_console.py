"""The console in a real terminal: every area over the whole corpus, and not one hostile byte."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from houston_shared.home import Home
from tests.security import hostile_home, payloads, recogniser
from tests.security.hostile_home import A_STEP
from tests.security.payloads import Payload
from tests.security.pty_session import Session
from tests.support.tiers import sampled

Seeded = tuple[Home, Sequence[Payload]]
AT_LEAST = 5_000
HIGH, SMALL = (160, 50), (80, 24)
TALL = (118, 330)
"""One area at a time, and a step of the corpus on one screen."""
PASTE = "\x1b[200~pasted \x1b]52;c;QQ\x07\x9b8m [/x] \u202e end\x1b[201~"


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Seeded:
    return hostile_home.write(tmp_path_factory.mktemp("hostile"))


def _judge(session: Session, size: tuple[int, int]) -> None:
    captured = bytes(session.captured)
    assert recogniser.hostile(captured, recogniser.on_screen(*size)) == []
    assert b"\x1b]52" not in captured, "the clipboard was written, and no key asked"


@pytest.mark.slow
def test_a_walk_through_the_whole_corpus(seeded: Seeded) -> None:
    home, all_payloads = seeded
    steps = [all_payloads[at : at + A_STEP] for at in range(0, len(all_payloads), A_STEP)]
    with Session(["console", hostile_home.FLOOD], home.path, *TALL) as session:
        session.until("following")
        session.press("z")
        for number, shown in enumerate(steps, 1):
            session.press(f":{number}\r")
            for _ in range(3):  # a step that is higher than the screen is read a page at a time
                if session.shows(shown[-1].mark, 2):
                    break
                session.press("pagedown")
        session.press("ctrl+q")
        assert session.ended() == 0
        _judge(session, TALL)
        seen = payloads.marks(recogniser.shown(bytes(session.captured)))
        assert len(seen) >= AT_LEAST, f"only {len(seen)} of {len(all_payloads)} were shown"


@pytest.mark.parametrize("size", sampled([SMALL, (200, 60)], 1))
def test_every_area_at_every_size(seeded: Seeded, size: tuple[int, int]) -> None:
    with Session(["console", hostile_home.FLOOD], seeded[0].path, *size) as session:
        session.until("following")
        session.press(
            "v", "2", "pageup", "1", "g", "3", "escape"
        )  # the prompt inspector and its texts
        session.press("4", "right", "down", "enter", "escape", "3", "right", "6", "down", "enter")
        session.press("/", "owned", "enter", "n", "N", "escape", "/", PASTE, "enter", "escape")
        session.press(":", PASTE, "enter", "?", "escape")
        # More digits than Python makes a number of; nobody types as many.
        for number in ("\u00b2", "+-5", f"\x1b[200~{'9' * 5000}\x1b[201~", "-"):
            session.press(f":{number}\r", "escape")
        session.press("5", PASTE, "\x18", "n", "escape")  # a draft; interrupting asks, and no
        session.press("1", *["down", "enter", "v", "escape", "1"] * 3)
        session.press("p", "r", "\x0b", "n", "escape")  # a question that came late is closed, too
        session.press("ctrl+q")
        assert session.ended() == 0
        _judge(session, size)
        assert len(payloads.marks(recogniser.shown(bytes(session.captured)))) > 50


@pytest.mark.slow
def test_a_line_of_a_megabyte(seeded: Seeded) -> None:
    with Session(["console", hostile_home.LONG], seeded[0].path, *HIGH) as session:
        session.until("following")
        session.press("z", "g")
        session.until("m" * 60)
        session.press("pagedown", "end", "v", "2", "g", "escape", "/", "mmm", "enter")
        session.press("ctrl+q")
        assert session.ended() == 0
        _judge(session, HIGH)


@pytest.mark.slow
def test_names_of_rollouts_and_tasks_open_the_console(seeded: Seeded) -> None:
    """The window's title stays as it is, whatever is opened."""
    for name in ("00", "07", "13"):
        with Session(["console", name], seeded[0].path, *SMALL) as session:
            session.until("step 2")
            session.press("z", "G", "ctrl+q")
            assert session.ended() == 0
            _judge(session, SMALL)


def test_only_a_key_writes_the_clipboard_and_what_it_copies_is_safe(
    seeded: Seeded, tmp_path: Path
) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}  # where no draft of another test waits
    with Session(["console", hostile_home.FLOOD], seeded[0].path, *HIGH, **state) as session:
        session.until("following")
        session.press("5", "a [/x] word of mine")
        session.until("word of mine")
        session.press("\x1b[1;2H")  # shift+home selects the line
        assert b"\x1b]52" not in session.captured
        session.press("ctrl+c")
        session.until("\x1b]52;c;")
        _, _, rest = bytes(session.captured).partition(b"\x1b]52;c;")
        copied = base64.b64decode(rest.partition(b"\x07")[0]).decode()
        assert "word of mine" in copied
        assert recogniser.hostile(copied.encode(), recogniser.in_commands) == []
        session.press("ctrl+q")
        assert session.ended() == 0


HOSTILE_FAULT = """
def broken(*given, **named):
    text = '\\x1b[8mhidden\\x9b8m\\u202e\\x1b]0;owned\\x07'
    raise RuntimeError(text)
"""


def _breaking(folder: Path, program: str) -> dict[str, str]:
    """A console in which a function of ours raises; its trace shows what agents wrote."""
    (folder / "sitecustomize.py").write_text(HOSTILE_FAULT + program)
    return {"PYTHONPATH": str(folder)}


def test_a_fault_that_ends_the_console_is_told_in_safe_words(
    tmp_path: Path, seeded: Seeded
) -> None:
    program = (
        "from houston_console.app.console_app import HoustonConsole\nHoustonConsole.apply_theme ="
        " broken\n"
    )
    more = _breaking(tmp_path, program)
    with Session(["console", hostile_home.FLOOD], seeded[0].path, *HIGH, **more) as session:
        assert session.ended() != 0
        screen, closed, told = bytes(session.captured).partition(b"\x1b[?1049l")
        assert recogniser.hostile(screen + closed, recogniser.on_screen(*HIGH)) == []
        told = re.sub(rb"\x1b(?:\[(?:\?\d+[hl]|<u)|\]22;default\x07)", b"", told)
        assert recogniser.hostile(told, recogniser.in_traces) == []
        assert b"hidden" in told


@pytest.mark.slow
def test_a_fault_of_one_pane_is_kept_in_safe_words(tmp_path: Path, seeded: Seeded) -> None:
    program = (
        "from houston_console.transcript import step_rendering\n"
        "step_rendering.folded_line = broken\n"
    )
    more = _breaking(tmp_path, program)
    with Session(["console", hostile_home.FLOOD], seeded[0].path, *HIGH, **more) as session:
        session.until("A part of the console failed")
        session.press("ctrl+q")
        assert session.ended() == 0
        _judge(session, HIGH)
        (log,) = session.state.rglob("console.log")
        assert recogniser.hostile(log.read_bytes(), recogniser.in_traces) == []
        assert b"hidden" in log.read_bytes()
