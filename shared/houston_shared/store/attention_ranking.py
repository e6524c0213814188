"""Which rollouts need a person, and why: read in one go, then ranked by a pure function.

Everything that asks for attention is a reason with words and a weight from 0 to 100; a rollout
weighs as its heaviest reason and a little more for each further one. What somebody has seen
already, or looks at now, weighs half: the next pair of eyes belongs elsewhere. Read are the signals
of the last steps (docs/attention.md), the last action in a few words, and all rollouts as people
see them from afar. What makes a signal is decided by the daemon.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.records import AWAY_ACTIVITY, ENDED_STATES
from houston_shared.store import (
    job_queries,
    journal_events,
    presence_queries,
    rollout_queries,
)
from houston_shared.store.job_queries import NO_JOBS, FailedJob, JobSummary
from houston_shared.store.journal_events import JournalEvent, ReadPlan, RunSql
from houston_shared.store.last_actions import LastAction, read_last_actions
from houston_shared.store.presence_queries import ClaimStatus, Person, PresenceRow
from houston_shared.store.process_reward_queries import MAX_WEAK_RUN, WeakRun, read_weak_runs
from houston_shared.store.rollout_queries import RolloutRow, ScorePoint
from houston_shared.times_and_counts import format_duration, now_us, pluralize

LAST_STEPS = 5
"""Closed steps that count as the last ones."""
ALIVE_STATES = ("queued", "running", "paused")


class MarkedStep(NamedTuple):
    """A closed step with signals."""

    rollout: str
    step: int
    signals: tuple[str, ...]
    reasons: dict[str, str]
    """By signal; empty where they were not asked for, and for steps of before there were any."""


def read_recent_signals(
    last: int = LAST_STEPS,
    states: tuple[str, ...] = ("running",),
    rollout: str = "",
    reasons: bool = True,
) -> ReadPlan[dict[str, list[MarkedStep]]]:
    """By rollout in one of `states`, its steps with signals among the `last` closed ones.

    Newest step first; rollouts without any are left out. Without `reasons` no body is read: only
    the small rows of these steps.
    """
    marks = ",".join(f"?{number}" for number in range(3, 3 + len(states)))
    rows = yield RunSql(
        "SELECT s.rollout, s.step, s.attention, s.observation_seq FROM rollouts r JOIN steps s"
        " ON s.rollout = r.id AND s.step > r.steps - ?1 AND s.step <= r.steps AND s.current = 1"
        f" WHERE r.state IN ({marks}) AND (?2 = '' OR r.id = ?2)"
        " AND s.attention <> '' ORDER BY s.rollout, s.step DESC",
        (last, rollout, *states),
    )
    events: dict[int, JournalEvent] = {}
    if reasons:
        events = yield from journal_events.events_by_seq([row[3] for row in rows])
    by_rollout: dict[str, list[MarkedStep]] = {}
    for owner, step, names, seq in rows:
        reason = (yield from read_signal_reasons(events[seq])) if seq in events else {}
        marked = MarkedStep(owner, step, tuple(names.split(",")), reason)
        by_rollout.setdefault(owner, []).append(marked)
    return by_rollout


class _SignalReasons(msgspec.Struct, frozen=True):
    reasons: dict[str, str] = {}


def read_signal_reasons(observation: JournalEvent) -> ReadPlan[dict[str, str]]:
    """By signal of an observation's event, why it stands; empty where the body is damaged."""
    nothing = _SignalReasons()
    try:
        body = yield from journal_events.read_event_record(observation, _SignalReasons, nothing)
    except HoustonError:  # one damaged body, which `houston verify` names, must not hide the rest
        return {}
    return body.reasons


def newest_signals(marked: list[MarkedStep]) -> dict[str, str]:
    """The signals of one rollout's last steps, each once with its newest reason, newest first."""
    signals: dict[str, str] = {}
    for step in marked:
        for name in step.signals:
            signals.setdefault(name, step.reasons.get(name, ""))
    return signals


