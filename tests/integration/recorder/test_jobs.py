"""What the recorder stores of jobs: news once, nothing that contradicts what is stored."""

from typing import Any

import msgspec
import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_shared import wire
from houston_shared.records import JobReport
from houston_shared.store import attention_ranking, changes_since_visit, job_queries
from houston_shared.store.journal_events import ERASED_TEXT
from houston_shared.store.store_reader import Reader
from tests.support.full_home import job
from tests.support.recorder_client import Station, Worker


def changed(**fields: Any) -> JobReport:
    """A job of the first step."""
    return msgspec.structs.replace(job(), **{"step": 1, **fields})


RUNS = changed()
ENDED = changed(ended_at=9_000_000)
TOLD = changed(ended_at=9_000_000, exit_code=3, failed=True, last_line="no luck")
NEWS = {
    "it runs, told twice": ([RUNS, RUNS], 1, ("running", None)),
    "it runs, and ends": ([RUNS, TOLD], 2, ("failed", 3)),
    "its end, told twice": ([RUNS, TOLD, TOLD], 2, ("failed", 3)),
    "its end comes first": ([TOLD], 1, ("failed", 3)),
    "that it runs comes after its end": ([TOLD, RUNS], 1, ("failed", 3)),
    "how it ended is told later": ([RUNS, ENDED, TOLD], 3, ("failed", 3)),
    "and then that nobody knows": ([RUNS, TOLD, ENDED], 2, ("failed", 3)),
    "the same name on another host": ([RUNS, changed(host="gpu")], 2, ("running", None)),
}


@pytest.mark.parametrize("case", NEWS)
def test_news_of_a_job_is_stored_once(station: Station, case: str) -> None:
    said, events, (state, code) = NEWS[case]
    worker = station.working()
    worker.step(1)
    for report in said:
        assert isinstance(worker.say(wire.StoreJob, job=report), wire.Ack)
    assert station.query("SELECT count(*) FROM events WHERE kind = 'job'") == [(events,)]
    with Reader(station.home) as reader:
        (found, *_) = reader.run(job_queries.list_jobs(worker.rollout))
        assert (found.state, found.exit_code) == (state, code)
    assert verify_home(station.home).findings == ()


