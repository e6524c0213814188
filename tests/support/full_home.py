"""A home in which every derived table that can have rows has some, and ways to harm it."""

import sqlite3
from pathlib import Path
from typing import Any

from houston_shared import records, wire
from houston_shared.home import Home
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.support.recorder_client import Station, sample


def fill(station: Station, schema: int = 14) -> None:
    """A home in which every derived table that can have rows has some.

    schema: what a home of that schema could hold; older ones had no claims, orders and verdicts.
    """
    person, worker = station.person(), station.working()
    for n in range(3):
        person.guide(worker.rollout, f"guidance number {n}", id=f"g{n}")
    person.ask(wire.EditGuidance(id="g1", revision=1, text="guidance edited"))
    person.ask(wire.WithdrawGuidance(id="g2"))
    if schema >= 4:
        person.ask(wire.ReorderGuidance(rollout=worker.rollout, order=("g1", "g0")))
    worker.step(1)
    worker.sample(2)
    worker.intent(2)
    worker.result(2, kind="eval", fields={"overall_score": 12.5, "state": "scored"})
    worker.intent(2, 1)
    worker.result(2, 1, kind="search", fields={"query": "needle", "total_results": 3})
    worker.intent(2, 2)
    worker.result(2, 2, text="a large result " * 20_000, success=False)
    worker.observation(
        2,
        files=(records.FileChange(path="a.py", kind="changed", added=3, removed=1),),
        spans=(records.TerminalSpan(host="local", terminal="main", start=0, end=99),),
    )
    body = sample(3, role="summary")
    worker.say(wire.StoreSample, step=3, attempt=1, part="summary.1", sample=body)
    fork = records.ForkBody(k=1, first_kept_step=2, summary="so far")
    worker.say(wire.StoreFork, step=3, fork=fork)
    worker.sample(3)
    person.ask(wire.BookmarkStep(rollout=worker.rollout, step=1, note="look"))
    person.ask(wire.ReportPresence(rollout=worker.rollout))
    person.guide(worker.rollout, "still waiting", id="g3")
    if schema < 4:
        return
    person.ask(wire.ClaimRollout(request="c", rollout=worker.rollout, note="for the next"))
    judged = wire.JudgedSteps(first=1, last=2, verdict="mask", reason="wrong turn")
    person.ask(wire.GiveVerdicts(request="v", rollout=worker.rollout, steps=(judged,)))
    if schema >= 5:
        rules = wire.JudgedSteps(first=1, last=1, verdict="mask", reason="error_observation@1: x")
        said: dict[str, Any] = {"rollout": worker.rollout, "source": "rule", "by": "rules"}
        person.ask(wire.StoreVerdicts(request="w", steps=(rules,), **said))
        train(station)
    if schema >= 9:
        score = wire.StepScore(rollout=worker.rollout, step=1, attempt=1, score=0.25)
        scored = wire.StoreProcessRewards(policy="policy@2", scores=(score,))
        assert isinstance(person.ask(scored), wire.RequestStored)
    if schema >= 12:
        draft = wire.StoreDraft(
            id="d",
            rollout=worker.rollout,
            step=1,
            critic="policy@2",
            text="count",
            reason="r",
        )
        for message in (draft, wire.RejectDraft(id="d")):
            assert isinstance(person.ask(message), wire.RequestStored)
    if schema >= 13:
        cost = wire.StoreReviewCost(
            request="q",
            rollout=worker.rollout,
            reviewer="judge:e",
            requests=2,
            prompt_tokens=9,
            sampled_tokens=4,
            cost=0.5,
        )
        for _ in range(2):  # sent again it counts once
            assert isinstance(person.ask(cost), wire.RequestStored)
    if schema >= 14:
        for ended in (0, 0, 9_000_000):
            assert isinstance(worker.say(wire.StoreJob, job=job(ended)), wire.Ack)


def job(ended: int = 0) -> records.JobReport:
    """A job of the second step. ended: UTC microseconds; 0 while it runs."""
    return records.JobReport(
        id="train@0", step=2, host="local", session="train", command="python train.py",
        started_at=1_000_000, ended_at=ended, exit_code=1 if ended else None, failed=bool(ended),
        log_start=0, log_end=99 if ended else None, last_line="no luck" if ended else "",
    )  # fmt: skip


def train(station: Station) -> None:
    """A training run that is over, the policy that came of it, and what became of activations."""
    person = station.person()
    (station.home.path / "training" / "t1").mkdir(parents=True)
    (station.home.path / "policies" / "policy@2").mkdir(parents=True)
    (station.home.path / "policies" / "policy@2" / "lineage.json").write_text("{}")
    person.ask(wire.StartTraining(request="t", run="t1", base="/models/base"))
    person.ask(wire.StartTraining(request="u", run="t1", base="/models/base"))
    station.recorder.report_training_state("t1", "running", start=True)
    person.ask(wire.CancelTraining(run="t1"))
    policy = PolicyRegistered(
        by="", name="policy@2", kind="lora", base="/models/base", base_hash="b", hash="h",
        folder="policy@2", run="t1", manifest="m", recipe={"epochs": 1}, metrics={"loss": 1.5},
    )  # fmt: skip
    person.ask(wire.RegisterPolicy(request="p", policy=policy))
    station.recorder.report_training_state("t1", "finished")
    for request, policy_name, ok in (("a", "policy@2", True), ("b", "policy@1", False)):
        asked = wire.ActivatePolicy(request=request, engine="embedded", policy=policy_name)
        station.recorder.report_activation(person.ask(asked).seq, ok, "" if ok else "no answer")
    person.ask(wire.ActivatePolicy(request="c", engine="embedded", rollback=True))


def change(home: Home, sql: str, *parameters: Any) -> None:
    connection = sqlite3.connect(home.database)
    with connection:
        assert connection.execute(sql, parameters).rowcount > 0
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def flip(path: Path, offset: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def lower_newest_number(home: Home) -> None:
    """Clear the highest bit that is set in the last byte of the newest event's number, in its table
    alone (sqlite.org/fileformat2.html §1.6): the tree leads back to an earlier event."""
    connection = sqlite3.connect(home.database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'events'"
    (page,) = connection.execute(sql).fetchone()
    connection.close()
    data = home.database.read_bytes()
    start = (page - 1) * 8192
    while data[start] == 5:  # an inner page: its last child
        start = (int.from_bytes(data[start + 8 : start + 12]) - 1) * 8192
    cells = int.from_bytes(data[start + 3 : start + 5])
    pointer = start + 8 + 2 * (cells - 1)
    place = start + int.from_bytes(data[pointer : pointer + 2])
    for _ in range(2):  # the length of the row, then its number
        while data[place] & 128:
            place += 1
        place += 1
    flip(home.database, place - 1, (data[place - 1] & 127).bit_length() - 1)


def other(value: Any) -> Any:
    """The value with one bit changed."""
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, str):
        return (chr(ord(value[0]) ^ 1) + value[1:]) if value else "x"
    return value + 0.5 if isinstance(value, float) else value ^ 64
