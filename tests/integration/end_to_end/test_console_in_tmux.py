"""The console in a real terminal: a person looks, says one sentence and sees it heard."""

import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.station import Station

STEPS = [{"thought": "I wait for a word.", "calls": [
    {"name": "sleep", "arguments": {"sleep_time": 600}}
]}, {"thought": "On.", "calls": [{"name": "list_files", "arguments": {"path": "."}}]}]  # fmt: skip


class Screen:
    """One tmux session that shows the console."""

    def __init__(self, station: Station, *words: str) -> None:
        self.socket = str(station.folder / "screen")
        command = [sys.executable, "-m", "houston_shared.command", "console", *words]
        variables = [f"{k}={v}" for k, v in station.environment.items() if k.startswith("HOUSTON")]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "50",
                  shlex.join(["env", f"HOME={station.folder}", *variables, *command]))  # fmt: skip

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self.socket, *words], capture_output=True, text=True, check=False
        )
        return done.stdout

    def shows(self) -> str:
        return self.tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)


@pytest.fixture
def screen(station: Station) -> Iterator[Screen]:
    station.start()
    (rollout,) = station.rollout(station.task(), station.script(STEPS))
    station.until(
        lambda: station.query("SELECT 1 FROM events WHERE rollout=? AND part='intent.0'", rollout),
        why="the agent sleeps",
    )
    made = Screen(station, rollout)
    yield made
    made.tmux("kill-server")


def test_a_sentence_typed_in_the_console_is_heard(station: Station, screen: Screen) -> None:
    station.until(lambda: "I wait for a word." in screen.shows(), 30, "the step shows")
    screen.press("5")
    screen.type("先看 README, then go on.")
    station.until(lambda: "then go on." in screen.shows(), 10, "what is typed shows")
    screen.press("C-w")
    heard = station.until(
        lambda: [g for g in _said(station) if g["state"] == "delivered"], 30, "it is heard"
    )
    assert [(g["text"], g["mode"], g["step"]) for g in heard] == [
        ("先看 README, then go on.", "wake", 1)
    ]
    station.until(lambda: "step 1" in screen.shows(), 10, "the queue says where it was heard")
    assert "daemon down" not in screen.shows()


def test_the_console_goes_on_without_a_daemon(station: Station, screen: Screen) -> None:
    station.until(lambda: "I wait for a word." in screen.shows(), 30, "the step shows")
    screen.press("5")
    screen.type("kept while the daemon is away")
    station.kill_daemon()
    station.until(lambda: "daemon down" in screen.shows(), 30, "it says so")
    assert "kept while the daemon is away" in screen.shows()
    screen.press("C-w")
    station.until(lambda: "unsent" in screen.shows(), 10, "it waits, unsent")
    station.start()
    station.until(lambda: [g["state"] for g in _said(station)] == ["delivered"], 30, "sent once")


def _said(station: Station) -> list[dict[str, object]]:
    (row,) = station.json("rollout", "list")
    return station.json("guidance", row["rollout"])
