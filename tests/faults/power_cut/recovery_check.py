"""Holds what is left after a power cut against what was acked, and lets the recorder go on from it.

Everything is looked at as the daemon and `houston verify` look at it; nothing is repaired first.
"""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.recorder.recorder_thread import Recorder
from houston_shared import wire
from houston_shared.config import Configuration
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from tests.faults.power_cut.trace import MARK, Record
from tests.faults.power_cut.traced_recorder import words
from tests.support.recorder_client import Person, Worker


@dataclass
class Acked:
    """What clients had been told by then."""

    rollouts: list[str] = field(default_factory=list)
    events: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Sequence → (rollout, step)."""
    said: dict[str, str] = field(default_factory=dict)
    """Guidance → rollout."""
    heard: dict[str, int] = field(default_factory=dict)
    """Guidance → the step whose ack carried it."""

    def note(self, mark: dict[str, Any]) -> None:
        """Take one mark."""
        match mark:
            case {"what": "rollout", "id": id}:
                self.rollouts.append(id)
            case {"what": "event", "seq": seq, "rollout": rollout, "step": step}:
                self.events[seq] = (rollout, step)
            case {"what": "said", "id": id, "rollout": rollout}:
                self.said[id] = rollout
            case {"what": "heard", "id": id, "step": step}:
                self.heard[id] = step

    @property
    def count(self) -> int:
        """Things acked."""
        return len(self.rollouts) + len(self.events) + len(self.said) + len(self.heard)


def note_all(acked: Acked, records: Iterable[Record]) -> None:
    """Take the marks among some records."""
    for record in records:
        if record.op == MARK:
            acked.note(json.loads(record.first))


@dataclass
class Verdict:
    """What was wrong after one cut; sound when both are empty."""

    lost: list[str] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)
    """The recorder does not start, does not go on, or `verify` finds something."""

    @property
    def sound(self) -> bool:
        """Whether nothing was wrong."""
        return not self.lost and not self.corrupt


def judge(home: Home, acked: Acked) -> Verdict:
    """Start the recorder on what is left, let it go on, stop it, and look at everything."""
    verdict = Verdict()
    recorder = Recorder(home, Configuration(), lambda event: None)
    try:
        recorder.start()
    except HoustonError as refused:
        verdict.corrupt.append(f"refused: {refused.cause}")
        return verdict
    try:
        verdict.lost += _lost(home, acked)
        if not verdict.lost:
            verdict.corrupt += _goes_on(home, recorder, acked)
    except (sqlite3.DatabaseError, HoustonError) as unsound:
        verdict.corrupt.append(f"{type(unsound).__name__}: {unsound}")
    finally:
        recorder.stop()
    verdict.corrupt += [f"{one.what}: {one.text}" for one in verify_home(home).findings]
    return verdict


def _lost(home: Home, acked: Acked) -> list[str]:
    database = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    try:
        rollouts = {id for (id,) in database.execute("SELECT id FROM rollouts")}
        events = {
            seq: (rollout, step)
            for seq, rollout, step in database.execute("SELECT seq, rollout, step FROM events")
        }
        guidance = {
            id: (rollout, step)
            for id, rollout, step in database.execute(
                "SELECT id, rollout, delivered_step FROM guidance"
            )
        }
    finally:
        database.close()
    lost = [f"rollout {id}" for id in acked.rollouts if id not in rollouts]
    lost += [f"event {seq} {at}" for seq, at in acked.events.items() if events.get(seq) != at]
    lost += [f"guidance {i}" for i, r in acked.said.items() if guidance.get(i, ("",))[0] != r]
    lost += [
        f"delivery of {id}"
        for id, step in acked.heard.items()
        if guidance.get(id, ("", None))[1] != step
    ]
    return lost


def _goes_on(home: Home, recorder: Recorder, acked: Acked) -> list[str]:
    """Whether a worker that says everything again from the open step on closes it, and hears."""
    if not acked.rollouts:
        return []
    rollout = acked.rollouts[0]
    person, worker = Person(home), Worker(home, rollout, recorder.assign(rollout).lease)
    try:
        said: Any = person.guide(rollout, "go on", id="after-the-cut")
        if not isinstance(said, wire.RequestStored):
            return [f"guidance after the cut: {said}"]
        first = max(1, worker.hello().next_step - 1)  # one that is closed: acked as it was told
        heard: list[str] = []
        for kind, fields in words(rollout, first, first + 1):
            ack = worker.say(kind, **fields)
            if not isinstance(ack, wire.Ack):
                return [f"{kind.__name__} of step {fields['step']} after the cut: {ack}"]
            heard += [one.id for one in ack.guidance]
        return [] if "after-the-cut" in heard else ["guidance was not joined"]
    finally:
        person.close()
        worker.close()


def home_in(place: Path) -> Home:
    """The home on a disk."""
    return Home(place / "home")
