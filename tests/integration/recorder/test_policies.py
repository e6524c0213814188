"""Training runs, policies and activations at the recorder: what holds, what is refused, and what a
new rollout samples with."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.hosts.ssh.remote_part import name_home
from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.service.engine_supervisor import resolve_engine
from houston_shared import wire
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.errors import ConfigurationError
from houston_shared.records import RoleEngine, RolloutSpec, spec_of_role
from houston_shared.store import policy_queries, rollout_queries
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.support.recorder_client import Person, Station, spec

BASE = PolicyRegistered(
    by="", name="policy@2", kind="lora", base="/models/base", base_hash="b", hash="h2",
    folder="policy@2", parent="policy@1", files={"adapter_model.safetensors": "f"},
)  # fmt: skip


@pytest.fixture
def person(station: Station) -> Person:
    return station.person()


def ready(station: Station, name: str, **more: Any) -> PolicyRegistered:
    """A policy whose files lie in the home."""
    folder = station.home.path / "policies" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lineage.json").write_text("{}")
    return msgspec.structs.replace(BASE, **{"name": name, "folder": name, "hash": name, **more})


def register(station: Station, person: Person, name: str, **more: Any) -> Any:
    said = ready(station, name, **more)
    return person.ask(wire.RegisterPolicy(request=os.urandom(4).hex(), policy=said))


def activate(station: Station, person: Person, policy: str, ok: bool = True) -> int:
    asked = wire.ActivatePolicy(request=os.urandom(4).hex(), engine="e", policy=policy)
    seq = int(person.ask(asked).seq)
    station.recorder.report_activation(seq, ok, "" if ok else "no")
    return seq


def queued(station: Station, person: Person, **more: Any) -> RolloutSpec:
    """The spec of a rollout that is queued now, as its worker will get it."""
    (id,) = person.ask(
        wire.StartRollouts(
            request=os.urandom(4).hex(), specs=(msgspec.structs.replace(spec("e"), **more),)
        )
    ).rollouts
    with Reader(station.home) as reader:
        found = reader.run(
            rollout_queries.read_rollout_spec(reader.run(rollout_queries.find_rollout(id)))
        )
    assert found is not None
    return found


def test_the_base_is_number_one_of_what_is_trained_from_it(
    station: Station, person: Person
) -> None:
    register(station, person, "policy@2")
    register(station, person, "policy@3", parent="policy@2")
    rows = station.query("SELECT name, kind, parent, hash FROM policies ORDER BY number")
    assert rows == [
        ("policy@1", "base", "", "b"),
        ("policy@2", "lora", "policy@1", "policy@2"),
        ("policy@3", "lora", "policy@2", "policy@3"),
    ]
    again = register(station, person, "policy@2")
    assert isinstance(again, wire.RequestStored), "said again, it is the same"
    assert len(station.query("SELECT 1 FROM policies")) == 3


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "another base": ("policy@4", {"base_hash": "other"}, "another base model"),
    "a parent that is not there": ("policy@4", {"parent": "policy@9"}, "no policy 'policy@9'"),
    "a parent of another base": (
        "new@2",
        {"base_hash": "other", "parent": "policy@2"},
        "policy@2 is of another base model",
    ),
    "a number that is taken": ("policy@2", {"hash": "else"}, "A policy policy@2 already exists"),
    "the base's number": ("policy@1", {}, "A policy policy@1 already exists"),
    "a base of its own": ("new@2", {"kind": "base"}, "with the first policy trained from it"),
    "a folder that is another's": ("policy@4", {"folder": "policy@2"}, "no folder policies"),
    "a name that leaves the home": ("../policy@4", {}, "is not a policy name"),
    "the word for own models": ("base@2", {}, "cannot name a policy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_lineage_that_does_not_hold_is_refused(
    station: Station, person: Person, name: str
) -> None:
    register(station, person, "policy@2")
    policy, more, why = REFUSED[name]
    before = station.query("SELECT * FROM policies")
    said = register(station, person, policy, **more)
    assert isinstance(said, wire.Denied)
    assert why in said.cause
    assert station.query("SELECT * FROM policies") == before


def test_full_weights_may_be_the_base_of_what_follows(station: Station, person: Person) -> None:
    register(station, person, "policy@2", kind="full", hash="full")
    said = register(station, person, "policy@3", base_hash="full", parent="policy@2")
    assert isinstance(said, wire.RequestStored)


def test_another_family_may_begin_from_a_policy(station: Station, person: Person) -> None:
    register(station, person, "policy@2")
    said = register(station, person, "new@2", parent="policy@2")
    assert isinstance(said, wire.RequestStored)
    assert station.query("SELECT name, parent FROM policies WHERE family = 'new'") == [
        ("new@1", ""),
        ("new@2", "policy@2"),
    ]


def test_a_new_rollout_samples_with_what_is_active_as_it_is_queued(
    station: Station, person: Person
) -> None:
    register(station, person, "policy@2")
    register(station, person, "policy@3")
    assert queued(station, person).policy == ""
    activate(station, person, "policy@2")
    found = queued(station, person)
    folder = str(station.home.path / "policies" / "policy@2")
    assert (found.policy, found.engine) == ("policy@2", "e")
    assert found.engine_settings["adapters"] == {"policy@2": folder}
    assert found.engine_settings["adapter_hashes"] == {"policy@2": "policy@2"}
    activate(station, person, "policy@3", ok=False)
    assert queued(station, person).policy == "policy@2", "a failed activation changes nothing"
    assert queued(station, person, policy="base").policy == ""
    assert queued(station, person, policy="policy@2").policy == "policy@2"
    said = person.ask(
        wire.StartRollouts(
            request="x", specs=(msgspec.structs.replace(spec("e"), policy="policy@3"),)
        )
    )
    assert "policy@3 was never activated" in said.cause
    assert queued(station, person, engine="other").policy == "", "another engine's business"


def test_a_role_samples_with_what_is_active_on_its_own_engine(
    station: Station, person: Person
) -> None:
    register(station, person, "policy@2")
    activate(station, person, "policy@2")
    own = {"summary": RoleEngine(engine="e", engine_settings={"kind": "token"})}
    found = queued(station, person, engine="other", role_engines=own)
    assert (found.engine, found.policy) == ("other", "")
    summary = found.role_engines["summary"]
    assert (summary.engine, summary.policy, summary.policy_hash) == ("e", "policy@2", "policy@2")
    folder = str(station.home.path / "policies" / "policy@2")
    assert summary.engine_settings == {
        "kind": "token",
        "adapters": {"policy@2": folder},
        "adapter_hashes": {"policy@2": "policy@2"},
    }
    with Reader(station.home) as reader:
        uses = reader.run(policy_queries.list_policy_uses())
        (rollout,) = reader.run(rollout_queries.list_rollouts())
    assert {(use.engine, use.policy) for use in uses} == {("other", ""), ("e", "policy@2")}
    assert rollout_queries.role_engines(rollout) == {
        "summary": {"engine": "e", "policy": "policy@2"}
    }
    station.recorder.pause_for_engine("e", True, "down")
    assert station.query("SELECT state, paused_by FROM rollouts") == [("paused", "engine")]
    station.recorder.pause_for_engine("e", False)
    assert station.query("SELECT state FROM rollouts") == [("queued",)]


@pytest.mark.parametrize("kind", ["lora", "full"])
@pytest.mark.parametrize("role", ["", "summary"], ids=["steps", "summary"])
def test_a_moved_home_samples_with_the_policy_that_lies_in_it(
    station: Station, person: Person, tmp_path: Path, kind: str, role: str
) -> None:
    register(station, person, "policy@2", kind=kind)
    activate(station, person, "policy@2")
    settings = {"kind": "vllm", "port": 8000, "command": ["vllm", "serve", "/models/base"]}
    roles = {role: RoleEngine(engine="e", engine_settings=settings)} if role else {}
    own = {"engine": "other"} if role else {"engine_settings": settings}
    before = queued(station, person, role_engines=roles, **own)
    station.stop()
    moved = Station(station.home.path.rename(tmp_path / "elsewhere")).start()
    try:
        ((rollout,),) = moved.query("SELECT id FROM rollouts")
        welcome = moved.worker(rollout).welcome  # type: ignore[attr-defined]
    finally:
        moved.stop()
    assert welcome.home_elsewhere == name_home(moved.home.path), "other machines know who asks now"
    assert str(moved.home.path) in welcome.spec.hidden, "nor does a sandbox show where it lies"
    was, now = (spec_of_role(spec, role) for spec in (before, welcome.spec))
    places = [str(home / "policies" / "policy@2") for home in (station.home.path, moved.home.path)]
    stored = msgspec.json.encode(was.engine_settings).decode()
    assert places[0] in stored
    assert msgspec.json.decode(stored.replace(*places)) == msgspec.to_builtins(now.engine_settings)


def test_no_request_makes_more_policies_live_than_the_engine_holds(
    station: Station, person: Person
) -> None:
    """The command looks first; what comes over the socket by itself is held to the same."""
    for number in (2, 3, 4):
        register(station, person, f"policy@{number}")
        activate(station, person, f"policy@{number}")
    settings = {"kind": "embedded", "max_adapters": 2}
    queued(station, person, engine_settings=settings)
    queued(station, person, policy="policy@3", engine_settings=settings)
    named = msgspec.structs.replace(spec("e"), policy="policy@2", engine_settings=settings)
    before = station.query("SELECT count(*) FROM rollouts")
    said = person.ask(wire.StartRollouts(request="x", specs=(named,)))
    assert "2 policies may be live at once" in said.cause
    assert station.query("SELECT count(*) FROM rollouts") == before
    odd = msgspec.structs.replace(named, engine_settings={"kind": "vllm", "command": 5})
    said = person.ask(wire.StartRollouts(request="y", specs=(odd,)))
    assert "has invalid settings" in said.cause
    without = msgspec.structs.replace(named, engine_settings={"kind": "vllm", "lora": False})
    said = person.ask(wire.StartRollouts(request="z", specs=(without,)))
    assert "takes no adapters" in said.cause
    assert queued(station, person, engine_settings=settings).policy == "policy@4"
    many = {**settings, "max_adapters": 3}
    assert queued(station, person, policy="policy@2", engine_settings=many).policy == "policy@2"


def test_full_weights_are_sampled_from_on_an_engine_of_their_own(
    station: Station, person: Person
) -> None:
    register(station, person, "policy@2", kind="full")
    activate(station, person, "policy@2")
    command = ["vllm", "serve", "/models/base", "--port", "{port}"]
    settings = {"kind": "vllm", "port": 8000, "gpus": 2, "command": command}
    found = queued(station, person, engine_settings=settings)
    folder = str(station.home.path / "policies" / "policy@2")
    assert (found.engine, found.policy) == ("policy@2", "policy@2")
    assert found.engine_settings == {
        "kind": "vllm", "port": 0, "gpus": 2, "model": folder, "own_policy": "policy@2",
        "command": ["vllm", "serve", folder, "--port", "{port}"],
    }  # fmt: skip


def test_full_weights_of_a_later_round_take_the_place_of_the_first_model(
    station: Station, person: Person
) -> None:
    """An engine of the base's folder or of an earlier round's, whichever its command names."""
    register(station, person, "policy@2", kind="full", hash="f2")
    first = str(station.home.path / "policies" / "policy@2")
    later = {"kind": "full", "base": first, "base_hash": "f2", "parent": "policy@2"}
    assert isinstance(register(station, person, "policy@3", **later), wire.RequestStored)
    activate(station, person, "policy@3")
    for model in ("/models/base", first):
        settings = {"kind": "vllm", "command": ["vllm", "serve", model]}
        found = queued(station, person, engine_settings=settings)
        last = str(station.home.path / "policies" / "policy@3")
        assert found.engine == "policy@3"
        assert found.engine_settings["command"] == ["vllm", "serve", last]


@pytest.mark.parametrize("engines", [("policy@2",), ("policy@3", "policy@2")], ids=["own", "two"])
def test_an_engine_that_would_be_made_as_itself_is_refused(
    station: Station, person: Person, engines: tuple[str, ...]
) -> None:
    """Whoever asks over the socket by itself names what engine it likes."""
    for engine, policy in zip(engines, ("policy@2", "policy@3"), strict=False):
        register(station, person, policy, kind="full")
        asked = wire.ActivatePolicy(request=policy, engine=engine, policy=policy)
        assert isinstance(person.ask(asked), wire.RequestStored)
    with pytest.raises(ConfigurationError, match="which takes its settings from"):
        resolve_engine(LoadedConfiguration(Configuration(), station.home, "defaults"), "policy@2")


def test_an_engines_own_model_is_never_called_what_was_trained_from_it(
    station: Station, person: Person
) -> None:
    """The first of a family may be full weights of this home, which another engine serves."""
    register(station, person, "policy@2", kind="full", hash="f2")
    register(station, person, "new@2", kind="full", base_hash="f2", parent="policy@2")
    activate(station, person, "new@2")
    done = person.ask(wire.ActivatePolicy(request="back", engine="e", rollback=True))
    station.recorder.report_activation(done.seq, True)
    assert shown(station) == {}


def shown(station: Station) -> dict[str, str]:
    with Reader(station.home) as reader:
        return reader.run(policy_queries.list_displayed_policies())


def test_rollbacks_go_back_one_by_one(station: Station, person: Person) -> None:
    for number in (2, 3, 4):
        register(station, person, f"policy@{number}")

    def back() -> Any:
        asked = wire.ActivatePolicy(request=os.urandom(4).hex(), engine="e", rollback=True)
        done = person.ask(asked)
        if isinstance(done, wire.RequestStored):
            station.recorder.report_activation(done.seq, True)
            return queued(station, person).policy
        return done.cause

    assert "only its own model" in back()
    activate(station, person, "policy@2")
    activate(station, person, "policy@3")
    activate(station, person, "policy@3")
    activate(station, person, "policy@4")
    assert [back(), back()] == ["policy@3", "policy@2"]
    activate(station, person, "policy@4")
    assert shown(station) == {"e": "policy@4"}
    assert [back(), back()] == ["policy@2", ""]
    assert shown(station) == {"e": "policy@1"}, "people see what its own model is called"
    assert "only its own model" in back()


def test_a_newer_activation_is_taken_and_the_same_request_is_one(
    station: Station, person: Person
) -> None:
    register(station, person, "policy@2")
    asked = wire.ActivatePolicy(request="one", engine="e", policy="policy@2")
    first = person.ask(asked)
    assert person.ask(asked) == first
    taken_back = person.ask(wire.ActivatePolicy(request="back", engine="e", rollback=True))
    assert "just switching to policy@2" in taken_back.cause
    station.recorder.report_activation(first.seq, True, unloaded=("policy@9",))
    station.recorder.report_activation(first.seq, False, "too late")
    assert station.query("SELECT state, reason FROM activations") == [("active", "")]
    said = person.ask(wire.ActivatePolicy(request="three", engine="e", policy="policy@7"))
    assert "no policy 'policy@7'" in said.cause
    newer, same, other = (
        person.ask(wire.ActivatePolicy(request=request, engine="e", policy=policy)).seq
        for request, policy in (("four", "policy@2"), ("five", "policy@2"), ("six", ""))
    )
    assert first.seq < newer == same < other, "who asks for what is asked for shares its answer"


def start(station: Station, person: Person, run: str, **more: Any) -> Any:
    Path(station.home.path / "training" / run).mkdir(parents=True, exist_ok=True)
    return person.ask(wire.StartTraining(**{"request": run, "run": run, **more}))


Given = tuple[str, str]
"""Who asks for it ("" for a person, else the run's key), and the policy; "" is the own model."""
PUT_BACK: dict[str, tuple[list[Given], str | None]] = {
    # what was activated, then what the engine is asked to have again; None: it is left alone
    "its own model": ([("dapo-1/1/0", "policy@3"), ("dapo-1/2/0", "policy@4")], ""),
    "what a person had chosen": ([("", "policy@2"), ("dapo-1/1/0", "policy@3")], "policy@2"),
    "what another run left": ([("dapo-0/1/0", "policy@2"), ("dapo-1/1/0", "policy@3")], "policy@2"),
    "what a person chose meanwhile": ([("dapo-1/1/0", "policy@3"), ("", "policy@2")], None),
    "what it began from, nothing else was given": (
        *([("", "policy@2"), ("dapo-1/begin/0", "policy@2")], None),
    ),
    "it gave nothing": ([("", "policy@2")], None),
    "a run whose name begins alike": ([("dapo-10/1/0", "policy@3")], None),
}


@pytest.mark.parametrize("end", ["cancelled", "failed", "finished", "queued"])
@pytest.mark.parametrize("scenario", PUT_BACK)
def test_a_run_that_came_to_nothing_gives_the_engine_back_what_it_had(
    station: Station, person: Person, scenario: str, end: Any
) -> None:
    for number in (2, 3, 4):
        register(station, person, f"policy@{number}")
    start(station, person, "dapo-1")
    given, wanted = PUT_BACK[scenario]
    for by, policy in given:
        request = by or os.urandom(4).hex()
        asked = wire.ActivatePolicy(request=request, engine="e", policy=policy)
        station.recorder.report_activation(person.ask(asked).seq, True)
    if end == "queued":  # nothing runs of it, so that it is cancelled at once
        person.ask(wire.CancelTraining(run="dapo-1"))
    else:
        station.recorder.report_training_state("dapo-1", "running", start=True)
        for _ in range(2):
            station.recorder.report_training_state("dapo-1", end)
    back = station.query("SELECT policy, by FROM activations WHERE state = 'asked'")
    assert back == ([] if wanted is None or end == "finished" else [(wanted, "daemon")])
    if back and end == "cancelled":  # it goes on, and is cancelled once more
        station.recorder.report_activation(
            station.query("SELECT max(seq) FROM activations")[0][0], True
        )
        assert queued(station, person).policy == wanted
        start(station, person, "dapo-1", request="again")
        station.recorder.report_training_state("dapo-1", "running", start=True)
        station.recorder.report_training_state("dapo-1", "cancelled")
        assert station.query("SELECT 1 FROM activations WHERE state = 'asked'") == []


def states(station: Station) -> list[tuple[Any, ...]]:
    return station.query("SELECT id, state, starts, reason FROM training_runs ORDER BY queued_at")


def test_a_training_run_from_queue_to_end(station: Station, person: Person) -> None:
    first = start(station, person, "sft-1")
    assert start(station, person, "sft-1") == first, "the same request"
    said = start(station, person, "sft-1", request="other")
    assert "A training run sft-1 already exists (queued)" in said.cause
    station.recorder.report_training_state("sft-1", "queued", "waits for 1 GPU")
    station.recorder.report_training_state("sft-1", "running", start=True)
    station.recorder.report_training_state("sft-1", "running", start=True)
    assert states(station) == [("sft-1", "running", 2, "")]
    person.ask(wire.CancelTraining(run="sft-1"))
    assert station.query("SELECT cancelling FROM training_runs") != [("",)]
    station.recorder.report_training_state("sft-1", "cancelled")
    station.recorder.report_training_state("sft-1", "failed", "too late")
    assert states(station) == [("sft-1", "cancelled", 2, "")]
    again = start(station, person, "sft-1", request="again")
    assert isinstance(again, wire.RequestStored), "it may be asked for once more"
    assert station.query("SELECT state, cancelling, ended_at FROM training_runs") == [
        ("queued", "", None)
    ]


def test_a_run_is_cancelled_or_has_become_a_policy_never_both(
    station: Station, person: Person
) -> None:
    """It is asked to end in its last steps: the policy may be there before its process is gone."""
    for run in ("sft-1", "sft-2"):
        start(station, person, run)
        station.recorder.report_training_state(run, "running", start=True)
        assert isinstance(person.ask(wire.CancelTraining(run=run)), wire.RequestStored)
    assert isinstance(register(station, person, "policy@2", run="sft-1"), wire.RequestStored)
    station.recorder.report_training_state("sft-1", "cancelled")
    station.recorder.report_training_state("sft-2", "cancelled")
    said = register(station, person, "policy@3", run="sft-2")
    assert "sft-2 was cancelled" in said.cause
    assert station.query("SELECT id, state, policy FROM training_runs ORDER BY id") == [
        ("sft-1", "finished", "policy@2"), ("sft-2", "cancelled", ""),
    ]  # fmt: skip


def test_runs_that_nobody_could_start_are_refused(station: Station, person: Person) -> None:
    for run, why in (("../x", "not a valid name"), ("", "not a valid name")):
        assert why in person.ask(wire.StartTraining(request="r", run=run)).cause
    said = person.ask(wire.StartTraining(request="r", run="nowhere"))
    assert "no folder training/nowhere" in said.cause
    said = start(station, person, "sft-1", parent="policy@9")
    assert "no policy 'policy@9'" in said.cause
    register(station, person, "policy@2")
    said = start(station, person, "sft-1", base="/other", base_hash="other")
    assert "another base model than /other" in said.cause
    assert "no training run 'x'" in person.ask(wire.CancelTraining(run="x")).cause


def test_who_trains_alone_says_how_it_stands(station: Station, person: Person) -> None:
    start(station, person, "sft-1", alone=True)
    person.ask(wire.ReportTrainingState(run="sft-1", state="running"))
    assert "outside the daemon" in person.ask(wire.CancelTraining(run="sft-1")).cause
    person.ask(wire.ReportTrainingState(run="sft-1", state="failed", reason="memory"))
    assert states(station) == [("sft-1", "failed", 1, "memory")]
    start(station, person, "sft-2")
    said = person.ask(wire.ReportTrainingState(run="sft-2", state="finished"))
    assert "child of the daemon" in said.cause


def test_what_leaked_into_training_can_be_erased_but_not_its_names(
    station: Station, person: Person
) -> None:
    register(station, person, "policy@2", recipe={"note hunter2hunter2": "hunter2hunter2"})
    start(station, person, "sft-1")
    station.recorder.report_training_state("sft-1", "failed", "the key hunter2hunter2 is wrong")
    seqs = tuple(seq for (seq,) in station.query("SELECT seq FROM events WHERE rollout = ''"))
    done = person.ask(wire.EraseBodies(rollout="", seqs=seqs, text="hunter2hunter2"))
    assert isinstance(done, wire.RequestStored)
    assert states(station)[0][3] == "the key [erased] is wrong"
    assert not station.query("SELECT 1 FROM events WHERE instr(body, 'hunter2hunter2')")
    said = person.ask(wire.EraseBodies(rollout="", seqs=seqs, text="policy@2"))
    assert "a word that Houston writes itself" in said.cause
    assert verify_home(station.home).findings == ()
