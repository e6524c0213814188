"""Keys as bytes that came in one read: each is one key, also behind an escape."""

import pytest

from houston_console.app.terminal_driver import TypedKeyParser

TYPED = {
    "a letter": ("q", ["q"]),
    "escape and a letter": ("\x1bq", ["escape", "q"]),
    "escape and a digit": ("\x1b1", ["escape", "1"]),
    "escape and ctrl+q": ("\x1b\x11", ["escape", "ctrl+q"]),
    "escape and tab": ("\x1b\t", ["escape", "tab"]),
    "escape and what opens a draft": ("\x1bi\x1bg", ["escape", "i", "escape", "g"]),
    "escape, escape, a letter": ("\x1b\x1bq", ["escape", "escape", "q"]),
    "escape and an arrow": ("\x1b\x1b[B", ["escape", "down"]),
    "escape and words": ("\x1bgz\r", ["escape", "g", "z", "enter"]),
    "alt and an arrow": ("\x1b[1;3A", ["alt+up"]),
    "alt and enter, a new line": ("\x1b\r", ["alt+enter"]),
    "a word back, as a Mac sends it": ("\x1bb", ["ctrl+left"]),
    "a word deleted": ("\x1b\x7f", ["ctrl+w"]),
    "a function key": ("\x1bOP", ["f1"]),
    "escape, as kitty's protocol has it": ("\x1b[27u", ["escape"]),
}


@pytest.mark.parametrize(("typed", "keys"), TYPED.values(), ids=TYPED.keys())
def test_each_key_is_read_as_it_was_typed(typed: str, keys: list[str]) -> None:
    parser = TypedKeyParser()
    read = [*parser.feed(typed), *parser.feed("")]
    assert [key.key for key in read if hasattr(key, "key")] == keys
