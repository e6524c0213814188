"""A person at a real terminal, logged in over SSH, in a tmux there: nothing between is made up.

How the terminal and the login are made is `tests.support.ssh_login`'s.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ssh_login import Desk
from tests.support.sshd import Sshd
from tests.support.station import Station

SLEEP = {"name": "sleep", "arguments": {"sleep_time": 600}}
FILES = {"name": "list_files", "arguments": {"path": "."}}
STEPS = [
    {"thought": "I look at what there is.", "calls": [FILES]},
    {"thought": "There might be a quasar in it.", "calls": [FILES]},
    {"thought": "I wait for a word.", "calls": [SLEEP]},
    {"thought": "On.", "calls": [FILES]},
    {"thought": "And on.", "calls": [FILES]},
    {"thought": "I wait again.", "calls": [SLEEP]},
]


@pytest.fixture
def desk(station: Station, tmp_path: Path) -> Iterator[Desk]:
    """The console, open over SSH on the one rollout there is."""
    sshd = Sshd(tmp_path / "sshd")
    sshd.start()
    station.start()
    (rollout,) = station.rollout(station.task(), station.script(STEPS))
    desk = Desk(tmp_path, sshd, station)
    station.until(lambda: station.closed(rollout) == 2, 30, "the agent sleeps in step 3")
    desk.until("I wait for a word", "the step shows")
    yield desk
    desk.close()
    sshd.close()


def _sent(station: Station) -> list[dict[str, Any]]:
    (row,) = station.json("rollout", "list")
    return station.json("guidance", row["rollout"])


def _branches(station: Station) -> list[dict[str, Any]]:
    return [row for row in station.json("rollout", "list") if row["parent"]]


def test_look_search_speak_and_copy_over_ssh(station: Station, desk: Desk) -> None:
    desk.press("/")
    desk.type("quasar")
    desk.press("Enter")
    desk.until(r"step 2 of 3.*/quasar +1/1", "it is found")
    desk.press("5")
    desk.type("先看 README, then go on.")
    desk.until("先看 README, then go on.", "what is typed shows")
    desk.press("C-w")
    heard = station.until(
        lambda: [row for row in _sent(station) if row["state"] == "delivered"], 30, "it is heard"
    )
    assert [(row["text"], row["mode"], row["step"]) for row in heard] == [
        ("先看 README, then go on.", "wake", 3)
    ]
    desk.until("step 3 +wake", "the queue says where it was heard")
    desk.press("Escape", "y")
    desk.until("Copied", "it says that it was copied")
    assert ["There might be a quasar in it." in text for text in desk.copied] == [True, True]
    desk.press("+")
    desk.until("after step 2", "it asks what the branch is told")
    desk.type("Take another way.")
    desk.press("Enter")
    desk.until("Queued: ", "it is taken")
    (limb,) = station.until(lambda: _branches(station), 30, "the branch is there")
    assert limb["parent"]["step"] == 2
    (word,) = station.json("guidance", limb["rollout"])
    assert word["text"] == "Take another way."
    station.until(
        lambda: [branch["state"] for branch in _branches(station)] == ["running"], 30, "it goes"
    )


@pytest.mark.slow
def test_a_daemon_that_is_killed_while_somebody_types_costs_nothing(
    station: Station, desk: Desk
) -> None:
    (rollout,) = (row["rollout"] for row in station.json("rollout", "list"))
    desk.press("5")
    desk.type("begun while it lived, ")
    station.kill_daemon()
    desk.type("ended when it was gone")
    desk.until("daemon down", "it says so")
    whole = "begun while it lived, ended when it was gone"
    desk.until(whole, "all of it was taken")
    desk.press("C-w")
    desk.until("unsent", "it waits, unsent")
    station.start()
    station.until(
        lambda: [row["state"] for row in _sent(station)] == ["delivered"], 30, "sent once"
    )
    assert [row["text"] for row in _sent(station)] == [whole]
    desk.until("I wait again", "the newest step shows")
    assert "daemon down" not in desk.shows()
    shown = [int(number) for number in re.findall(r"[▸◌][ »›] *(\d+) ", desk.shows())]
    assert shown == [1, 2, 3, 4, 5, 6], "no step is left out"
    assert station.closed(rollout) == 5