REFUSED = {
    "of a step that is not there": changed(step=9),
    "of no step": changed(step=0),
    "it ended before it began": changed(started_at=9, ended_at=8),
    "a command without end": changed(command="x" * 1_001),
    "a number that no table holds": changed(log_start=2**63),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_job_is_refused(station: Station, case: str) -> None:
    worker = station.working()
    worker.step(1)
    answer = worker.say(wire.StoreJob, job=REFUSED[case])
    assert isinstance(answer, wire.Refused) and answer.code == "INVALID", answer
    assert station.query("SELECT count(*) FROM jobs") == [(0,)]


def test_a_worker_that_has_a_successor_tells_nothing_more(station: Station) -> None:
    worker = station.working()
    worker.step(1)
    station.worker(worker.rollout)
    answer = worker.say(wire.StoreJob, job=RUNS)
    assert isinstance(answer, wire.Refused) and answer.code == "STALE_LEASE"


def test_what_runs_ends_with_its_rollout(station: Station) -> None:
    worker = station.working()
    worker.step(1)
    worker.say(wire.StoreJob, job=RUNS)
    worker.say(wire.StoreJob, job=msgspec.structs.replace(TOLD, id="train@500"))
    assert isinstance(worker.say(wire.StoreState, state="finished"), wire.Ack)
    answer = worker.say(wire.StoreJob, job=TOLD)
    assert isinstance(answer, wire.Refused) and answer.code == "ENDED"
    with Reader(station.home) as reader:
        found = reader.run(job_queries.list_jobs(worker.rollout))
        assert {one.id: (one.state, one.stopped_by) for one in found} == {
            "train@0": ("stopped", "rollout"),
            "train@500": ("failed", ""),
        }
        assert reader.run(job_queries.read_job_summaries()) == {}, "nobody is needed any more"
    assert verify_home(station.home).findings == ()


def test_an_erased_step_takes_the_words_of_its_jobs_along(station: Station) -> None:
    worker = station.working()
    worker.step(1)
    worker.say(wire.StoreJob, job=TOLD)
    worker.step(2)
    worker.say(wire.StoreState, state="finished")
    seqs = station.query("SELECT seq FROM events WHERE step = 1 AND kind = 'job'")
    erased = station.person().ask(
        wire.EraseBodies(rollout=worker.rollout, seqs=seqs[0], reason="a password")
    )
    assert isinstance(erased, wire.RequestStored), erased
    with Reader(station.home) as reader:
        (found,) = reader.run(job_queries.list_jobs(worker.rollout))
    assert (found.command, found.last_line) == (ERASED_TEXT, ERASED_TEXT)
    assert (found.state, found.exit_code, found.session) == ("failed", 3, "train")
    assert verify_home(station.home).findings == ()


def test_who_comes_back_is_told_of_jobs_that_ended(station: Station) -> None:
    worker = station.working()
    worker.step(1)
    worker.say(wire.StoreJob, job=RUNS)
    with Reader(station.home) as reader:
        before = reader.run(changes_since_visit.read_changes_since(worker.rollout, 0))
        worker.say(wire.StoreJob, job=TOLD)
        after = reader.run(changes_since_visit.read_changes_since(worker.rollout, before.seq))
    assert [event.kind for event in before.events if event.kind == "job"] == []
    assert [(event.kind, event.step, event.text) for event in after.events] == [
        ("job", 1, "python train.py: failed, ended with exit code 3")
    ]


def reason(station: Station, worker: Worker) -> tuple[str, int] | None:
    """Why the rollout needs somebody for a job, and how much that weighs."""
    with Reader(station.home) as reader:
        (overview,) = reader.run(attention_ranking.read_rollout_overviews(rollout=worker.rollout))
    need = attention_ranking.compute_rollout_need(overview, 0)
    return next(((r.text, r.weight) for r in need.reasons if r.kind == "job_failed"), None)


def test_a_failed_job_asks_for_a_person_until_it_is_old_or_followed(station: Station) -> None:
    worker = station.working()
    worker.step(1)
    worker.say(wire.StoreJob, job=RUNS)
    assert reason(station, worker) is None
    worker.say(wire.StoreJob, job=TOLD)
    words = "background job failed: python train.py (session train, step 1) ended with exit code 3"
    assert reason(station, worker) == (f"{words}; the agent has closed no step since", 57)
    worker.step(2)
    assert reason(station, worker) == (words, 45), "the agent may know by now"
    for step in (3, 4, 5, 6):
        worker.step(step)
    assert reason(station, worker) == (words, 45)
    worker.step(7)
    assert reason(station, worker) is None, "six steps are enough"
    other = msgspec.structs.replace(TOLD, id="train@500", step=7, started_at=2_000_000)
    worker.say(wire.StoreJob, job=other)
    assert reason(station, worker) is not None
    again = msgspec.structs.replace(RUNS, id="train@900", step=7, started_at=3_000_000)
    worker.say(wire.StoreJob, job=again)
    assert reason(station, worker) is None, "the agent has started it again"
    beside = msgspec.structs.replace(
        TOLD, id="train#7.7", step=7, started_at=2_500_000, log_start=None
    )
    worker.say(wire.StoreJob, job=beside)
    assert reason(station, worker) is not None, "another in the foreground says nothing of this"


def test_a_signal_of_a_step_that_showed_it_says_more(station: Station) -> None:
    worker = station.working()
    worker.step(1)
    worker.say(wire.StoreJob, job=TOLD)
    worker.step(2, attention=("job_failed",), reasons={"job_failed": "as the log shows"})
    assert reason(station, worker) == ("background job failed: as the log shows", 45)
    third = msgspec.structs.replace(TOLD, id="train@500", started_at=2_000_000)
    worker.say(wire.StoreJob, job=third)
    found = reason(station, worker)
    assert found is not None and found[1] == 57, "another, of which no step can know"
    assert found[0].startswith("background job failed: python train.py")
