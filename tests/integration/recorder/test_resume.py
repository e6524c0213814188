"""What a worker gets when it begins again: exactly what was acked, in pages of bounded size."""

import pytest

from houston_daemon.recorder import rollout_reader
from houston_shared import records, wire
from tests.support.recorder_client import Station, Worker, call, result, sample


def all_steps(worker: Worker, first: int = 1) -> tuple[list[records.StepRecord], int]:
    """Steps from `first` on, and how many pages they came in."""
    found: list[records.StepRecord] = []
    pages = 0
    while True:
        page = worker.say(wire.ReadSteps, step=first)
        pages += 1
        found += page.steps
        if not page.more:
            return found, pages
        first = found[-1].step + 1


def test_a_resumed_worker_reads_what_was_acked(station: Station) -> None:
    worker, person = station.working(), station.person()
    worker.step(1)
    person.guide(worker.rollout, "heard at two", id="g")
    worker.active_us = 7_000_000
    ack = worker.step(2)
    worker.sample(3, calls=(call(3), call(3, 1)))
    worker.intent(3)
    worker.result(3)
    worker.intent(3, 1)
    station.restart()
    again = station.worker(worker.rollout)
    assert again.welcome.next_step == 3  # type: ignore[attr-defined]
    one, two, three = all_steps(again)[0]
    assert one.sample == sample(1)
    assert one.results == (result(1),)
    assert one.guidance == ()
    assert two.guidance == ack.guidance == (two.guidance[0],)
    assert two.active_seconds == 7.0
    assert three.observation is None
    assert [len(three.intents), len(three.results)] == [2, 1]
    again.result(3, 1)
    assert isinstance(again.observation(3), wire.Ack)
    assert all_steps(again, first=3)[0][0].observation is not None


def test_pages_are_bounded_and_complete(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_reader, "STEPS_PAGE_BYTES", 200_000)
    worker = station.working()
    for step in range(1, 8):
        worker.sample(step)
        worker.intent(step)
        worker.result(step, text="large " * 20_000)  # 120 KB: in a blob
        worker.observation(step)
    steps, pages = all_steps(worker)
    assert [one.step for one in steps] == list(range(1, 8))
    assert pages == 7
    assert all(one.results[0].text == "large " * 20_000 for one in steps)


def test_a_fork_and_the_summaries_it_owes(station: Station) -> None:
    worker, person = station.working(), station.person()
    for step in (1, 2):
        person.guide(worker.rollout, f"at {step}", id=f"g{step}")
        worker.step(step)
    for number in (1, 2):
        body = sample(3, role="summary", thought=f"try {number}")
        part = f"summary.{number}"
        ack = worker.say(wire.StoreSample, step=3, attempt=1, part=part, sample=body)
    welcome = worker.hello()
    assert [one.part for one in welcome.summaries] == ["summary.1", "summary.2"]
    assert welcome.summaries[1].seq == ack.seq
    assert welcome.summaries[1].sample.thought == "try 2"
    fork = records.ForkBody(
        k=1, first_kept_step=2, summary="so far", guidance=("g2", "g1"), sample_seq=ack.seq
    )
    assert isinstance(worker.say(wire.StoreFork, step=3, fork=fork), wire.Ack)
    welcome = worker.hello()
    assert welcome.fork == fork
    assert welcome.forks == 1
    assert welcome.first_step == 2
    assert [one.text for one in welcome.fork_guidance] == ["at 2", "at 1"]
    worker.step(3)
    assert worker.hello().summaries == ()
    assert station.query("SELECT number, step, k, first_kept_step FROM forks") == [(1, 3, 1, 2)]


def test_the_head_is_kept_as_it_was_rendered(station: Station) -> None:
    worker = station.working()
    head = records.ContextHead(
        system="système ‮",
        task="t" * 100_000,
        tools=({"type": "function"},),
        rendered="<|im_start|>",
        token_ids=(1, 2, 3),
        dialect="chatml-json",
        tokenizer="/x",
    )
    worker.say(wire.StoreHead, head=head)
    station.restart()
    assert station.worker(worker.rollout).welcome.head == head  # type: ignore[attr-defined]
