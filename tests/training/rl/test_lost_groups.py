"""A group of whose rollouts something is gone is dropped and replaced: it ends no run."""

from pathlib import Path

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.training.rl.rollout_groups import GroupOutcome, RolloutGroup, read_outcomes
from houston_shared.store import outcome_queries
from houston_shared.store.event_bodies import BodiesErased
from houston_shared.store.store_reader import Reader
from tests.support.written_home import WrittenHome

ROLLOUTS = ("kept", "other")
GONE = {
    "nothing": False,
    "a step's texts were erased": True,
    "it was archived": True,
    "a repair set a step aside": True,
}


def played(home: WrittenHome, gone: str) -> None:
    """Two ended rollouts of three steps; something of the second is gone."""
    for name, score in zip(ROLLOUTS, (100.0, 0.0), strict=True):
        home.rollout(name, state="finished", last_score=score)
        for step in (1, 2, 3):
            if (name, step, gone) != ("other", 2, "a repair set a step aside"):
                seq = home.step(name, step)
    if gone in ("a step's texts were erased", "it was archived"):
        archive = "/archive/other.houston" if gone == "it was archived" else ""
        erased = BodiesErased(by="person:ada", seqs=(seq,), remainders=(b"",), archive=archive)
        home.event(EventKey("other"), "erased", erased)
        home.erase(seq)


def ended(home: WrittenHome, split: str) -> GroupOutcome:
    group = RolloutGroup(
        update=0, batch=0, split=split, index=3, policy="base", rollouts=ROLLOUTS
    )  # fmt: skip
    with Reader(home.home) as reader:
        rows = reader.run(outcome_queries.find_rollouts(ROLLOUTS))
        (outcome,) = read_outcomes(reader, [group], rows, ())
    return outcome


@pytest.mark.parametrize("gone", GONE)
def test_a_group_that_cannot_be_trained_any_more_has_no_members(tmp_path: Path, gone: str) -> None:
    home = WrittenHome(tmp_path)
    played(home, gone)
    trained = ended(home, "train")
    assert (trained.lost, not trained.members) == (GONE[gone], GONE[gone])
    validated = ended(home, "validation")
    assert [member.score for member in validated.members] == [100.0, 0.0], "no text is asked for"
    home.close()
