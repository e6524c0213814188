"""Which ended rollouts a limit broke something off of, and what training makes of it."""

from typing import NamedTuple

import pytest

from houston_daemon.training.credit.group_advantages import OVERLONG_REASONS
from houston_shared.records import ToolCall
from houston_shared.store import outcome_queries
from houston_shared.store.store_reader import Reader
from tests.support.written_home import WrittenHome, sample


class Told(NamedTuple):
    """One attempt at a step: how its answer ended, and whether the result of its call was cut."""

    step: int
    finish_reason: str = "stop"
    cut: bool = False
    attempt: int = 1
    role: str = "policy"


SCENARIOS: dict[str, tuple[str, list[Told], str, str]] = {
    # why it is over, its attempts; what holds of all three limits, what holds of answers alone
    "it finished, nothing was cut": ("finish", [Told(1), Told(2)], "", ""),
    "an answer reached its limit of tokens": (
        *("finish", [Told(1, "length"), Told(2)], "answer", "answer"),
    ),
    "a tool's result was cut, and the last answer ends well": (
        *("finish", [Told(1, cut=True), Told(2)], "result", ""),
    ),
    "an answer and a result were cut": (
        *("finish", [Told(1, cut=True), Told(2, "length")], "answer", "answer"),
    ),
    "its steps were spent": ("budget: steps", [Told(1)], "budget", ""),
    "its time was spent": ("budget: active_seconds", [Told(1)], "budget", ""),
    "its steps were spent after a cut result": (
        *("budget: steps", [Told(1, cut=True)], "result", ""),
    ),
    "it was purified, and what was replaced was cut": (
        "finish",
        [Told(1, "length", cut=True), Told(1, "length", True, 2, "lookahead"), Told(1, attempt=3)],
        "",
        "",
    ),
    "it was purified, and what came right was cut": (
        "finish",
        [Told(1), Told(1, "stop", True, 2, "lookahead"), Told(1, cut=True, attempt=3)],
        *("result", ""),
    ),
    "a person interrupted an answer": ("finish", [Told(1, "interrupted")], "", ""),
    "it gave up at once": ("finish", [Told(1)], "", ""),
}


def play(written: WrittenHome, name: str, reason: str, told: list[Told], blob: bool) -> str:
    rollout = written.rollout(name, state="finished", reason=reason)
    for one in told:
        call = ToolCall(id=f"{one.step}.{one.attempt}", name="shell", arguments={})
        ahead = one.role == "lookahead"
        written.step(
            rollout,
            one.step,
            sample(calls=(call,), finish_reason=one.finish_reason, role=one.role),
            ("much",),
            attempt=one.attempt,
            part=f"lookahead.{one.attempt - 1}" if ahead else "sample",
            blob=blob,
            cut=one.cut,
            open=any(other.attempt > one.attempt for other in told if other.step == one.step),
        )
    return rollout


@pytest.mark.parametrize("blob", [False, True], ids=["inline", "in blobs"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_overlong_filtering_leaves_out(
    written: WrittenHome, reader: Reader, scenario: str, blob: bool
) -> None:
    reason, told, every, answers = SCENARIOS[scenario]
    other = play(written, "other", "finish", [Told(1)], blob)
    rollout = play(written, "rollout", reason, told, blob)
    for kinds, kind in ((tuple(OVERLONG_REASONS), every), (("answer",), answers), ((), "")):
        found = reader.run(outcome_queries.overlong_rollouts([other, rollout], kinds))
        assert found == ({rollout: kind} if kind else {})
