"""Rules and judge beside people: each counted as what it said itself, where it was asked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.review.judge.judge_calibration import (
    CalibrationReport,
    VerdictAgreement,
    calibrate,
    judged_by_people,
)
from houston_shared.records import ToolCall
from houston_shared.store.event_bodies import BodiesErased, VerdictGiven
from houston_shared.store.store_reader import Reader
from tests.support.written_home import WrittenHome, sample

FAILS = "Traceback (most recent call last):\nValueError: no\n"
RUN = ToolCall(id="1.0", name="run_command", arguments={"command": "python a.py"})
ERROR = "error_observation@5: run_command python a.py: ValueError: no"
OVERRULED = {"verdict": "mask", "reason": f"{ERROR}; the judge would keep it"}
OWN = {"verdict": "mask", "reason": "wrong_tool: why not ls; the judge would keep it"}
KEEPS = {"verdict": "keep", "reason": "it is sound"}


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenHome]:
    home = WrittenHome(tmp_path / "home")
    yield home
    home.close()


def judged(written: WrittenHome, rollout: str, *judge: dict[str, Any], **options: Any) -> None:
    """A rollout of which each step is an error that people mask; with what a judge says of them."""
    written.rollout(rollout, **options)
    for step, verdict in enumerate(judge, 1):
        written.step(rollout, step, sample(calls=(RUN,)), (FAILS,))
        by_judge = {**verdict, "source": "judge", "by": "judge:e"}
        for fields in ({"verdict": "mask", "by": "ada"}, by_judge):
            if verdict or fields["by"] == "ada":
                body = VerdictGiven(last=step, **fields)  # type: ignore[arg-type]
                written.event(EventKey(rollout, step), "verdict", body)


def compared(written: WrittenHome) -> CalibrationReport:
    with Reader(written.home) as reader:
        return calibrate(reader, reader.run(judged_by_people()))


def test_a_keep_that_an_error_overruled_is_the_judges_own_keep(written: WrittenHome) -> None:
    judged(written, "r", OVERRULED, OVERRULED, OWN, KEEPS, {})
    by = compared(written).by
    assert by["judge"] == VerdictAgreement(both=1, only_source=0, only_people=3, neither=0)
    assert by["judge"].recall.value == 0.25, "it would have found one of four"
    assert by["error_observation@5"].recall.value == 1.0
    assert by["rules and judge"].recall.value == 1.0, "an error counts, whatever the judge keeps"


def test_a_rule_is_measured_only_where_the_task_wants_it(written: WrittenHome) -> None:
    judged(written, "on", {}, {}, task="on")
    judged(written, "off", {}, {}, {}, task="off", rules='off = ["error_observation"]')
    judged(written, "only", KEEPS, task="only", rules='only = ["blind_edit"]')
    by = compared(written).by
    assert by["error_observation@5"] == VerdictAgreement(2, 0, 0, 0)
    assert by["null_action@1"].steps == 5
    assert by["blind_edit@6"].steps == 6
    assert by["all rules"] == VerdictAgreement(2, 0, 4, 0)
    assert by["rules and judge"] == VerdictAgreement(2, 0, 4, 0), "nothing overrules that keep"


def test_a_rollout_whose_texts_are_gone_is_left_out_and_named(written: WrittenHome) -> None:
    judged(written, "there", OWN)
    judged(written, "gone", OWN, OWN)
    before = compared(written)
    (seq,) = written.connection.execute(
        "SELECT sample_seq FROM steps WHERE rollout = 'gone' AND step = 2"
    ).fetchone()
    body = BodiesErased(by="person:ada", seqs=(seq,), remainders=(b"",), archive="/a.zst")
    written.event(EventKey("gone"), "erased", body)
    after = compared(written)
    assert (before.rollouts, before.steps, before.passed) == (2, 3, [])
    assert (after.rollouts, after.steps, after.passed) == (1, 1, ["gone"])
    assert after.by["judge"] == VerdictAgreement(1, 0, 0, 0)
