"""The audit says who did what under which user, when, and who was refused; nobody can flood it."""

import getpass
import grp
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from houston_daemon.recorder.identity_and_roles import Peer
from houston_daemon.recorder.message_intake import MAX_EVENTS_PER_HOUR, AttemptCounter
from houston_shared import wire
from houston_shared.config import fingerprint
from houston_shared.config_sections import DaemonSettings, RoleSettings
from tests.support.houston_command import houston_command
from tests.support.other_user import NOBODY, needs_root, open_place, speak
from tests.support.recorder_client import Station, until

VIEWER = 54_322


@pytest.fixture
def shared() -> Iterator[Station]:
    group = grp.getgrgid(NOBODY).gr_name
    roles = RoleSettings(viewers=(str(VIEWER),))
    with open_place() as place:
        station = Station(place / "home", daemon=DaemonSettings(group=group), roles=roles).start()
        yield station
        station.stop()


def audit(station: Station, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """Lines of `houston log --audit --json`."""
    done = subprocess.run(
        houston_command("--home", str(station.home.path), "log", "--audit", "--json", *words),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_deed_names_user_process_role_and_outcome(shared: Station) -> None:
    person = shared.person()
    (rollout,) = person.start()
    worker = shared.worker(rollout)
    person.guide(rollout, "first", "a")
    judged = wire.JudgedSteps(first=1, last=1, verdict="mask", reason="no use")
    worker.step(1)
    person.guide(rollout, "second", "b")
    person.guide(rollout, "third", "c")
    asked = [
        wire.ReorderGuidance(rollout=rollout, order=("c", "b"), claimed="ada"),
        wire.EditGuidance(id="b", revision=1, text="better"),
        wire.WithdrawGuidance(id="b", claimed="ada"),
        wire.ClaimRollout(request="1", rollout=rollout, note="mine", claimed="ada"),
        wire.GiveVerdicts(request="2", rollout=rollout, steps=(judged,), claimed="ada"),
        wire.BookmarkStep(rollout=rollout, step=1, note="here", claimed="ada"),
        wire.Steer(rollout=rollout, action="pause", reason="lunch", claimed="ada"),
        wire.Steer(rollout=rollout, action="resume"),
        wire.Steer(rollout=rollout, action="cancel", reason="enough", claimed="ada"),
    ]
    for message in asked:
        assert isinstance(person.ask(message), wire.RequestStored), message
    assert isinstance(worker.say(wire.StoreState, state="cancelled"), wire.Ack)
    person.ask(wire.StopDaemon(keep_engine=True, claimed="ada"))
    login = getpass.getuser()
    lines = audit(shared)
    assert [(line["did"], line["who"], line["verified"]) for line in lines] == [
        ("daemon", "daemon", True),
        ("spec", login, True),
        ("guidance", login, True),
        ("guidance", login, True),
        ("guidance", login, True),
        ("reorder", "ada", False),
        ("edit", login, True),
        ("withdraw", "ada", False),
        ("claim", "ada", False),
        ("verdict", "ada", False),
        ("bookmark", "ada", False),
        ("state", "ada", False),
        ("state", login, True),
        ("cancel", "ada", False),
        ("state", "ada", False),
        ("stop", "ada", False),
    ]
    assert fingerprint(shared.config) in lines[0]["text"]
    for line in lines:
        assert line["uid"] == os.getuid()
        assert line["pid"] == os.getpid()
        assert line["outcome"] == "done"
        assert line["role"] == (None if line["did"] == "daemon" else "operator")
        assert line["at"].endswith("Z")
    assert {line["rollout"] for line in lines[1:-1]} == {rollout}
    assert "lunch" in next(line["text"] for line in lines if line["did"] == "state")


@needs_root
def test_refused_attempts_are_there_counted_and_found(shared: Station) -> None:
    person = shared.person()
    rollout, other = person.start(2)
    tries = [wire.Steer(rollout=rollout, action="cancel", claimed="root")] * 300
    heard = speak(shared.home.socket("control"), VIEWER, NOBODY, tries)
    assert all(isinstance(one, wire.Denied) for one in heard)
    guide = [wire.Guide(id="x", rollout=other, text="hello")]
    speak(shared.home.socket("control"), VIEWER, NOBODY, guide)
    assert until(lambda: len(refusals(shared)) == 2), "each kind of attempt is stored at once"
    shared.stop()  # and the rest is counted, not listed
    found = refusals(shared)
    assert len(found) <= 4
    assert sum(line["times"] for line in found) == 301
    for line in found:
        assert (line["who"], line["uid"], line["verified"]) == (str(VIEWER), VIEWER, True)
        assert (line["role"], line["outcome"]) == ("viewer", "refused")
    assert "needs the role operator" in found[0]["text"]
    assert {line["did"] for line in audit(shared, "--by", str(VIEWER))} == {"refused"}
    assert {line["did"] for line in audit(shared, "--by", "root")} == {"spec"}
    of_one = audit(shared, "--rollout", other)
    assert [line["did"] for line in of_one] == ["spec", "refused"]
    verify = houston_command("--home", str(shared.home.path), "verify")
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def refusals(station: Station) -> list[dict[str, Any]]:
    return [line for line in audit(station) if line["did"] == "refused"]


def test_since_takes_times_and_spans(shared: Station) -> None:
    shared.person().start()
    everything = audit(shared)
    assert audit(shared, "--since", "1h") == everything
    assert audit(shared, "--since", "2020-01-01") == everything
    assert audit(shared, "--since", "2199-01-01T00:00:00Z") == []
    assert audit(shared, "--since", everything[-1]["at"]) == everything[-1:]
    assert audit(shared, "--since", "yesterday", code=2) == []


@pytest.mark.parametrize("up", [1.0, 100_000.0])
def test_one_who_goes_on_trying_is_stored_less_and_less(up: float) -> None:
    """up: seconds since the machine was started, at which its clock stands."""
    now = up
    attempts = AttemptCounter(lambda: now)
    at = []
    while now < up + 1000:
        attempts.count(Peer(7, "eve", None, 1), "speaking to the daemon")
        if work := attempts.take_due():
            at.append(now - up)
            attempts.mark_stored(work.tried)
        now += 1.0
    assert at == [0.0, 60.0, 180.0, 420.0, 900.0]


def test_a_thousand_strangers_in_a_day_leave_a_bounded_number_of_events() -> None:
    now = 0.0
    attempts = AttemptCounter(lambda: now)
    stored = times = noted = 0
    for minute in range(24 * 60):
        now = minute * 60.0
        for uid in range(minute % 1000, minute % 1000 + 20):
            attempts.count(Peer(uid, f"u{uid}", None, 1), "speaking to the daemon")
            noted += 1
        while work := attempts.take_due(last=minute == 24 * 60 - 1):
            for tried in work.tried:
                tried.writing = tried.unstored
            stored += len(work.tried)
            times += sum(tried.unstored for tried in work.tried)
            attempts.mark_stored(work.tried)
            if minute < 24 * 60 - 1:
                break
    assert stored <= 25 * MAX_EVENTS_PER_HOUR
    assert times + attempts.waiting == noted, "every attempt is counted once"
