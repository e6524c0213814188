"""For which rollouts a critic is asked by itself, by named scenarios."""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from houston_daemon.review.critic import live_drafts_child
from houston_daemon.review.critic.live_drafts_child import MIN_STEPS, calls_for_draft
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.attention_ranking import NeedReason, RolloutNeed, RolloutOverview
from houston_shared.store.draft_queries import CriticDraft
from tests.unit.store.test_attention_ranking import rollout


class Scenario(NamedTuple):
    reasons: tuple[tuple[str, int], ...]
    wanted: bool
    state: str = "running"
    drafts: tuple[tuple[str, int], ...] = ()
    """State of each, and the step that it was written after."""
    asked: int = 0
    """Steps that it had when a critic read it last."""


STREAK = (("error_streak", 60),)
SCENARIOS = {
    "errors in a row": Scenario(STREAK, True),
    "weak decisions in a row": Scenario((("weak_decisions", 35),), True),
    "nothing is wrong": Scenario((), False),
    "something light": Scenario((("null_action", 15),), False),
    "somebody has seen it": Scenario((("error_streak", 30),), False),
    "a full disk": Scenario((("disk", 65),), False),
    "it rests": Scenario(STREAK, False, state="paused"),
    "a draft waits": Scenario(STREAK, False, drafts=(("open", 1),)),
    "one was just said": Scenario(STREAK, False, drafts=(("accepted", 20 - MIN_STEPS + 1),)),
    "a critic found it right": Scenario(STREAK, False, asked=20 - MIN_STEPS + 1),
    "a critic found it right long ago": Scenario(STREAK, True, asked=20 - MIN_STEPS),
    "one was said long ago": Scenario(STREAK, True, drafts=(("accepted", 20 - MIN_STEPS),)),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_critic_is_asked_where_the_agent_does_badly(name: str) -> None:
    scenario = SCENARIOS[name]
    reasons = tuple(NeedReason(kind, kind, weight) for kind, weight in scenario.reasons)
    drafts = [
        CriticDraft(
            id="d", rollout="r", step=step, critic="c", text="t", reason="", state=state, by="",
            guidance="", at="",
        )
        for state, step in scenario.drafts
    ]  # fmt: skip
    overview = RolloutOverview(rollout(state=scenario.state, steps=20))
    need = RolloutNeed(overview, 0.0, reasons)
    assert calls_for_draft(need, drafts, scenario.asked) == scenario.wanted


class Asking:
    """A follower for which one rollout does badly, with a clock and a critic made by hand."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.steps, self.asked = 0.0, 20, 0
        self.told: list[dict[str, str]] = []
        self.code, self.stderr = 0, ""
        self.unreadable: HoustonError | None = None
        loaded = LoadedConfiguration(Configuration(), Home(folder), "defaults")
        self.follower = live_drafts_child.DraftFollower(loaded, "")
        monkeypatch.setattr(live_drafts_child.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(live_drafts_child, "Reader", lambda _: contextlib.nullcontext(self))
        monkeypatch.setattr(live_drafts_child, "rank_rollouts", lambda *_: self.ranked())
        monkeypatch.setattr(live_drafts_child, "report_failures", self.told.append)
        monkeypatch.setattr(live_drafts_child.subprocess, "run", self.critic)

    def run(self, _: object) -> list[CriticDraft]:
        return []

    def ranked(self) -> list[RolloutNeed]:
        if self.unreadable:
            raise self.unreadable
        overview = RolloutOverview(rollout(state="running", steps=self.steps))
        reasons = tuple(NeedReason(kind, kind, weight) for kind, weight in STREAK)
        return [RolloutNeed(overview, 0.0, reasons)] if self.steps else []

    def critic(self, *_: object, **__: object) -> SimpleNamespace:
        self.asked += 1
        return SimpleNamespace(returncode=self.code, stderr=self.stderr)

    def look(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.follower.look()


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asking:
    return Asking(tmp_path, monkeypatch)


def test_what_failed_is_told_until_it_would_have_been_asked_again(asking: Asking) -> None:
    """A rollout that has ended is never asked about again, and its failure is no trouble then."""
    asking.code, asking.stderr = 1, "houston: it is away"
    asking.look()
    asking.look(5.0)
    asking.steps = 0
    asking.look(live_drafts_child.ANSWER_SECONDS / 10)
    name = rollout().id
    assert (asking.asked, asking.told) == (1, [{name: "it is away"}, {}])


def test_a_critic_is_not_paid_twice_for_the_same_steps(asking: Asking) -> None:
    for _ in range(100):
        asking.look(60.0)
    assert asking.asked == 1
    asking.steps += MIN_STEPS
    asking.look(60.0)
    assert asking.asked == 2


REASONS = {
    "an error after notes": ("A note.\nhouston: The engine is away. Nothing was criticised.\n"
                             "  next: houston doctor\n",
                             "The engine is away. Nothing was criticised."),
    "no error": ("A note.\nNo answer could be used: it has no <reason>\n  (512 tokens)\n",
                 "No answer could be used: it has no <reason>"),
    "nothing": ("", "it ended without a word"),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_why_no_draft_came_is_told(name: str, asking: Asking) -> None:
    asking.code, (asking.stderr, wanted) = 1, REASONS[name]
    asking.look()
    assert asking.told == [{rollout().id: wanted}]


def test_a_journal_that_cannot_be_read_is_told_and_tried_again(asking: Asking) -> None:
    asking.unreadable = HoustonError("The database is busy.")
    asking.look()
    asking.unreadable = None
    asking.look()
    assert (asking.asked, asking.told) == (1, [{"": "The database is busy."}, {}])
