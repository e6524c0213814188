"""Scores of a process reward model: once for each attempt, only where a step is, and replayed."""

import json
from typing import Any

import msgspec
import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.maintenance.journal_repair import repair_home
from houston_shared import records, wire
from houston_shared.command import main
from houston_shared.store import process_reward_queries
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.support.full_home import change
from tests.support.recorder_client import TASK, Person, Station, Worker, spec

POLICY = "prm@2"
HEAD = records.ContextHead(
    system="s", task="t", tools=(), rendered="", token_ids=None, dialect="", tokenizer=""
)


def score(step: int, value: float, attempt: int = 1) -> wire.StepScore:
    """Of whichever rollout it is stored for."""
    return wire.StepScore(rollout="", step=step, attempt=attempt, score=value)


def store(person: Person, rollout: str, *scores: wire.StepScore, policy: str = POLICY) -> Any:
    of_rollout = tuple(msgspec.structs.replace(score, rollout=rollout) for score in scores)
    return person.ask(wire.StoreProcessRewards(policy=policy, scores=of_rollout))


def register(station: Station, person: Person, name: str = POLICY) -> None:
    (station.home.path / "policies" / name).mkdir(parents=True)
    (station.home.path / "policies" / name / "lineage.json").write_text("{}")
    policy = PolicyRegistered(
        by="", name=name, kind="reward", base="/models/base", base_hash="b", hash=name, folder=name,
    )  # fmt: skip
    answer = person.ask(wire.RegisterPolicy(request=name, policy=policy))
    assert isinstance(answer, wire.RequestStored), answer


def worked(station: Station, steps: int) -> Worker:
    worker = station.working()
    for step in range(1, steps + 1):
        worker.step(step)
    return worker


def stands(station: Station, rollout: str) -> dict[tuple[int, int], tuple[str, float]]:
    with Reader(station.home) as reader:
        rewards = reader.run(process_reward_queries.list_process_rewards(rollout))
    return {key: (reward.policy, reward.score) for key, reward in rewards.items()}


def scored_events(station: Station) -> int:
    rows = station.query("SELECT count(*) FROM events WHERE kind = 'process-reward'")
    return int(rows[0][0])


def test_a_score_stands_once_and_follows_from_its_event(station: Station) -> None:
    worker, person = worked(station, 3), station.person()
    register(station, person)
    rollout = worker.rollout
    first = store(person, rollout, score(1, 0.25), score(2, 1.0))
    assert (type(first), first.skipped) == (wire.RequestStored, ())
    again = store(person, rollout, score(1, 0.75), score(2, 1.0), score(3, 0.0))
    assert again.skipped == ()
    assert stands(station, rollout) == {
        (1, 1): (POLICY, 0.25),
        (2, 1): (POLICY, 1.0),
        (3, 1): (POLICY, 0.0),
    }, "what a policy said of an attempt stays"
    assert scored_events(station) == 3
    register(station, person, "prm@3")
    store(person, rollout, score(1, 0.5), policy="prm@3")
    assert stands(station, rollout)[1, 1] == ("prm@3", 0.5), "the newest policy's is shown"
    station.stop()
    assert verify_home(station.home).findings == ()
    change(station.home, "UPDATE process_rewards SET score = 0.9 WHERE step = 2")
    assert [finding.table for finding in verify_home(station.home).findings] == ["process_rewards"]
    assert repair_home(station.home).changed
    assert verify_home(station.home).findings == ()
    assert stands(station, rollout)[2, 1] == (POLICY, 1.0)


def test_steps_that_are_not_there_any_more_are_named_and_get_none(station: Station) -> None:
    worker, person = worked(station, 2), station.person()
    register(station, person)
    rollout = worker.rollout
    worker.sample(2, attempt=2)
    worker.intent(2, attempt=2)
    worker.result(2, attempt=2)
    worker.observation(2, attempt=2)
    worker.sample(3)
    answer = store(
        person, rollout, score(1, 0.5), score(2, 0.1), score(2, 0.9, 2), score(3, 1.0), score(9, 0)
    )
    assert answer.skipped == (1, 3, 4), "replaced, open, never there"
    assert stands(station, rollout) == {(1, 1): (POLICY, 0.5), (2, 2): (POLICY, 0.9)}
    station.stop()
    assert verify_home(station.home).findings == ()


