"""A rollout's events are read in the order they were stored, whatever its steps look like.

Each read is compared with a plain look through the whole journal.
"""

from collections.abc import Callable

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.records import ForkBody, ToolCall
from houston_shared.store import journal_events, rollout_queries
from houston_shared.store.event_bodies import StepBookmarked
from houston_shared.store.journal_events import OPEN_END
from houston_shared.store.store_reader import Reader
from tests.support.written_home import WrittenHome, sample

STEPS = 40
LOOK = sample(calls=(ToolCall(id="1", name="list_dir", arguments={}),))
KINDS = {
    "all kinds": (),
    "a common one": ("result",),
    "a rare one": ("fork", "bookmark"),
    "none": ("no",),
}


def _plain(home: WrittenHome, step: int) -> None:
    home.step("r", step, LOOK, ("seen",))


def _asides(home: WrittenHome, step: int) -> None:
    """What belongs to an old step, or to none, comes between the calls of a new one."""
    home.step("r", step, LOOK, open=True)
    home.guide("r", f"g{step}", "go on")
    if step > 5:
        home.sampled("r", step - 5, sample(role="judge"), part=f"judge.{step}")
        home.event(EventKey("r", step // 2), "bookmark", StepBookmarked(author="ada"))


def _attempts(home: WrittenHome, step: int) -> None:
    home.step("r", step, LOOK, ("failed",))
    home.step("r", step, LOOK, ("better",), attempt=2)


def _forks(home: WrittenHome, step: int) -> None:
    if step > 2 and step % 3 == 0:
        home.sampled("r", step, sample(role="summary"), part=f"summary.{step}")
        home.fork("r", step, ForkBody(k=1, first_kept_step=2, summary="so far"))
    home.step("r", step, LOOK, ("seen",))


def _lost(home: WrittenHome, step: int) -> None:
    """A repair has set the samples of some steps aside: nothing says any more when they began."""
    lost = home.step("r", step, LOOK, ("seen",))
    if step % 5 == 0 or step in (1, 22, 23, 24):
        home.connection.execute(
            "UPDATE events SET part = NULL, kind = 'aside', body = NULL, erased = 1 WHERE seq = ?",
            (lost,),
        )
        home.connection.execute("DELETE FROM steps WHERE rollout = 'r' AND step = ?", (step,))


SHAPES: dict[str, Callable[[WrittenHome, int], None]] = {
    "calls": _plain,
    "asides": _asides,
    "attempts": _attempts,
    "forks": _forks,
    "samples that were lost": _lost,
}


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_rollout_is_read_in_order(
    shape: str, kinds: str, written: WrittenHome, reader: Reader
) -> None:
    for name in ("other", "r"):
        written.rollout(name)
    for step in range(1, STEPS + 1):
        SHAPES[shape](written, step)
        written.step("other", step, LOOK, ("else",))
    wanted = KINDS[kinds]
    marks = ", ".join("?" * len(wanted))
    all_of_it = "SELECT seq, step FROM events WHERE +rollout = 'r'"
    rows = written.connection.execute(
        f"{all_of_it} {f'AND kind IN ({marks})' if wanted else ''} ORDER BY seq", wanted
    ).fetchall()
    seqs = [seq for seq, _ in rows]
    for at in (0, *range(1, written.seq, 17), written.seq, OPEN_END):
        behind = [seq for seq in seqs if seq > at]
        ahead = [seq for seq in reversed(seqs) if seq < at]
        for limit in (1, 7, 1_000):
            events = reader.run(journal_events.events_forward("seq", "r", at, limit, wanted))
            assert [seq for (seq,) in events] == behind[:limit]
            events = reader.run(journal_events.events_backward("seq", "r", at, limit, wanted))
            assert [seq for (seq,) in events] == ahead[:limit]
        bounded = reader.run(
            journal_events.events_backward("seq", "r", OPEN_END, 1_000, wanted, after=at)
        )
        assert [seq for (seq,) in bounded] == behind[::-1]
        touched = written.connection.execute(journal_events.CHANGED_STEPS, ("r", at)).fetchall()
        steps = written.connection.execute(f"{all_of_it} AND seq > ?", (at,)).fetchall()
        assert {step for (step,) in touched} == {step for _, step in steps}


def test_a_rollout_without_steps_has_its_own_events(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r")
    guided = written.guide("r", "g", "begin")
    assert [event.seq for event in reader.run(rollout_queries.events_since(0, "r"))] == [
        guided - 1,
        guided,
    ]
    assert [event.seq for event in reader.run(rollout_queries.newest_events(1, "r"))] == [guided]
    assert reader.run(rollout_queries.events_since(0, "nobody")) == []
    condition = f"SELECT seq FROM events WHERE {journal_events.EVENTS_OF_ROLLOUT}"
    own = written.connection.execute(condition, ("r",)).fetchall()
    assert own == [(guided - 1,), (guided,)]


READS = {
    "a window": (journal_events._EVENT_WINDOW, ("r", 1, 9, 1, 2)),
    "all of a rollout": (journal_events.EVENTS_OF_ROLLOUT, ("r",)),
    "steps that were touched": (f"step IN ({journal_events.CHANGED_STEPS}) AND seq = 1", ("r", 1)),
}


@pytest.mark.parametrize("read", READS)
def test_no_read_of_a_rollout_looks_through_the_whole_journal(
    read: str, written: WrittenHome
) -> None:
    condition, parameters = READS[read]
    plan = f"EXPLAIN QUERY PLAN SELECT body FROM events WHERE {condition}"
    rows = written.connection.execute(plan, parameters).fetchall()
    assert not [row for row in rows if "SCAN events" in row[3]]
