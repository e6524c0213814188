"""For which rollouts a critic is asked by itself, by named scenarios."""

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from houston_daemon.review.critic import live_drafts_child
from houston_daemon.review.critic.live_drafts_child import LEAST_STEPS, calls_for_draft
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.home import Home
from houston_shared.store.attention_ranking import NeedReason, RolloutNeed, RolloutOverview
from houston_shared.store.draft_queries import CriticDraft
from tests.unit.shared.test_need import rollout


class Scenario(NamedTuple):
    reasons: tuple[tuple[str, int], ...]
    wanted: bool
    state: str = "running"
    drafts: tuple[tuple[str, int], ...] = ()
    """State of each, and the step that it was written after."""


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
    "one was just said": Scenario(STREAK, False, drafts=(("accepted", 20 - LEAST_STEPS + 1),)),
    "one was said long ago": Scenario(STREAK, True, drafts=(("accepted", 20 - LEAST_STEPS),)),
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
    assert calls_for_draft(RolloutNeed(overview, 0.0, reasons), drafts) == scenario.wanted


def test_what_failed_is_told_until_it_would_have_been_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout that has ended is never asked about again, and its failure is no trouble then."""
    told: list[dict[str, str]] = []
    clock, asked = [0.0], ["r1"]
    monkeypatch.setattr(live_drafts_child.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(live_drafts_child, "next_rollout", lambda *_: asked.pop() if asked else "")
    monkeypatch.setattr(live_drafts_child, "report_failures", told.append)
    monkeypatch.setattr(
        live_drafts_child.subprocess,
        "run",
        lambda *_, **__: SimpleNamespace(returncode=1, stderr="houston: it is away"),
    )
    loaded = LoadedConfiguration(Configuration(), Home(tmp_path), "defaults")
    follower = live_drafts_child.DraftFollower(loaded, "")
    for now in (0.0, 5.0, live_drafts_child.ANSWER_SECONDS / 10 + 1):
        clock[0] = now
        follower.look()
    assert told == [{"r1": "it is away"}, {}]
