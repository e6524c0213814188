"""The second filter alone: what leaves for the terminal where the first has failed."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.drivers import linux_driver

from houston_console.app import terminal_driver
from houston_shared.home import Home
from tests.security import hostile_home, recogniser
from tests.security.payloads import Payload, corpus
from tests.security.pty_session import Session

SIZE = (160, 50)
TEXTUALS = re.compile(r"sequence '\\x1b\[[0-9;:?<>]*[$]?[mHhlpu]'")
"""What the second filter cannot tell from Textual's own: colours, places, modes, keyboard."""
OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _left(captured: bytes) -> list[str]:
    """Of what the recogniser finds, what a terminal obeys; the rest only deceives a reader."""
    found = recogniser.hostile(captured, recogniser.on_screen(*SIZE))
    sequences = [one for one in found if one[:8] == "sequence" and not TEXTUALS.match(one)]
    ours = r"\x1b\[[0-9;:?<>$]*[mHhlpu]|\x1b\]22;[a-z-]+\x07"
    return sequences + OBEYED.findall(re.sub(ours, "", captured.decode()))


def test_every_sequence_of_textuals_driver_passes() -> None:
    """An upgrade of Textual that writes another one is seen here, not on a broken screen."""
    source = Path(linux_driver.__file__).read_text()
    written = re.findall(r"^(?!\s*#).*write\(f?\"((?:\\x1b|\\033)[^\"]*)\"", source, re.M)
    assert len(written) > 20
    for text in written:
        sequence = text.replace("\\x1b", "\x1b").replace("\\033", "\x1b")
        sequence = sequence.replace("{KITTY_PROTOCOL_FLAG}", "25")
        assert terminal_driver.allow_only(terminal_driver.SCREEN_SEQUENCES, sequence) == sequence, (
            text
        )


@pytest.mark.parametrize(
    "frame",
    [
        "\x1b[1;2H\x1b[38;2;1;2;3;48;2;4;5;6mtext\x1b[0m\n",
        "\x1b[Hé 中 👩‍🔬",
        "\x1b[?2026h",
        "\x1b[1;31m",
    ],
)
def test_a_frame_passes_as_it_is(frame: str) -> None:
    assert terminal_driver.allow_only(terminal_driver.SCREEN_SEQUENCES, frame) == frame


def test_nothing_else_of_the_corpus_passes() -> None:
    for one in corpus():
        assert (
            _left(terminal_driver.allow_only(terminal_driver.SCREEN_SEQUENCES, one.text).encode())
            == []
        ), one


BROKEN = """
from houston_shared import safe_text
safe_text._filter = lambda text: text
"""


def test_with_the_first_filter_broken_the_terminal_obeys_nothing_else(tmp_path: Path) -> None:
    home: Home
    payloads: Sequence[Payload]
    home, payloads = hostile_home.write(tmp_path)
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    more = {"PYTHONPATH": str(tmp_path)}
    with Session(["console", hostile_home.FLOOD], home.path, *SIZE, **more) as session:
        session.until("following")
        session.press("z", *["pageup"] * 6, "v", "escape", "1", "down", "down")
        session.press("ctrl+q")
        session.ended()
        captured = bytes(session.captured)
    assert recogniser.hostile(captured, recogniser.on_screen(*SIZE)), "the first filter was broken"
    assert _left(captured) == []
    assert len(payloads) > 5_000
