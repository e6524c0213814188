"""How the servers of one engine stand together, who may leave, and which settings contradict."""

from pathlib import Path

import pytest

from houston_daemon.service.engine_replicas import (
    MIN_DRAIN_SECONDS,
    WatchedEngine,
    WatchedReplica,
    differs_in_servers_only,
    replica_names,
)
from houston_daemon.service.rollout_start_checks import check_servers
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import ConfigurationError
from houston_shared.home import Home
from houston_shared.wire import ReplicaUse


class NoWatch:
    def stop(self, keep: bool, seconds: float) -> None:
        raise AssertionError("nobody ends it here")


def watched(**states: str) -> WatchedEngine:
    made = {
        name: WatchedReplica(NoWatch(), state, f"http://{name}:80/v1")
        for name, state in states.items()
    }
    return WatchedEngine(made, is_replicated=True)


@pytest.mark.parametrize(
    ("states", "state", "told"),
    [
        pytest.param(("ready", "ready"), "ready", ("ready", "ready"), id="all are there"),
        pytest.param(("down: it ended", "ready"), "ready", ("down", "ready"), id="one is away"),
        pytest.param(("starting", "ready"), "ready", ("down", "ready"), id="one begins"),
        pytest.param(
            ("down: it ended", "starting"), "starting", ("down", "down"), id="one may come to be"
        ),
        pytest.param(
            ("down: it ended", "down: refused"),
            "down: none of 2 replicas answers (a: it ended; b: refused)",
            ("down", "down"),
            id="all are away",
        ),
    ],
)
def test_an_engine_is_as_good_as_its_best_server(
    states: tuple[str, str], state: str, told: tuple[str, str]
) -> None:
    engine = watched(a=states[0], b=states[1])
    assert engine.state == state
    assert tuple(each.state for each in engine.announced_replicas()) == told


def test_a_server_without_an_address_is_told_to_nobody() -> None:
    engine = watched(a="ready")
    engine.replicas["b"] = WatchedReplica(NoWatch())
    assert [each.name for each in engine.announced_replicas()] == ["a"]


def test_who_leaves_is_waited_for() -> None:
    engine = watched(a="ready", b="ready")
    engine.replicas["b"].draining_since = 100.0
    late = 100.0 + MIN_DRAIN_SECONDS
    assert engine.state == "ready" and list(engine.ready_urls()) == ["a"]
    assert engine.drained([], 101.0) == [], "a worker that has just begun has said nothing yet"
    assert engine.drained([ReplicaUse("b", 1)], late) == []
    assert engine.drained([ReplicaUse("a", 1)], late) == ["b"]


def test_what_is_shown_of_each() -> None:
    engine = watched(a="ready", b="down: it ended")
    engine.replicas["a"].policies = ("policy@2",)
    uses = (ReplicaUse("a", 1), ReplicaUse("a"), ReplicaUse("a", 2))
    first, second = engine.statuses(uses)
    assert (first.rollouts, first.requests, first.policies) == (3, 3, ("policy@2",))
    assert (second.state, second.address, second.rollouts) == ("down: it ended", "b:80", 0)


def test_what_they_are_called() -> None:
    children = EngineSettings(kind="embedded", replicas=3)
    far = EngineSettings(kind="token", urls=("http://x:1/v1", "https://u:key@y:2/v1"))
    assert replica_names("own", children) == ("own", "own#2", "own#3")
    assert replica_names("far", far) == ("x:1", "y:2")
    assert replica_names("one", EngineSettings(kind="embedded")) == ("one",)


TWO = ("http://x:1/v1", "http://y:2/v1")


@pytest.mark.parametrize(
    ("before", "after", "only"),
    [
        pytest.param({"replicas": 2}, {"replicas": 3}, True, id="one more child"),
        pytest.param({}, {"replicas": 2}, True, id="from one child to two"),
        pytest.param({"urls": TWO}, {"urls": TWO[:1]}, True, id="one URL less"),
        pytest.param({"url": TWO[0]}, {"urls": TWO}, True, id="from one URL to two"),
        pytest.param({"urls": TWO}, {"url": TWO[0]}, False, id="to one that is told in settings"),
        pytest.param({"url": TWO[0]}, {"url": TWO[1]}, False, id="another single server"),
        pytest.param({"replicas": 2}, {"replicas": 2, "model": "m"}, False, id="another model"),
        pytest.param({"replicas": 2}, {"urls": TWO}, False, id="children no more"),
        pytest.param({"replicas": 2}, None, False, id="no engine more"),
    ],
)
def test_which_edits_only_add_or_take_away_servers(
    before: dict[str, object], after: dict[str, object] | None, only: bool
) -> None:
    first = EngineSettings(kind="vllm", **before)  # type: ignore[arg-type]
    second = None if after is None else EngineSettings(kind="vllm", **after)  # type: ignore[arg-type]
    assert differs_in_servers_only(first, second) is only


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"kind": "token", "url": TWO[0], "urls": TWO}, "both set", id="url and urls"),
        pytest.param({"kind": "script", "urls": TWO}, "the kind is 'script'", id="a script"),
        pytest.param({"kind": "token", "urls": TWO[:1] * 2}, "twice", id="one server twice"),
        pytest.param(
            {"kind": "token", "urls": ("nowhere",)}, "not an http(s) address", id="no URL"
        ),
        pytest.param(
            {"kind": "token", "url": TWO[0], "replicas": 2}, "name others in `urls`", id="not ours"
        ),
        pytest.param(
            {"kind": "embedded", "port": 8000, "replicas": 2}, "is for one server", id="one port"
        ),
        pytest.param({"kind": "embedded", "replicas": 2}, "called e#2", id="a name that is taken"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, object], words: str) -> None:
    engine = EngineSettings(**settings)  # type: ignore[arg-type]
    engines = {"e": engine, "e#2": EngineSettings(kind="embedded")}
    loaded = LoadedConfiguration(Configuration(engines=engines), Home(Path("/h")), "houston.toml")
    with pytest.raises(ConfigurationError) as raised:
        check_servers(loaded, "e", engine)
    assert words in str(raised.value)