SIGNAL_WEIGHTS: dict[str, int] = {
    "low_finish": 70,
    "error_streak": 60,
    "repeated_action": 60,
    "no_submission": 60,
    "evaluator_failed": 55,
    "guidance_ignored": 55,
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
LOW_SCORE_LIMIT = 50.0
"""Best score below which little budget left means: about to finish low."""
LASTING_SIGNALS = frozenset({"no_gain", "no_submission"})
"""Signals that every step has while they hold: the first step without one ends it."""
EVALUATOR_SIGNAL = "evaluator_failed"
"""A signal that holds until a submission is scored, however many steps lie between."""
UNKNOWN_SIGNAL_WEIGHT = 25
"""Of a signal that an installed package brings."""
SIGNAL_WORDS = {
    "low_finish": "about to finish low",
    "error_streak": "error streak",
    "repeated_action": "repeating itself",
    "job_failed": "background job failed",
    "no_submission": "budget nearly gone",
    "guidance_ignored": "guidance not followed",
}
"""How a signal is called where its name would not be read at once."""
PAUSED_WEIGHTS = {
    "engine": 65,
    "host-away": 65,
    "disk": 65,
    "repair": 85,
    "host": 85,
    "restore": 80,
}
"""By owner of a pause; `PAUSED_BY_PERSON` and `PAUSED_ELSE` for all others."""
PAUSED_BY_PERSON_WEIGHT, PAUSED_ELSE_WEIGHT = 12, 50
AWAY_WORDS = {"engine": "engine down", "host-away": "host away", "disk": "disk full"}
"""Pauses that end by themselves when something is back, in words."""
ENGINE_REFUSES = "engine refuses"
"""The pause of a rollout whose worker asks again what its engine refused."""
FAILED_WEIGHT = 75
"""A rollout that failed while nobody has looked at it since."""
ENDED_LOW_WEIGHT = 38
"""A rollout that ended with a low score while nobody has looked at it since. Less than most of what
lives: no word changes its end, but a branch or another start may be worth it."""
ENGINE_AWAY_WEIGHT, WAITING_WEIGHT, GPU_WAIT_WEIGHT = 65, 35, 25
"""The worker cannot sample; it waits for something else; it is queued for a GPU."""
WEAK_DECISIONS_WEIGHT = 35
"""Several decisions in a row that a process reward model finds weak: its guess, and no error."""
HANDED_WEIGHT, HANDED_READ_WEIGHT, HANDED_TO_ANYBODY_WEIGHT = 80, 45, 45
"""A rollout that was handed over and that nobody has taken: to who asks, whose note is unread or
read, and to anybody, until somebody has read it."""
HANDED_NOTE_CHARACTERS = 120
"""Characters of its note that are told."""
UNANSWERED_WEIGHT, UNHEARD_WEIGHT = 45, 40
"""Nobody has seen what followed guidance; guidance is queued for long."""
UNHEARD_SECONDS = 600
"""Seconds that guidance may be queued for a running rollout before somebody should look."""
FURTHER_REASON_SHARE = 0.1
"""Share of its weight that each reason after the heaviest adds."""
MAX_FURTHER_WEIGHT = 20.0


class FailingEvaluator(NamedTuple):
    """Submissions since the last score whose evaluator failed."""

    submissions: int
    step: int
    """The step of the newest of them."""
    seq: int
    """Its observation."""
    reason: str


JOB_SIGNAL = "job_failed"
"""A signal of closed steps, and a reason while no step could show it."""
UNSEEN_JOB_WEIGHT = 57
"""A job that failed and of which the agent cannot know yet: it may sleep for hours."""


class RolloutOverview(NamedTuple):
    """One rollout as people see it from afar: everything that a line of a list needs."""

    rollout: RolloutRow
    marked: Sequence[MarkedStep] = ()
    """Its last steps with signals, newest first."""
    seen_seq: int = 0
    """Newest event that anybody with a key pressed has had before them; 0 for none."""
    marked_seq: int = 0
    """Newest event of a step with signals."""
    low_seq: int = 0
    """The end of its last step, where it finished and that step says `low_finish`; else 0."""
    weak_run: WeakRun | None = None
    """Weak decisions in a row that its newest scored step ends; None for none, or for few."""
    evaluator: FailingEvaluator | None = None
    """Where nothing was scored since its evaluator failed."""
    jobs: JobSummary = NO_JOBS
    """What runs beside it, and what failed there."""
    unanswered: int = 0
    """The step at which guidance was heard and whose successor nobody has seen; 0 for none."""
    queued: int = 0
    """Guidance that waits."""
    queued_at: int = 0
    """When the oldest of it was queued, UTC microseconds."""
    holding: ClaimStatus | None = None
    viewers: Sequence[PresenceRow] = ()
    """Who looks now."""
    new_steps: int | None = None
    """Steps closed since the person asking was here; None for who never was."""
    scores: Sequence[ScorePoint] = ()
    acted: LastAction | None = None
    reader: str = ""
    """Name of the person who asks; empty where nobody in particular does."""


class NeedReason(NamedTuple):
    """Why a rollout needs a person."""

    kind: str
    """A signal's name, or `handed`, `failed`, `ended_low`, `paused`, `engine`, `host-away`, `disk`,
    `waiting`, `gpu`, `weak_decisions`, `unanswered`, `unheard`."""
    text: str
    weight: int
    step: int = 0
    """The step that shows it; 0 for none, or for the newest."""


class RolloutNeed(NamedTuple):
    """A rollout with its reasons, heaviest first."""

    overview: RolloutOverview
    weight: float
    """0 where nothing asks for anybody."""
    reasons: tuple[NeedReason, ...]

    @property
    def text(self) -> str:
        """The reasons in words."""
        return "; ".join(reason.text for reason in self.reasons)


def rank_rollouts(overviews: Sequence[RolloutOverview], now: int) -> list[RolloutNeed]:
    """All of them, who needs a person most first; then those that live, then the newest.

    now: UTC microseconds.
    """
    return sorted((compute_rollout_need(overview, now) for overview in overviews), key=_rank_key)


def _rank_key(need: RolloutNeed) -> tuple[float, bool, int, str]:
    rollout = need.overview.rollout
    return -need.weight, rollout.state in ENDED_STATES, -rollout.created_at, rollout.id


def compute_rollout_need(overview: RolloutOverview, now: int) -> RolloutNeed:
    """Why one rollout needs somebody, and how much."""
    reasons = tuple(sorted(_need_reasons(overview, now), key=lambda reason: -reason.weight))
    if not reasons:
        return RolloutNeed(overview, 0.0, ())
    further = sum(reason.weight * FURTHER_REASON_SHARE for reason in reasons[1:])
    weight = reasons[0].weight + min(MAX_FURTHER_WEIGHT, further)
    is_mine = bool(overview.reader) and reasons[0].weight == HANDED_WEIGHT
    halved = overview.viewers and not is_mine  # who looks is not whom it was handed to
    return RolloutNeed(overview, round(weight / 2 if halved else weight, 1), reasons)


def _need_reasons(overview: RolloutOverview, now: int) -> Iterator[NeedReason]:
    rollout = overview.rollout
    if overview.holding is not None and overview.holding.is_handed_over:
        yield from _handed_reasons(overview.holding, overview.reader)
    if rollout.state in ENDED_STATES:
        yield from _ended_reasons(overview)
        return
    yield from _signal_need_reasons(overview)
    if (failed := _reportable_failed_job(overview)) is not None:
        yield _failed_job_reason(failed, overview.seen_seq)
    if overview.evaluator is not None:
        yield _evaluator_reason(overview.evaluator, overview.seen_seq)
    if overview.weak_run is not None:
        yield _weak_run_reason(overview.weak_run, overview.seen_seq)
    if rollout.state == "paused":
        yield _paused_reason(rollout)
    elif rollout.activity.startswith(AWAY_ACTIVITY):
        yield NeedReason("engine", rollout.activity, ENGINE_AWAY_WEIGHT)
    elif rollout.state == "running" and rollout.activity.startswith(("waiting", "waits")):
        yield NeedReason("waiting", rollout.activity, WAITING_WEIGHT)
    elif rollout.state == "queued" and rollout.reason:
        yield NeedReason("gpu", f"queued: {rollout.reason}", GPU_WAIT_WEIGHT)
    yield from _guidance_reasons(overview, now)


def _handed_reasons(handed: ClaimStatus, reader: str) -> Iterator[NeedReason]:
    """That a rollout was handed over, for those it was handed to; for nobody in particular, too."""
    to, was_read = handed.note_to, bool(handed.read_by)
    if (reader and not handed.is_note_for(reader)) or (was_read and not to):
        return
    line = " ".join(handed.note[: 4 * HANDED_NOTE_CHARACTERS].split())
    if len(line) > HANDED_NOTE_CHARACTERS:
        line = f"{line[: HANDED_NOTE_CHARACTERS - 1]}…"
    receiver = "" if not to else " to you" if to == reader else f" to {to}"
    text = f"handed{receiver or ' over'} by {handed.note_by}{', read' if was_read else ''}: {line}"
    unread = HANDED_WEIGHT if to else HANDED_TO_ANYBODY_WEIGHT
    yield NeedReason("handed", text, HANDED_READ_WEIGHT if was_read else unread)


def _ended_reasons(overview: RolloutOverview) -> Iterator[NeedReason]:
    """Why somebody should look at a rollout that has ended; nothing once somebody has."""
    rollout, best = overview.rollout, overview.rollout.best_score
    failed = rollout.state == "failed" and overview.seen_seq < rollout.last_seq
    if failed:
        yield NeedReason("failed", _with_reason("failed", rollout.reason), FAILED_WEIGHT)
    if overview.seen_seq < overview.low_seq or (
        failed and best is not None and best < LOW_SCORE_LIMIT
    ):
        score = "no score" if best is None else f"best score {best:.4g}"
        yield NeedReason("ended_low", f"ended low, unseen: {score}", ENDED_LOW_WEIGHT)


def _signal_need_reasons(overview: RolloutOverview) -> Iterator[NeedReason]:
    rollout = overview.rollout
    was_seen = 0 < overview.marked_seq <= overview.seen_seq
    names_given = {EVALUATOR_SIGNAL, JOB_SIGNAL if _reportable_failed_job(overview) else ""}
    for step in overview.marked:
        for name in step.signals:
            if name in names_given or (name in LASTING_SIGNALS and step.step < rollout.steps):
                continue
            names_given.add(name)
            reason, best = step.reasons.get(name, ""), rollout.best_score
            if name == "near_budget" and best is not None and best < LOW_SCORE_LIMIT:
                name, reason = "low_finish", _with_reason(f"best score {best:.4g}", reason)
            text = _with_reason(SIGNAL_WORDS.get(name, name.replace("_", " ")), reason)
            weight = SIGNAL_WEIGHTS.get(name, UNKNOWN_SIGNAL_WEIGHT)
            yield NeedReason(name, text, weight // 2 if was_seen else weight, step.step)


def _reportable_failed_job(overview: RolloutOverview) -> FailedJob | None:
    """A job that failed lately, where no signal of a step says more of it."""
    has_signal = any(JOB_SIGNAL in step.signals for step in overview.marked)
    failed = overview.jobs.failed
    return failed if failed and failed.is_recent and (failed.is_unseen or not has_signal) else None


def _failed_job_reason(failed: FailedJob, seen_seq: int) -> NeedReason:
    weight = UNSEEN_JOB_WEIGHT if failed.is_unseen else SIGNAL_WEIGHTS[JOB_SIGNAL]
    weight = weight // 2 if failed.job.seq <= seen_seq else weight
    text = _with_reason(SIGNAL_WORDS[JOB_SIGNAL], job_queries.describe_failed_job(failed))
    return NeedReason(JOB_SIGNAL, text, weight, failed.job.step)


def _evaluator_reason(failing: FailingEvaluator, seen_seq: int) -> NeedReason:
    count = pluralize(failing.submissions, "submission")
    text = _with_reason(f"evaluator failing, {count} without a score", failing.reason)
    weight = SIGNAL_WEIGHTS[EVALUATOR_SIGNAL]
    weight = weight // 2 if failing.seq <= seen_seq else weight
    return NeedReason(EVALUATOR_SIGNAL, text, weight, failing.step)


def _weak_run_reason(run: WeakRun, seen_seq: int) -> NeedReason:
    count = f"{run.steps} or more" if run.steps == MAX_WEAK_RUN else str(run.steps)
    text = (
        f"weak decisions: {count} in a row, step {run.last} scored {run.score:.2f} by {run.policy}"
    )
    weight = WEAK_DECISIONS_WEIGHT
    weight = weight // 2 if run.seq <= seen_seq else weight
    return NeedReason("weak_decisions", text, weight, run.last)


def _paused_reason(rollout: RolloutRow) -> NeedReason:
    by = rollout.paused_by
    person = by.startswith("person:")
    weight = PAUSED_BY_PERSON_WEIGHT if person else PAUSED_WEIGHTS.get(by, PAUSED_ELSE_WEIGHT)
    if by in AWAY_WORDS:
        refused = by == "engine" and rollout.activity.startswith(AWAY_ACTIVITY)
        return NeedReason(
            by, _with_reason(ENGINE_REFUSES if refused else AWAY_WORDS[by], rollout.reason), weight
        )
    name = by.removeprefix("person:")
    return NeedReason("paused", _with_reason(f"paused by {name}", rollout.reason), weight)


def _guidance_reasons(overview: RolloutOverview, now: int) -> Iterator[NeedReason]:
    if overview.unanswered:
        text = f"guidance heard at step {overview.unanswered}, nobody has seen what followed"
        yield NeedReason("unanswered", text, UNANSWERED_WEIGHT, overview.unanswered + 1)
    seconds = (now - overview.queued_at) / 1e6 if overview.queued else 0.0
    if seconds > UNHEARD_SECONDS and overview.rollout.state == "running":
        guidance_text = "guidance" if overview.queued == 1 else f"{overview.queued} messages"
        text = f"{guidance_text} queued for {format_duration(seconds)} and not heard"
        yield NeedReason("unheard", text, UNHEARD_WEIGHT)


def _with_reason(label: str, reason: str) -> str:
    return f"{label}: {reason}" if reason else label


def read_rollout_overviews(
    person: Person | None = None,
    now: int = 0,
    task: str = "",
    state: str = "",
    rollout: str = "",
    bodies: bool = True,
) -> ReadPlan[list[RolloutOverview]]:
    """Every rollout, newest first; of one task, in one state, or one alone when named.

    person: whose new steps are counted. now: UTC microseconds, the clock's when 0. bodies: also
    read last actions and scores, of rollouts that live.
    """
    rows = (
        [(yield from rollout_queries.find_rollout(rollout))]
        if rollout
        else (yield from rollout_queries.list_rollouts(task, state))
    )
    marked = yield from read_recent_signals(states=ALIVE_STATES, rollout=rollout)
    marks = yield from _read_marked_seqs()
    low = yield from _read_low_end_seqs()
    weak_runs = yield from read_weak_runs(LAST_STEPS)
    evaluators = yield from _read_failing_evaluators()
    jobs = yield from job_queries.read_job_summaries(rollout)
    actions: dict[str, LastAction] = {}
    scores: dict[str, list[ScorePoint]] = {}
    if bodies:
        alive = [row.id for row in rows if row.state not in ENDED_STATES]
        evaluated = [row.id for row in rows if row.evaluations]
        actions = yield from read_last_actions(alive)
        scores = yield from rollout_queries.score_history(evaluated)
    overviews = [
        RolloutOverview(
            rollout=row,
            marked=marked.get(row.id, ()),
            marked_seq=marks.get(row.id, 0),
            low_seq=low.get(row.id, 0),
            weak_run=weak_runs.get(row.id),
            evaluator=evaluators.get(row.id),
            jobs=jobs.get(row.id, NO_JOBS),
            scores=scores.get(row.id, ()),
            acted=actions.get(row.id),
            reader=person.name if person else "",
        )
        for row in rows
    ]
    return (yield from _with_people(overviews, person, now or now_us()))


def _with_people(
    overviews: list[RolloutOverview], person: Person | None, moment: int
) -> ReadPlan[list[RolloutOverview]]:
    """The same rollouts with what people did there: claims, looks, guidance."""
    queued = yield from _read_queued_guidance()
    heard_guidance = yield from _read_heard_guidance()
    claims = yield from presence_queries.list_claims()
    looks = presence_queries.group_presence_by_rollout(
        (yield from presence_queries.list_presence())
    )
    full_overviews = []
    for overview in overviews:
        row = overview.rollout
        rollout_looks = looks.get(row.id, [])
        seen_seq = max((look.seq for look in rollout_looks), default=0)
        count, since = queued.get(row.id, (0, 0))
        step, followed = heard_guidance.get(row.id, (0, 0))
        full_overviews.append(
            overview._replace(
                seen_seq=seen_seq,
                unanswered=step if seen_seq < followed else 0,
                queued=count,
                queued_at=since,
                holding=claims.get(row.id),
                viewers=[look for look in rollout_looks if look.looks(moment)],
                new_steps=(yield from _count_new_steps(row, rollout_looks, person, moment)),
            )
        )
    return full_overviews


def _read_marked_seqs() -> ReadPlan[dict[str, int]]:
    """By rollout, the newest observation with signals among its last steps."""
    rows = yield RunSql(
        "SELECT r.id, max(s.observation_seq) FROM rollouts r JOIN steps s ON s.rollout = r.id"
        " AND s.step > r.steps - ? AND s.step <= r.steps AND s.current AND s.attention <> ''"
        " WHERE r.state IN ('queued', 'running', 'paused') GROUP BY r.id",
        (LAST_STEPS,),
    )
    return dict(rows)


def _read_low_end_seqs() -> ReadPlan[dict[str, int]]:
    """By rollout that finished low, the end of its last step: by the threshold of its task."""
    rows = yield RunSql(
        "SELECT r.id, s.observation_seq FROM rollouts r JOIN steps s ON s.rollout = r.id"
        " AND s.step = r.steps AND s.current WHERE r.state = 'finished'"
        " AND ',' || s.attention || ',' LIKE '%,low_finish,%'"
    )
    return dict(rows)


def _read_failing_evaluators() -> ReadPlan[dict[str, FailingEvaluator]]:
    """By rollout that lives, the submissions since its last score whose evaluator failed."""
    rows = yield RunSql(
        "SELECT r.id, count(*), max(s.step), max(s.observation_seq) FROM rollouts r"
        " JOIN evaluations e ON e.rollout = r.id AND e.score IS NULL AND e.number > coalesce("
        "(SELECT max(number) FROM evaluations WHERE rollout = r.id AND state = 'scored'), 0)"
        " JOIN steps s ON s.rollout = e.rollout AND s.step = e.step AND s.current"
        " AND instr(',' || s.attention || ',', ?) > 0"
        " WHERE r.state IN ('queued', 'running', 'paused') GROUP BY r.id",
        (f",{EVALUATOR_SIGNAL},",),
    )
    events = yield from journal_events.events_by_seq([row[3] for row in rows])
    failing: dict[str, FailingEvaluator] = {}
    for rollout, submissions, step, seq in rows:
        reasons = (yield from read_signal_reasons(events[seq])) if seq in events else {}
        failing[rollout] = FailingEvaluator(
            submissions, step, seq, reasons.get(EVALUATOR_SIGNAL, "")
        )
    return failing


def _read_queued_guidance() -> ReadPlan[dict[str, tuple[int, int]]]:
    """By rollout, how much guidance waits, and since when."""
    rows = yield RunSql(
        "SELECT rollout, count(*), min(queued_at) FROM guidance WHERE state = 'queued'"
        " GROUP BY rollout"
    )
    return {rollout: (count, since) for rollout, count, since in rows}


def _read_heard_guidance() -> ReadPlan[dict[str, tuple[int, int]]]:
    """By rollout that lives, the newest step that heard guidance, and the end of the one after."""
    rows = yield RunSql(
        "SELECT g.rollout, g.step, s.observation_seq FROM (SELECT rollout, max(delivered_step)"
        " AS step FROM guidance WHERE state = 'delivered' GROUP BY rollout) g"
        " JOIN rollouts r ON r.id = g.rollout AND r.state IN ('queued', 'running', 'paused')"
        " JOIN steps s ON s.rollout = g.rollout AND s.step = g.step + 1 AND s.current"
        " WHERE s.observation_seq IS NOT NULL"
    )
    return {rollout: (step, seq) for rollout, step, seq in rows}


def _count_new_steps(
    rollout: RolloutRow, looks: list[PresenceRow], person: Person | None, now: int
) -> ReadPlan[int | None]:
    """Steps closed since a person was here; None for who never was, or where nobody asks.

    Who is there now has what is new since the visit before.
    """
    own = next((look for look in looks if (look.name, look.uid) == person), None)
    if own is None:
        return None
    before = (
        presence_queries.last_seen_before_visit(own, now)
        if own.looks(now)
        else presence_queries.last_seen_now(own)
    )
    if before is None:
        return None
    if before.seq >= rollout.last_seq:
        return 0
    first_step = yield from journal_events.step_at_seq(rollout.id, before.seq)
    rows = yield RunSql(
        "SELECT count(*) FROM steps WHERE rollout = ? AND step >= ? AND current"
        " AND observation_seq > ?",
        (rollout.id, first_step, before.seq),
    )
    return int(rows[0][0])
