"""Which rollout needs a person first, and in which words: a table of situations."""

from typing import Any

import pytest

from houston_shared.records import AWAY_ACTIVITY
from houston_shared.store.attention_ranking import (
    HANDED_TO_ANYBODY_WEIGHT,
    HANDED_WEIGHT,
    FailingEvaluator,
    MarkedStep,
    RolloutOverview,
    compute_rollout_need,
    rank_rollouts,
)
from houston_shared.store.presence_queries import ClaimStatus, PresenceRow
from houston_shared.store.process_reward_queries import WeakRun
from houston_shared.store.rollout_queries import RolloutRow

NOW = 1_000_000_000_000_000
MINUTE = 60_000_000


def rollout(id: str = "r", **fields: Any) -> RolloutRow:
    defaults: dict[str, Any] = {
        "id": id, "task": "t", "state": "running", "paused_by": "", "reason": "", "engine": "e",
        "policy": "", "group_id": "", "parent": "", "parent_step": None, "sandbox": "bubblewrap",
        "forks": 0, "first_step": 1, "steps": 10, "active_us": 0, "evaluations": 0,
        "best_score": None, "last_score": None, "errors": 0, "activity": "", "created_at": 1,
        "updated_at": 1, "last_seq": 100, "spec_seq": 1, "head_seq": 2,
    }  # fmt: skip
    return RolloutRow(**{**defaults, **fields})


def marked(*signals: str, **reasons: str) -> list[MarkedStep]:
    return [MarkedStep("r", 9, signals, reasons)]


def look(name: str = "ben", **fields: Any) -> PresenceRow:
    empty: dict[str, Any] = dict.fromkeys(PresenceRow.__struct_fields__, 0)
    return PresenceRow(**{**empty, "rollout": "r", "name": name, "here": 1, "last": NOW, **fields})


def handed(reader: str, **fields: Any) -> RolloutOverview:
    """A rollout that ada let go with a note, as `reader` sees it."""
    claim = ClaimStatus("r", "", 1, True, NOW, 9, "index is stale", "ada", NOW, 9)
    state = fields.pop("state", "running")
    return RolloutOverview(rollout(state=state), holding=claim._replace(**fields), reader=reader)


