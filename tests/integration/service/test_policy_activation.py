"""Which of the activations that were asked for is tried, and when: an engine that does not come up
keeps no other from its policy, and what it was asked for can be taken back."""

import getpass
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from houston_daemon.service.policy_activation import ActivationResult, PolicyActivations
from houston_shared import wire
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.engine_settings import EngineSettings
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.support.recorder_client import Person, Station

NAMES = ("ready", "silent", "down")


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path / "home").start()
    yield made
    made.stop()


class Engines:
    """One that is ready, one that never answers, one that is down."""

    states = {"ready": "ready", "silent": "starting", "down": "down: it was killed"}

    def watch(self, names: Iterable[str]) -> None:
        """They are watched already."""

    def reachable(self, name: str) -> str | None:
        return "" if name == "ready" else None

    def is_starting(self, name: str) -> bool:
        return name == "silent"

    def ready_urls(self, name: str) -> dict[str, str]:
        return {name: ""}


class Home:
    """Asks for activations, and hands back what came of those that were tried."""

    def __init__(self, station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
        self.station = station
        self.tried: list[int] = []
        self._person = Person(station.home)
        folder = station.home.path / "policies/policy@2"
        folder.mkdir(parents=True)
        (folder / "lineage.json").write_text("{}")
        said = PolicyRegistered(
            by="", name="policy@2", kind="lora", base="/base", base_hash="b", hash="2",
            folder="policy@2", files={"adapter_model.safetensors": "f"},
        )  # fmt: skip
        assert isinstance(
            self._person.ask(wire.RegisterPolicy(request="2", policy=said)), wire.RequestStored
        )
        engine = EngineSettings(kind="token", url="http://127.0.0.1:9/v1", model="m")
        loaded = LoadedConfiguration(
            Configuration(engines=dict.fromkeys(NAMES, engine)), station.home, "defaults"
        )
        monkeypatch.setattr(
            PolicyActivations, "_try", lambda _, request, *more: self.tried.append(request.seq)
        )
        engines: Any = Engines()
        self.activations = PolicyActivations(loaded, station.recorder, engines, lambda result: None)

    def ask(self, engine: str, policy: str, **more: bool) -> Any:
        key = f"{engine}/{self.station.query('SELECT max(seq) FROM events')[0][0]}"
        message = wire.ActivatePolicy(request=key, engine=engine, policy=policy, **more)
        return self._person.ask(message)

    def go_on(self) -> None:
        """Look at what was asked for until nothing is tried any more; all of it succeeds."""
        self.activations.update()
        while self.tried:
            self.activations.on_result(ActivationResult(self.tried.pop(), True))
            self.activations.update()

    def states(self) -> list[tuple[str, str, str]]:
        return self.station.query("SELECT engine, state, reason FROM activations ORDER BY seq")


class Scenario(NamedTuple):
    asked: list[tuple[str, str]]
    """Engine and policy, one after the other."""
    ended: list[tuple[str, str, str]]


INSTEAD = f"person:{getpass.getuser()} asked for {{}} instead.".format
SCENARIOS = {
    "an engine that never answers keeps no other waiting": Scenario(
        [("silent", "policy@2"), ("ready", "policy@2")],
        [("silent", "asked", ""), ("ready", "active", "")],
    ),
    "one that is down is told, and the next is tried": Scenario(
        [("down", "policy@2"), ("ready", "policy@2")],
        [("down", "failed", "Engine down is down: it was killed."), ("ready", "active", "")],
    ),
    "what was not tried yet can be taken back": Scenario(
        [("silent", "policy@2"), ("silent", "")],
        [("silent", "failed", INSTEAD("its own model")), ("silent", "active", "")],
    ),
    "of several wishes for an engine the newest is tried": Scenario(
        [("silent", "policy@2"), ("silent", ""), ("silent", "policy@2")],
        [
            ("silent", "failed", INSTEAD("policy@2")),
            ("silent", "failed", INSTEAD("policy@2")),
            ("silent", "asked", ""),
        ],
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_tried(station: Station, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    scenario, home = SCENARIOS[name], Home(station, monkeypatch)
    for engine, policy in scenario.asked:
        assert isinstance(home.ask(engine, policy), wire.RequestStored)
    home.go_on()
    assert home.states() == scenario.ended


def test_what_is_being_tried_comes_to_its_end_before_a_newer_wish(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(station, monkeypatch)
    home.ask("ready", "policy@2")
    home.activations.update()
    assert len(home.tried) == 1
    home.ask("ready", "")
    home.activations.update()
    assert "just switching to its own model" in home.ask("ready", "", rollback=True).cause
    home.activations.update()
    assert [state for _, state, _ in home.states()] == ["asked", "asked"]
    home.go_on()
    assert [state for _, state, _ in home.states()] == ["active", "active"]
