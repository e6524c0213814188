"""A version of a policy is given to the engine, whatever an earlier start of the run asked."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from houston_daemon.training.rl import policy_versions
from houston_daemon.training.rl.policy_versions import PolicyVersions
from houston_shared import wire
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.errors import HoustonError
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.support.recorder_client import Person, Station

LORA = PolicyRegistered(
    by="", name="", kind="lora", base="/models/base", base_hash="b", hash="",
    parent="", files={"adapter_model.safetensors": "f"},
)  # fmt: skip
KEY = "dapo-1/1"


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path / "home").start()
    yield made
    made.stop()


class Engine:
    """Answers activations at once, and counts those that it has not been asked before."""

    def __init__(self, station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
        self.person = Person(station.home)
        self.refuses = 0
        """How many more activations it refuses."""
        self.slept: list[float] = []
        self._station = station
        self._answered: set[int] = set()
        monkeypatch.setattr(policy_versions, "send_with_retry", self.asked)
        monkeypatch.setattr(policy_versions, "engine_state", lambda *_: "ready")
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=self.slept.append)
        monkeypatch.setattr(policy_versions, "time", clock)
        for number in (2, 3):
            self._register(f"policy@{number}")

    def _register(self, name: str) -> None:
        folder = self._station.home.path / "policies" / name
        folder.mkdir(parents=True)
        (folder / "lineage.json").write_text("{}")
        fields = {field: getattr(LORA, field) for field in LORA.__struct_fields__}
        said = PolicyRegistered(**{**fields, "name": name, "folder": name, "hash": name})
        answer = self.person.ask(wire.RegisterPolicy(request=name, policy=said))
        assert isinstance(answer, wire.RequestStored), answer

    def asked(self, home: Any, message: wire.ActivatePolicy, *words: str) -> Any:
        answer = self.person.ask(message)
        if answer.seq not in self._answered:
            self._answered.add(answer.seq)
            ok = self.refuses == 0
            self.refuses -= not ok
            self._station.recorder.report_activation(answer.seq, ok, "" if ok else "no memory")
        return answer

    def give(self, policy: str, key: str) -> None:
        self.asked(None, wire.ActivatePolicy(request=key, engine="e", policy=policy))

    def versions(self) -> PolicyVersions:
        loaded = LoadedConfiguration(Configuration(), self._station.home, "defaults")
        return PolicyVersions(
            loaded, "e", "dapo-1", "policy", "", Path("/models/base"), "b", lambda line: None
        )


class Before(NamedTuple):
    """What an earlier start of the run asked for, in order, and how many were refused."""

    given: list[tuple[str, str]]
    refused: int
    asked: int
    """Activations that giving `policy@3` adds."""


BEFORE: dict[str, Before] = {
    "nothing": Before([], 0, 1),
    "it is active": Before([("policy@3", f"{KEY}/0")], 0, 0),
    "it was active, then taken back": Before([("policy@3", f"{KEY}/0"), ("", "back")], 0, 1),
    "ten were refused": Before([("policy@3", f"{KEY}/{number}") for number in range(10)], 10, 1),
}


@pytest.mark.parametrize("scenario", BEFORE)
def test_what_came_of_it_in_an_earlier_start_says_nothing_of_now(
    station: Station, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    engine, before = Engine(station, monkeypatch), BEFORE[scenario]
    engine.refuses = before.refused
    for policy, key in before.given:
        engine.give(policy, key)
    engine.versions().activate("policy@3", KEY)
    newest = station.query("SELECT policy, state FROM activations ORDER BY seq DESC LIMIT 1")
    assert newest == [("policy@3", "active")]
    count = station.query("SELECT count(*) FROM activations")[0][0]
    assert count == len(before.given) + before.asked
    assert not [seconds for seconds in engine.slept if seconds > policy_versions.POLL_SECONDS]


def test_an_engine_that_refuses_is_asked_again_with_waits_of_its_own(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(station, monkeypatch)
    engine.refuses = 6
    for number in range(4):
        engine.give("policy@3", f"{KEY}/{number}")
    engine.versions().activate("policy@3", KEY)
    waits = [seconds for seconds in engine.slept if seconds > policy_versions.POLL_SECONDS]
    assert len(waits) == 2 and waits[0] < 2.0 <= waits[1]


def test_an_activation_that_is_being_tried_keeps_its_key(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer was killed while the engine loaded it."""
    engine = Engine(station, monkeypatch)
    engine.person.ask(wire.ActivatePolicy(request=f"{KEY}/0", engine="e", policy="policy@3"))
    engine.versions().activate("policy@3", KEY)
    assert station.query("SELECT policy, state FROM activations") == [("policy@3", "active")]


def test_an_activation_of_somebody_else_that_is_under_way_does_not_end_the_run(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(station, monkeypatch)
    engine.person.ask(wire.ActivatePolicy(request="hers", engine="e", policy="policy@2"))
    engine.versions().activate("policy@3", KEY)
    newest = station.query("SELECT policy, state FROM activations ORDER BY seq DESC LIMIT 1")
    assert newest == [("policy@3", "active")]


def test_an_engine_that_refuses_for_long_ends_the_run(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(station, monkeypatch)
    engine.refuses = 1
    monkeypatch.setattr(policy_versions, "ENGINE_RETURN_SECONDS", -1.0)
    with pytest.raises(HoustonError, match="does not take policy@3: no memory"):
        engine.versions().activate("policy@3", KEY)