def test_an_erased_step_keeps_its_score_and_gets_no_other(station: Station) -> None:
    worker, person = worked(station, 2), station.person()
    register(station, person)
    rollout = worker.rollout
    store(person, rollout, score(1, 0.5))
    worker.say(wire.StoreState, state="finished")
    seqs = station.query("SELECT seq FROM events WHERE rollout = ? AND step > 0", rollout)
    answer = person.ask(wire.EraseBodies(rollout=rollout, seqs=tuple(seq for (seq,) in seqs)))
    assert isinstance(answer, wire.RequestStored), answer
    assert stands(station, rollout) == {(1, 1): (POLICY, 0.5)}
    assert store(person, rollout, score(2, 1.0)).skipped == (0,)
    assert scored_events(station) == 1
    station.stop()
    assert verify_home(station.home).findings == ()


def test_a_branch_has_the_scores_of_the_steps_that_it_shares(station: Station) -> None:
    person = station.person()
    register(station, person)
    definition = f'{TASK}environment = "null"\n'
    task = msgspec.structs.replace(spec().task, definition=definition)
    start = wire.StartRollouts(request="s", specs=(msgspec.structs.replace(spec(), task=task),))
    worker = station.worker(person.ask(start).rollouts[0])
    for step in (1, 2, 3):
        worker.step(step)
    store(person, worker.rollout, score(1, 0.5), score(3, 0.1))
    assert isinstance(worker.say(wire.StoreHead, head=HEAD), wire.Ack)
    branch = wire.BranchRollout(request="b", rollout=worker.rollout, step=2)
    (other,) = person.ask(branch).rollouts
    assert stands(station, other) == {(1, 1): (POLICY, 0.5)}
    assert store(person, other, score(1, 0.9)).skipped == (0,), "it is its parent's step"
    assert store(person, "no-such", score(1, 0.9)).skipped == (0,)


REFUSED: dict[str, tuple[tuple[wire.StepScore, ...], str, str]] = {
    "an unknown policy": ((score(1, 0.5),), "prm@9", "There is no policy 'prm@9'"),
    "no score": ((), POLICY, "1 to 1000 steps"),
    "too many": (tuple(score(n, 0.5) for n in range(1, 1002)), POLICY, "1 to 1000 steps"),
    "above one": ((score(1, 1.5),), POLICY, "Expected `float` <= 1.0"),
    "no number": ((score(1, float("nan")),), POLICY, ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_stored_is_refused_clearly(station: Station, case: str) -> None:
    scores, policy, words = REFUSED[case]
    worker, person = worked(station, 1), station.person()
    register(station, person)
    denied = store(person, worker.rollout, *scores, policy=policy)
    assert isinstance(denied, wire.Denied)
    assert words in denied.cause
    assert station.query("SELECT count(*) FROM process_rewards") == [(0,)]


def test_commands_show_the_score_of_each_step_and_a_summary(
    station: Station, capsys: pytest.CaptureFixture[str]
) -> None:
    worker, person = worked(station, 3), station.person()
    register(station, person)
    store(person, worker.rollout, score(1, 0.5), score(2, 0.125))

    def run(*words: str) -> str:
        capsys.readouterr()
        assert main(["--home", str(station.home.path), *words]) == 0
        return capsys.readouterr().out

    lines = [json.loads(line) for line in run("steps", worker.rollout, "--json").splitlines()]
    assert [line["process_reward"] for line in lines] == [
        {"policy": POLICY, "score": 0.5},
        {"policy": POLICY, "score": 0.125},
        None,
    ]
    printed = run("steps", worker.rollout)
    assert [line for line in printed.splitlines() if "process reward" in line] == [
        f"  process reward: 0.50 by {POLICY}",
        f"  process reward: 0.12 by {POLICY}",
    ]
    shown = json.loads(run("rollout", "show", worker.rollout, "--json"))
    assert shown["process_reward"] == {
        "policy": POLICY, "steps": 2, "mean": 0.3125, "lowest": 0.125, "lowest_step": 2,
    }  # fmt: skip
    words = f"mean 0.31 of 2 decisions, lowest 0.12 at step 2; by {POLICY}"
    assert words in run("rollout", "show", worker.rollout)
    other = worked(station, 1).rollout
    assert json.loads(run("rollout", "show", other, "--json"))["process_reward"] is None
    assert "decisions, lowest" not in run("rollout", "show", other)
