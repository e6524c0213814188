"""What the recorder keeps in memory of the newest steps changes nothing but its speed.

The same messages, in order and out of it, go to two recorders: one that remembers and takes many in
one transaction, and one that has forgotten everything before each message.
"""

import os
import random
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.recorder import journal_writer, rollout_assignment
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.group_commit import GroupCommit
from houston_daemon.recorder.handlers import guidance_handlers as people
from houston_daemon.recorder.handlers import ingest_handlers, rollout_handlers
from houston_daemon.recorder.identity_and_roles import PeerIdentities, resolve_author
from houston_daemon.recorder.message_dispatch import SupervisorCall
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.recorder_thread import begin_epoch
from houston_shared import records, wire
from houston_shared.home import Home
from tests.support.recorder_client import call, result, sample, spec

ROLLOUTS = 3
MESSAGES = 240
US = PeerIdentities("").peer(f"localhost:{os.getuid()}:{os.getgid()}:{os.getpid()}")
TABLES = {
    "events": "seq, rollout, step, attempt, part, kind, body, body_hash",
    "steps": "rollout, step, attempt, current, sample_seq, observation_seq, last_seq, errors,"
    " guided, score",
    "rollouts": "id, state, steps, last_seq, active_us, errors, evaluations, best_score",
    "guidance": "id, state, delivered_step, delivered_seq",
}


class Recorder:
    """A store and its batches, without sockets."""

    def __init__(self, path: Path, rollouts: list[str]) -> None:
        home = Home(path)
        home_files.prepare_home(home, "")
        self.store, _ = begin_epoch(home)
        self.batch = GroupCommit(self.store, lambda done: wait([done]) and None)
        # Ids are drawn by chance; what is compared must not be.
        with pytest.MonkeyPatch.context() as patch:
            names = iter(rollouts)
            patch.setattr(rollout_handlers, "make_rollout_id", lambda store, task: next(names))
            start = wire.StartRollouts(request="r", specs=(spec(),) * len(rollouts))
            self.answers([lambda store: rollout_handlers.start_rollouts(store, start, _me())])
        self.answers([_assign(rollout) for rollout in rollouts])

    def answers(self, acts: list[Any]) -> list[Any]:
        """What each act returns or refuses, all in one transaction."""
        works = [SupervisorCall(act) for act in acts]
        self.batch.run(works)
        for work in works:
            work.answer(self.store, lambda rollout: wire.WorkerControl())
        self.store.journal.appended.clear()
        problems = [work.future.exception() for work in works]
        return [
            str(bad) if bad else _plain(work) for bad, work in zip(problems, works, strict=True)
        ]

    def tables(self) -> dict[str, list[Any]]:
        execute = self.store.connection.execute
        return {
            table: sorted(execute(f"SELECT {columns} FROM {table}"), key=repr)
            for table, columns in TABLES.items()
        }

    def close(self) -> None:
        self.batch.close()
        self.store.connection.close()


def _me() -> Any:
    assert US
    return resolve_author(US, "")


def _assign(rollout: str) -> Any:
    return lambda store: rollout_assignment.assign_rollout(store, rollout).lease


def _plain(work: SupervisorCall) -> Any:
    value = work.future.result()
    if isinstance(value, ingest_handlers.AckContent):
        return (value.seq, [one.id for one in value.guidance], value.duplicate)
    return type(value).__name__


def _says(message: Any) -> Any:
    """A worker's message as an act."""

    def act(store: Store) -> Any:
        place = ingest_handlers.find_event_slot(message)
        body = journal_writer.prepare_inline_body(place.record) if place else None
        return ingest_handlers.handle_worker_message(store, message, place, body, b"worker")

    return act


def talk(seed: int, rollouts: list[str]) -> Iterator[Any]:
    """Acts of workers and people: mostly what comes next, often something else."""
    chance = random.Random(seed)
    at = dict.fromkeys(rollouts, (1, 0))
    for number in range(MESSAGES):
        rollout = chance.choice(rollouts)
        step, stage = at[rollout]
        if chance.random() < 0.04:
            guide = wire.Guide(id=f"g{number}", rollout=rollout, text=f"word {number}")
            yield lambda store, guide=guide: people.queue_guidance(store, guide, _me()).seq
            continue
        if chance.random() < 0.02:
            action = chance.choice(["pause", "resume"])
            steer = wire.Steer(rollout=rollout, action=action)
            yield lambda store, steer=steer: rollout_handlers.steer_rollout(store, steer, _me()).seq
            continue
        odd = chance.random() < 0.2
        if odd:
            step, stage = step + chance.choice([-1, 0, 0, 1]), chance.randrange(4)
        yield _says(_message(chance, rollout, step, stage, odd))
        if not odd:
            at[rollout] = (step + 1, 0) if stage == 3 else (step, stage + 1)


def _message(chance: random.Random, rollout: str, step: int, stage: int, odd: bool) -> Any:
    """odd: whether lease, attempt, call and figures may be other than they should."""
    key: dict[str, Any] = {"rollout": rollout, "step": step, "active_us": step * 1_000}
    key["lease"] = chance.choice([1, 1, 1, 2]) if odd else 1
    key["attempt"] = chance.choice([1, 1, 2]) if odd else 1
    index = chance.choice([-1, 0, 0, 1]) if odd else 0
    if stage == 0:
        return wire.StoreSample(**key, sample=sample(step))
    if stage == 1:
        return wire.StoreIntent(**key, index=index, intent=records.CallIntent(call=call(step)))
    if stage == 2:
        fields = {"overall_score": chance.choice([5, 7.5, "many" if odd else 9]), "state": "scored"}
        kinds: list[dict[str, Any]] = [
            {},
            {"success": False},
            {"kind": "eval", "fields": fields},
            {"kind": "search", "fields": {"total_results": "three" if odd else 3}},
        ]
        body = result(step, **chance.choices(kinds, [12, 2, 1, 1])[0])
        return wire.StoreResult(**key, index=index, result=body)
    return wire.StoreObservation(**key, observation=records.ObservationBody(tail=f"[{step}]"))


@pytest.mark.parametrize("seed", range(6))
def test_a_recorder_that_remembers_answers_as_one_that_looks_everything_up(
    seed: int, tmp_path: Path
) -> None:
    rollouts = [f"probe-{number}" for number in range(ROLLOUTS)]
    remembers = Recorder(tmp_path / "one", rollouts)
    forgets = Recorder(tmp_path / "two", rollouts)
    chance = random.Random(seed)
    acts, others = list(talk(seed, rollouts)), list(talk(seed, rollouts))
    followed = 0
    while acts:
        many = chance.randrange(1, 16)
        now, acts = acts[:many], acts[many:]
        got = remembers.answers(now)
        expected = []
        for act in others[:many]:
            forgets.store.journal.newest_steps.forget_all()
            expected += forgets.answers([act])
        others = others[many:]
        assert got == expected
        followed += sum(isinstance(one, tuple) and not one[2] for one in got)
    assert followed > MESSAGES / 4, "most messages are stored"
    assert remembers.tables() == forgets.tables()
    remembers.close()
    forgets.close()
