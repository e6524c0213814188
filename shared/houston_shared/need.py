"""Which rollouts need a person, and why: one pure function for the console and `rollout list`.

Everything that asks for attention is a reason with words and a weight from 0 to 100; a rollout
weighs as its heaviest reason and a little more for each further one. What somebody has seen
already, or looks at now, weighs half: the next pair of eyes belongs elsewhere. It reads nothing:
`queries.home` gathers what it judges.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from houston_shared.records import AWAY, ENDED
from houston_shared.store.queries.actions import Acted
from houston_shared.store.queries.attention import Marked
from houston_shared.store.queries.claims import Holding
from houston_shared.store.queries.looking import Look
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.queries.scores import Score

SIGNALS: dict[str, int] = {
    "low_finish": 70,
    "error_streak": 60,
    "repeated_action": 60,
    "score_fell": 50,
    "job_failed": 45,
    "no_gain": 42,
    "forged_tag": 40,
    "no_change": 40,
    "repeated_evaluation": 35,
    "near_budget": 30,
    "idle_sleep": 30,
    "long_sleep": 20,
    "snapshot_failed": 20,
    "null_action": 15,
    "error": 10,
    "blind_edit": 8,
    "interrupted": 0,
}
"""Weight of each signal of docs/attention.md; 0 shows it and asks for nobody."""
LOW_SCORE = 50.0
"""Best score below which little budget left means: about to finish low."""
LASTING = frozenset({"no_gain"})
"""Signals that every step has while they hold: the first step without one ends it."""
UNKNOWN_SIGNAL = 25
"""Of a signal that an installed package brings."""
WORDS = {
    "low_finish": "about to finish low",
    "error_streak": "error streak",
    "repeated_action": "repeating itself",
    "job_failed": "background job failed",
}
"""How a signal is called where its name would not be read at once."""
PAUSED = {"engine": 65, "host-away": 65, "disk": 65, "repair": 85, "host": 85, "restore": 80}
"""By owner of a pause; `PAUSED_BY_PERSON` and `PAUSED_ELSE` for all others."""
PAUSED_BY_PERSON, PAUSED_ELSE = 12, 50
AWAY_BY = {"engine": "engine down", "host-away": "host away", "disk": "disk full"}
"""Pauses that end by themselves when something is back, in words."""
REFUSED = "engine refuses"
"""The pause of a rollout whose worker asks again what its engine refused."""
FAILED = 75
"""A rollout that failed while nobody has looked at it since."""
ENDED_LOW = 38
"""A rollout that ended with a low score while nobody has looked at it since. Less than most of what
lives: no word changes its end, but a branch or another start may be worth it."""
ENGINE_AWAY, WAITS, GPU = 65, 35, 25
"""The worker cannot sample; it waits for something else; it is queued for a GPU."""
UNANSWERED, UNHEARD = 45, 40
"""Nobody has seen what followed guidance; guidance is queued for long."""
UNHEARD_SECONDS = 600
"""Seconds that guidance may be queued for a running rollout before somebody should look."""
FURTHER = 0.1
"""Share of its weight that each reason after the heaviest adds."""
MOST_FURTHER = 20.0


class Standing(NamedTuple):
    """One rollout as people see it from afar: everything that a line of a list needs."""

    rollout: Rollout
    marked: Sequence[Marked] = ()
    """Its last steps with signals, newest first."""
    seen_seq: int = 0
    """Newest event that anybody with a key pressed has had before them; 0 for none."""
    marked_seq: int = 0
    """Newest event of a step with signals."""
    low_seq: int = 0
    """The end of its last step, where it finished and that step says `low_finish`; else 0."""
    unanswered: int = 0
    """The step at which guidance was heard and whose successor nobody has seen; 0 for none."""
    queued: int = 0
    """Guidance that waits."""
    queued_at: int = 0
    """When the oldest of it was queued, UTC microseconds."""
    holding: Holding | None = None
    lookers: Sequence[Look] = ()
    """Who looks now."""
    new_steps: int | None = None
    """Steps closed since the person asking was here; None for who never was."""
    scores: Sequence[Score] = ()
    acted: Acted | None = None


class Reason(NamedTuple):
    """Why a rollout needs a person."""

    kind: str
    """A signal's name, or `failed`, `ended_low`, `paused`, `engine`, `host-away`, `disk`,
    `waiting`, `gpu`, `unanswered`, `unheard`."""
    text: str
    weight: int


class Need(NamedTuple):
    """A rollout with its reasons, heaviest first."""

    standing: Standing
    weight: float
    """0 where nothing asks for anybody."""
    reasons: tuple[Reason, ...]

    @property
    def text(self) -> str:
        """The reasons in words."""
        return "; ".join(one.text for one in self.reasons)


def ordered(standings: Sequence[Standing], now: int) -> list[Need]:
    """All of them, who needs a person most first; then those that live, then the newest.

    now: UTC microseconds.
    """
    found = [weigh(one, now) for one in standings]
    return sorted(found, key=_key)


def _key(one: Need) -> tuple[float, bool, int, str]:
    rollout = one.standing.rollout
    return -one.weight, rollout.state in ENDED, -rollout.created_at, rollout.id


def weigh(one: Standing, now: int) -> Need:
    """Why one rollout needs somebody, and how much."""
    reasons = tuple(sorted(_reasons(one, now), key=lambda reason: -reason.weight))
    if not reasons:
        return Need(one, 0.0, ())
    further = sum(reason.weight * FURTHER for reason in reasons[1:])
    weight = reasons[0].weight + min(MOST_FURTHER, further)
    return Need(one, round(weight / 2 if one.lookers else weight, 1), reasons)


def _reasons(one: Standing, now: int) -> Iterator[Reason]:
    rollout = one.rollout
    if rollout.state in ENDED:
        yield from _ended(one)
        return
    yield from _signals(one)
    if rollout.state == "paused":
        yield _paused(rollout)
    elif rollout.activity.startswith(AWAY):
        yield Reason("engine", rollout.activity, ENGINE_AWAY)
    elif rollout.state == "running" and rollout.activity.startswith(("waiting", "waits")):
        yield Reason("waiting", rollout.activity, WAITS)
    elif rollout.state == "queued" and rollout.reason:
        yield Reason("gpu", f"queued: {rollout.reason}", GPU)
    yield from _guidance(one, now)


def _ended(one: Standing) -> Iterator[Reason]:
    """Why somebody should look at a rollout that has ended; nothing once somebody has."""
    rollout, best = one.rollout, one.rollout.best_score
    failed = rollout.state == "failed" and one.seen_seq < rollout.last_seq
    if failed:
        yield Reason("failed", _with("failed", rollout.reason), FAILED)
    if one.seen_seq < one.low_seq or (failed and best is not None and best < LOW_SCORE):
        score = "no score" if best is None else f"best score {best:.4g}"
        yield Reason("ended_low", f"ended low, unseen: {score}", ENDED_LOW)


def _signals(one: Standing) -> Iterator[Reason]:
    seen = 0 < one.marked_seq <= one.seen_seq
    told: set[str] = set()
    for step in one.marked:
        for name in step.signals:
            if name in told or (name in LASTING and step.step < one.rollout.steps):
                continue
            told.add(name)
            why, best = step.reasons.get(name, ""), one.rollout.best_score
            if name == "near_budget" and best is not None and best < LOW_SCORE:
                name, why = "low_finish", _with(f"best score {best:.4g}", why)
            text = _with(WORDS.get(name, name.replace("_", " ")), why)
            weight = SIGNALS.get(name, UNKNOWN_SIGNAL)
            yield Reason(name, text, weight // 2 if seen else weight)


def _paused(rollout: Rollout) -> Reason:
    by = rollout.paused_by
    person = by.startswith("person:")
    weight = PAUSED_BY_PERSON if person else PAUSED.get(by, PAUSED_ELSE)
    if by in AWAY_BY:
        refused = by == "engine" and rollout.activity.startswith(AWAY)
        return Reason(by, _with(REFUSED if refused else AWAY_BY[by], rollout.reason), weight)
    who = by.removeprefix("person:")
    return Reason("paused", _with(f"paused by {who}", rollout.reason), weight)


def _guidance(one: Standing, now: int) -> Iterator[Reason]:
    if one.unanswered:
        text = f"guidance heard at step {one.unanswered}, nobody has seen what followed"
        yield Reason("unanswered", text, UNANSWERED)
    waits = (now - one.queued_at) / 1e6 if one.queued else 0.0
    if waits > UNHEARD_SECONDS and one.rollout.state == "running":
        many = "guidance" if one.queued == 1 else f"{one.queued} messages"
        text = f"{many} queued for {round(waits / 60)} min and not heard"
        yield Reason("unheard", text, UNHEARD)


def _with(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what
