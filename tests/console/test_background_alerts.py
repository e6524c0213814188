"""A console in the background calls its person: when, in which words, and how the terminal hears.

The last test is a real console on a terminal that says that it lost the focus.
"""

import os
from pathlib import Path

import pytest

from houston_console.app.background_alerts import BackgroundAlerts
from houston_console.app.console_state import NeedsBoard
from houston_console.app.terminal_driver import notification_sequence
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import ConsoleSettings
from houston_shared.home import Home
from houston_shared.store.attention_ranking import MarkedStep, RolloutOverview, rank_rollouts
from tests.console.home_builder import HomeBuilder
from tests.console.test_terminal_gone import open_console, until
from tests.unit.store.test_attention_ranking import NOW, rollout

FOCUS_LOST, FOCUS_BACK = b"\x1b[O", b"\x1b[I"


def board(**signals: str) -> NeedsBoard:
    """Rollouts by name, each with one signal; empty for none."""
    overviews = [
        RolloutOverview(rollout(name), [MarkedStep(name, 9, (signal,), {})] if signal else ())
        for name, signal in signals.items()
    ]
    return NeedsBoard(rank_rollouts(overviews, NOW))


def alerts(bell: bool = True) -> BackgroundAlerts:
    config = Configuration(console=ConsoleSettings(bell=bell))
    made = BackgroundAlerts(LoadedConfiguration(config, Home(Path("/home")), "defaults"))
    assert made.new_needs(board(a="", b=""), False) == "", "what holds at first is no news"
    return made


def test_what_is_new_in_the_background_is_told_once() -> None:
    made = alerts()
    assert made.new_needs(board(a="error_streak", b=""), False) == "a: error streak"
    assert made.new_needs(board(a="error_streak", b=""), False) == ""
    assert made.new_needs(board(a="", b=""), False) == ""
    assert made.new_needs(board(a="error_streak", b=""), False) == "", "it only flickers"
    assert made.new_needs(board(a="error_streak", b="score_fell"), False) == "b: score fell"


def test_several_are_one_line() -> None:
    told = alerts().new_needs(board(a="error_streak", b="score_fell"), False)
    assert told == "2 need you, first a: error streak"


def test_who_looks_is_not_called_and_has_seen_it() -> None:
    made = alerts()
    assert made.new_needs(board(a="error_streak", b=""), True) == ""
    assert made.new_needs(board(a="error_streak", b=""), False) == ""


def test_what_is_not_urgent_calls_nobody() -> None:
    assert alerts().new_needs(board(a="near_budget", b="error"), False) == ""


def test_it_can_be_turned_off() -> None:
    assert alerts(bell=False).new_needs(board(a="error_streak"), False) == ""


@pytest.mark.parametrize(
    ("environment", "sequence"),
    [
        pytest.param({"TERM": "xterm-256color"}, "\x1b]9;Houston: a: b; c\x07", id="most: OSC 9"),
        pytest.param({"TERM": "foot"}, "\x1b]777;notify;Houston;a: b, c\x07", id="foot"),
        pytest.param({"TERM": "xterm", "VTE_VERSION": "7600"},
                     "\x1b]777;notify;Houston;a: b, c\x07", id="VTE"),
        pytest.param({"TERM": "tmux-256color", "TMUX": "/tmp/t,1,0"},
                     "\x1bPtmux;\x1b\x1b]9;Houston: a: b; c\x07\x1b\\", id="in tmux"),
        pytest.param({"TERM": "linux"}, "", id="the kernel's console"),
        pytest.param({}, "", id="nobody knows"),
    ],
)  # fmt: skip
def test_a_terminal_is_asked_in_its_own_way(environment: dict[str, str], sequence: str) -> None:
    assert notification_sequence("a: b; c", environment) == sequence


@pytest.mark.parametrize("text", ["\x1b]0;x\x07", "\x9d9;y\x9c", "a\nb\x07", "\u202eabc"])
def test_an_agents_words_end_no_sequence(text: str) -> None:
    sequence = notification_sequence(text, {"TERM": "xterm"})
    inside = sequence.removeprefix("\x1b]9;").removesuffix("\x07")
    assert not [character for character in inside if not character.isprintable()]


def test_a_console_in_the_background_rings(builder: HomeBuilder, tmp_path: Path) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "I look at what there is.")
    with open_console(builder.home, tmp_path) as terminal:
        until(lambda: terminal.shows(b"I look at what"), "the step shows")
        os.write(terminal.master, FOCUS_LOST)
        builder.whole("r", 2, "And again.", attention=("error_streak",))
        until(lambda: terminal.shows(b"\x07\x1b]9;Houston: r: error streak\x07"), "it rings")
        os.write(terminal.master, FOCUS_BACK)
        builder.whole("r", 3, "Yet again.", attention=("score_fell",))
        until(lambda: terminal.shows(b"Yet again."), "the step shows")
        assert terminal.output.count(b"\x1b]9;") == 1