SITUATIONS: dict[str, tuple[RolloutOverview, str]] = {
    "all is well": (RolloutOverview(rollout()), ""),
    "it finished": (RolloutOverview(rollout(state="finished", reason="finish")), ""),
    "it was cancelled": (RolloutOverview(rollout(state="cancelled", reason="by ada")), ""),
    "it failed": (
        RolloutOverview(rollout(state="failed", reason="no engine")),
        "failed: no engine",
    ),
    "it failed and somebody has seen it": (
        RolloutOverview(rollout(state="failed"), seen_seq=100),
        "",
    ),
    "it failed low": (
        RolloutOverview(rollout(state="failed", best_score=12.0)),
        "failed; ended low, unseen: best score 12",
    ),
    "it failed with a good score": (
        RolloutOverview(rollout(state="failed", best_score=80.0)),
        "failed",
    ),
    "it finished low": (
        RolloutOverview(rollout(state="finished", best_score=20.0), low_seq=90),
        "ended low, unseen: best score 20",
    ),
    "it finished without a score": (
        RolloutOverview(rollout(state="finished"), low_seq=90),
        "ended low, unseen: no score",
    ),
    "it finished low and somebody left before": (
        RolloutOverview(rollout(state="finished", best_score=20.0), low_seq=90, seen_seq=89),
        "ended low, unseen: best score 20",
    ),
    "it finished low and somebody has seen it": (
        RolloutOverview(rollout(state="finished", best_score=20.0), low_seq=90, seen_seq=90), "",
    ),
    "weak decisions in a row": (
        RolloutOverview(rollout(), weak_run=WeakRun(4, 9, 0.125, "prm@1", 90)),
        "weak decisions: 4 in a row, step 9 scored 0.12 by prm@1",
    ),
    "weak decisions without an end": (
        RolloutOverview(rollout(), weak_run=WeakRun(20, 60, 0.0, "prm@1", 90)),
        "weak decisions: 20 or more in a row, step 60 scored 0.00 by prm@1",
    ),
    "weak decisions of what has ended": (
        RolloutOverview(rollout(state="finished"), weak_run=WeakRun(4, 9, 0.1, "prm@1", 90)),
        "",
    ),
    "a background job failed": (
        RolloutOverview(
            rollout(), marked("job_failed", job_failed="python t.py ended with exit code 1")
        ),
        "background job failed: python t.py ended with exit code 1",
    ),
    "the evaluator fails": (
        RolloutOverview(
            rollout(), marked("evaluator_failed"), evaluator=FailingEvaluator(3, 7, 70, "exit 1")
        ),
        "evaluator failing, 3 submissions without a score: exit 1",
    ),
    "the evaluator failed, and scored since": (
        RolloutOverview(rollout(), marked("evaluator_failed", evaluator_failed="exit 1")), "",
    ),
    "little budget and nothing submitted": (
        RolloutOverview(rollout(steps=9), marked("no_submission", no_submission="2 steps left")),
        "budget nearly gone: 2 steps left",
    ),
    "submitted in the newest step": (
        RolloutOverview(rollout(steps=10), marked("no_submission", no_submission="2 steps left")),
        "",
    ),
    "guidance was not followed": (
        RolloutOverview(rollout(), marked("guidance_ignored", guidance_ignored="heard in step 3")),
        "guidance not followed: heard in step 3",
    ),
    "nothing got better": (
        RolloutOverview(rollout(steps=9), marked("no_gain", no_gain="no score for 4.0 h")),
        "no gain: no score for 4.0 h",
    ),
    "nothing got better until the newest step": (
        RolloutOverview(rollout(steps=10), marked("no_gain", no_gain="no score for 4.0 h")), "",
    ),
    "an error streak with its reason": (
        RolloutOverview(rollout(), marked("error_streak", error_streak="4 steps in a row")),
        "error streak: 4 steps in a row",
    ),
    "the same action again": (
        RolloutOverview(rollout(), marked("repeated_action")),
        "repeating itself",
    ),
    "the score fell": (
        RolloutOverview(rollout(), marked("score_fell", score_fell="12 after 40")),
        "score fell: 12 after 40",
    ),
    "it asks to finish low": (
        RolloutOverview(rollout(), marked("low_finish")),
        "about to finish low",
    ),
    "little budget and a low score": (
        RolloutOverview(
            rollout(best_score=12.0), marked("near_budget", near_budget="3 steps left")
        ),
        "about to finish low: best score 12: 3 steps left",
    ),
    "little budget and a good score": (
        RolloutOverview(rollout(best_score=90.0), marked("near_budget")), "near budget",
    ),
    "a signal of a package": (RolloutOverview(rollout(), marked("too_polite")), "too polite"),
    "paused by a person": (
        RolloutOverview(rollout(state="paused", paused_by="person:ada", reason="lunch")),
        "paused by ada: lunch",
    ),
    "paused for the engine": (
        RolloutOverview(rollout(state="paused", paused_by="engine", reason="it died")),
        "engine down: it died",
    ),
    "paused for an engine that refuses": (
        RolloutOverview(
            rollout(
                state="paused",
                paused_by="engine",
                reason="401: the key",
                activity=f"{AWAY_ACTIVITY}: 401",
            )
        ),
        "engine refuses: 401: the key",
    ),
    "paused by a repair": (
        RolloutOverview(rollout(state="paused", paused_by="repair", reason="it was damaged")),
        "paused by repair: it was damaged",
    ),
    "the host is not there": (
        RolloutOverview(rollout(state="paused", paused_by="host", reason="no route")),
        "paused by host: no route",
    ),
    "another machine is away": (
        RolloutOverview(rollout(state="paused", paused_by="host-away", reason="no route")),
        "host away: no route",
    ),
    "it runs and waits for a GPU": (
        RolloutOverview(rollout(activity="waits for 1 GPU on a40")), "waits for 1 GPU on a40",
    ),
    "the engine does not answer": (
        RolloutOverview(rollout(activity="waiting for the engine: 503")),
        "waiting for the engine: 503",
    ),
    "the disk is full": (
        RolloutOverview(rollout(activity="waiting: the disk is full")), "waiting: the disk is full",
    ),
    "no GPU is free": (
        RolloutOverview(rollout(state="queued", reason="waits for a GPU of a40")),
        "queued: waits for a GPU of a40",
    ),
    "queued as usual": (RolloutOverview(rollout(state="queued")), ""),
    "handed to who asks": (
        handed("ben", note_to="ben"), "handed to you by ada: index is stale"
    ),
    "handed to who asks, ended": (
        handed("ben", note_to="ben", state="finished"), "handed to you by ada: index is stale"
    ),
    "handed to who asks, and read": (
        handed("ben", note_to="ben", read_by="ben"),
        "handed to you by ada, read: index is stale",
    ),
    "handed to another": (handed("cleo", note_to="ben"), ""),
    "handed over by who asks": (handed("ada", note_to="ben"), ""),
    "handed to anybody": (handed("cleo"), "handed over by ada: index is stale"),
    "handed to anybody, and read": (handed("cleo", read_by="ben"), ""),
    "handed to somebody, nobody in particular asks": (
        handed("", note_to="ben"), "handed to ben by ada: index is stale"
    ),
    "handed over and taken": (handed("ben", note_to="ben", holder="ben", seq=12), ""),
    "a note from before it was let go": (handed("ben", seq=12), ""),
    "nobody saw what followed": (
        RolloutOverview(rollout(), unanswered=7),
        "guidance heard at step 7, nobody has seen what followed",
    ),
    "guidance waits for long": (
        RolloutOverview(rollout(), queued=2, queued_at=NOW - 90 * MINUTE),
        "2 messages queued for 90 min and not heard",
    ),
    "guidance was just said": (RolloutOverview(rollout(), queued=1, queued_at=NOW - MINUTE), ""),
    "guidance waits while it is paused": (
        RolloutOverview(rollout(state="paused", paused_by="person:a"), queued=1, queued_at=1),
        "paused by a",
    ),
    "several, the heaviest first": (
        RolloutOverview(rollout(), marked("error", "error_streak", "blind_edit"), unanswered=3),
        "error streak; guidance heard at step 3, nobody has seen what followed; error; blind edit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SITUATIONS)
def test_need_is_said_in_words(case: str) -> None:
    overview, words = SITUATIONS[case]
    need = compute_rollout_need(overview, NOW)
    assert need.text == words
    assert bool(need.weight) == bool(words)
    assert need.weight <= 120


def test_who_looks_takes_nothing_from_what_was_handed_to_another() -> None:
    looked_at = handed("ben", note_to="ben")._replace(viewers=[look("ada")])
    assert compute_rollout_need(looked_at, NOW).weight == HANDED_WEIGHT
    anybody = handed("ben")._replace(viewers=[look("ada")])
    assert compute_rollout_need(anybody, NOW).weight == HANDED_TO_ANYBODY_WEIGHT / 2


def test_who_needs_a_person_most_comes_first() -> None:
    names = {
        "quiet": RolloutOverview(rollout("quiet", created_at=5)),
        "younger": RolloutOverview(rollout("younger", created_at=9)),
        "ended": RolloutOverview(rollout("ended", state="finished", created_at=99)),
        "errs": RolloutOverview(rollout("errs"), marked("error")),
        "streak": RolloutOverview(rollout("streak"), marked("error_streak"), marked_seq=50),
        "worse": RolloutOverview(
            rollout("worse"), marked("error_streak", "no_change"), marked_seq=50
        ),
        "seen": RolloutOverview(
            rollout("seen"), marked("error_streak"), marked_seq=50, seen_seq=50
        ),
        "watched": RolloutOverview(
            rollout("watched"), marked("error_streak", "no_change"), marked_seq=50, viewers=[look()]
        ),
        "damaged": RolloutOverview(rollout("damaged", state="paused", paused_by="repair")),
        "failed": RolloutOverview(rollout("failed", state="failed")),
    }
    ids = [need.overview.rollout.id for need in rank_rollouts(list(names.values()), NOW)]
    assert ids == [
        "damaged", "failed", "worse", "streak", "watched", "seen", "errs", "younger", "quiet",
        "ended",
    ]  # fmt: skip
