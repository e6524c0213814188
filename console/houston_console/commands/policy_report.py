"""The facts for deciding whether to activate a policy: scores before and after, obedience, training
data, held-out loss, and the curves of its run. Also for a run that has not ended.

Plans and files give the facts; `houston policy show`, `houston train show` and the console print
the same lines. If a fact is not known, the line says so, with the command that finds it out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from houston_shared.home import Home
from houston_shared.kept_suite_runs import KeptRun, SuiteFigures, SuiteOutcome, suite_outcomes
from houston_shared.policy_and_run_files import (
    BASE_MODEL,
    parse_version_note,
    training_run_folder,
)
from houston_shared.stale_critic import staleness
from houston_shared.store import policy_outcome_queries, policy_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.policy_outcome_queries import (
    CommonTasks,
    Obedience,
    TaskScore,
    compare_task_scores,
)
from houston_shared.store.policy_queries import PolicyRow, TrainingRunRow
from houston_shared.store.training_event_bodies import PolicyRegistered
from houston_shared.times_and_counts import pluralize
from houston_shared.training_figures import (
    VALIDATION_CURVE,
    Curve,
    HeldOutLoss,
    RunFigures,
    TrainingData,
    figures_of_metrics,
    read_run_figures,
)

MAX_LISTED_OUTCOMES = 4
"""Suites that a report tells of, those evaluated last."""
MAX_LISTED_REASONS = 4
"""Reasons for which answers were not trained, the most frequent first."""
ReportTone = Literal["text", "good", "bad", "dim"]


class ReportLine(NamedTuple):
    """A fact under its name; what goes on with the line before has no name."""

    name: str
    text: str
    tone: ReportTone = "text"


class PolicyRecords(NamedTuple):
    """What the journal has of one policy."""

    policy: PolicyRow
    ancestors: tuple[str, ...]
    """What it comes from, the nearest first, as they sample; the last is the engine's own model."""
    registration: PolicyRegistered | None
    obedience: Mapping[str, Obedience]
    """By policy as it samples."""
    scores: Mapping[str, TaskScore]
    """Of it, by task."""
    parent_scores: Mapping[str, TaskScore]


class PolicyEvidence(NamedTuple):
    """Records and files of one policy."""

    records: PolicyRecords
    figures: RunFigures
    """Empty where the folder of its run is gone, or it was imported."""
    outcomes: tuple[SuiteOutcome, ...]


def sampled_name(policy: PolicyRow) -> str:
    """As rollouts name it: an engine's own model has no name."""
    return "" if policy.kind == "base" else policy.name


def find_ancestors(policy: PolicyRow, policies: Sequence[PolicyRow]) -> tuple[str, ...]:
    """What a policy comes from, as they sample, the nearest first; a base comes from nothing."""
    if policy.kind == "base":
        return ()
    by_name = {each.name: each for each in policies}
    names: list[str] = []
    parent = by_name.get(policy.parent)
    while parent is not None and parent.kind != "base" and parent.name not in names:
        names.append(parent.name)
        parent = by_name.get(parent.parent)
    return (*names, "")


def read_policy_records(
    policy: PolicyRow, policies: Sequence[PolicyRow]
) -> ReadPlan[PolicyRecords]:
    """What the journal has of one of `policies`."""
    own, ancestors = sampled_name(policy), find_ancestors(policy, policies)
    nearest = ancestors[0] if ancestors else own
    scores = yield from policy_outcome_queries.read_task_scores((own, nearest))
    return PolicyRecords(
        policy,
        ancestors,
        (yield from policy_queries.read_policy_registration(policy)),
        (yield from policy_outcome_queries.count_followed_guidance()),
        scores[own],
        scores[nearest] if ancestors else {},
    )


def gather_evidence(home: Home, records: PolicyRecords, runs: Sequence[KeptRun]) -> PolicyEvidence:
    """The same with what lies in files. runs: of suites, as `list_kept_runs` gives them."""
    policy, run = records.policy, run_of_policy(records)
    figures = read_run_figures(training_run_folder(home, run)) if run else RunFigures()
    if records.registration is not None:
        own = figures_of_metrics(records.registration.metrics)
        figures = figures._replace(
            held_out=figures.held_out or own.held_out, data=figures.data or own.data
        )
    outcomes = suite_outcomes(runs, sampled_name(policy), records.ancestors)
    return PolicyEvidence(records, figures, tuple(outcomes[-MAX_LISTED_OUTCOMES:]))


def run_of_policy(records: PolicyRecords) -> str:
    """The run of this home that made a policy, as its result or as a version on the way; else
    empty."""
    if records.policy.run or records.registration is None:
        return records.policy.run
    version = parse_version_note(records.registration.note)
    return version.run if version else ""


def display_name(policy: str) -> str:
    """How people read a policy that samples under this name."""
    return policy or BASE_MODEL


# --- in lines ------------------------------------------------------------------------------------


def policy_report(evidence: PolicyEvidence) -> Iterator[ReportLine]:
    """Everything to decide by, but the curves."""
    kind = evidence.records.policy.kind
    if kind == "reward":
        yield from _agreement_lines(evidence.records.registration)
    else:
        yield from _outcome_lines(evidence)
        yield from _obedience_lines(evidence.records)
        yield from _task_score_lines(evidence.records)
    if kind != "base":
        yield from _data_lines(evidence)
        yield from held_out_lines(evidence.figures.held_out, evidence.figures.curves)


def activation_lines(evidence: PolicyEvidence) -> list[ReportLine]:
    """The two that stand beside the question whether it is to be activated."""
    return [*_outcome_lines(evidence), *_obedience_lines(evidence.records)]


def outcome_cell(outcome: SuiteOutcome | None) -> str:
    """Share of a suite that was solved, before and after, for a table."""
    if outcome is None:
        return "not evaluated"
    before = f"{outcome.before.solved:.0%} → " if outcome.before else ""
    return f"{before}{outcome.after.solved:.0%}"


def obedience_cell(obedience: Obedience) -> str:
    """Messages that were followed, of those that could be checked, for a table."""
    if not obedience.heard:
        return "not spoken to"
    checked = f"{obedience.followed} of {obedience.checked}" if obedience.checked else ""
    rest = f"{obedience.unchecked} unchecked" if obedience.unchecked else ""
    return ", ".join(filter(None, (checked, rest)))


def _outcome_lines(evidence: PolicyEvidence) -> Iterator[ReportLine]:
    name = evidence.records.policy.name
    own = display_name(sampled_name(evidence.records.policy))
    nearest = display_name(evidence.records.ancestors[0]) if evidence.records.ancestors else ""
    if not evidence.outcomes:
        before = f" --before {nearest}" if nearest else ""
        yield ReportLine(
            "score", f"not evaluated; houston evaluate SUITE{before} --policy {own}", "dim"
        )
    for number, outcome in enumerate(reversed(evidence.outcomes)):
        label = "" if number else "score"
        yield ReportLine(label, _outcome_text(outcome), _gain_tone(outcome))
        if outcome.before is not None:
            pair = f"{outcome.before.name} {outcome.after.name}"
            yield ReportLine("", f"beyond chance? houston evaluate --compare {pair}", "dim")
        elif nearest:
            command = f"houston evaluate {outcome.suite} --before {nearest} --policy {name}"
            yield ReportLine(
                "", f"its ancestor was not evaluated in the same way; {command}", "dim"
            )


def _outcome_text(outcome: SuiteOutcome) -> str:
    after, before = outcome.after, outcome.before
    head = f"{outcome.suite} {outcome.split}"
    tasks = pluralize(after.worlds, "task")
    if before is None:
        failures = f", {after.failures:.1f} failed calls a rollout"
        return f"{head}: {_solved_text(after)} solved of {tasks}, score {after.score:.0f}{failures}"
    flips = f"+{outcome.gained} −{outcome.lost}"
    return (
        f"{head}: {before.solved:.0%} → {_solved_text(after)} solved of {tasks} ({flips}), score"
        f" {before.score:.0f} → {after.score:.0f}, failed calls {before.failures:.1f} →"
        f" {after.failures:.1f}; before: {display_name(before.policy)}"
    )


def _solved_text(figures: SuiteFigures) -> str:
    bounds = figures.interval
    return f"{figures.solved:.0%}" + (f" [{bounds.low:.0%}, {bounds.high:.0%}]" if bounds else "")


def _gain_tone(outcome: SuiteOutcome) -> ReportTone:
    if outcome.before is None or outcome.before.solved == outcome.after.solved:
        return "text"
    return "good" if outcome.after.solved > outcome.before.solved else "bad"


def _obedience_lines(records: PolicyRecords) -> Iterator[ReportLine]:
    own = records.obedience.get(sampled_name(records.policy), Obedience())
    if not own.heard:
        yield ReportLine("obeys", "not known: nobody has spoken to a rollout of it", "dim")
        return
    text = _obedience_text(own)
    for ancestor in records.ancestors[:1]:
        before = records.obedience.get(ancestor, Obedience())
        ancestor_text = _obedience_text(before) if before.heard else "not spoken to"
        text += f"; {display_name(ancestor)}: {ancestor_text}"
    yield ReportLine("obeys", text)


def _obedience_text(obedience: Obedience) -> str:
    rest = f"{obedience.unchecked} cannot be checked: nothing in the words can be looked for"
    if not obedience.checked:
        return rest
    share = obedience.followed / obedience.checked
    checked = pluralize(obedience.checked, "message")
    text = f"{share:.0%} followed, {obedience.ignored} of {checked} seen to be ignored"
    return f"{text}; {rest}" if obedience.unchecked else text


def _task_score_lines(records: PolicyRecords) -> Iterator[ReportLine]:
    if not records.scores:
        yield ReportLine("rollouts", "none of it has ended with a score", "dim")
        return
    count = sum(score.rollouts for score in records.scores.values())
    tasks = pluralize(len(records.scores), "task")
    text = f"{pluralize(count, 'rollout')} of {tasks} ended with a score"
    both: CommonTasks | None = compare_task_scores(records.parent_scores, records.scores)
    tone: ReportTone = "text"
    if both is not None:
        ancestor = display_name(records.ancestors[0])
        text += (
            f"; on {pluralize(both.tasks, 'task')} of both, {ancestor} {both.before:.1f} → "
            f"{both.after:.1f}"
        )
        tone = "good" if both.after > both.before else "bad" if both.after < both.before else tone
    else:
        weights = (score.score * score.rollouts for score in records.scores.values())
        text += f", mean {sum(weights) / count:.1f}"
    yield ReportLine("rollouts", text, tone)


def _data_lines(evidence: PolicyEvidence) -> Iterator[ReportLine]:
    data, run = evidence.figures.data, run_of_policy(evidence.records)
    if run and not evidence.records.policy.run and evidence.records.registration:
        note = evidence.records.registration.note
        yield ReportLine("made by", f"{note}; rows and curves are of the whole run")
    if data is not None:
        yield from data_lines(data)
    elif not run:
        yield ReportLine("rows", "not known: it was trained elsewhere", "dim")
    else:
        yield ReportLine("rows", f"not known: the folder of {run} does not say", "dim")


def data_lines(data: TrainingData) -> Iterator[ReportLine]:
    """What a run was trained on, and what of it was not trained."""
    parts = [pluralize(data.rows, "row")] if data.rows else []
    parts += [pluralize(data.rollouts, "rollout")] if data.rollouts else []
    text = f"{' of '.join(parts)}{', ' if parts else ''}{data.trained:,} {data.unit} trained"
    if data.unjudged:
        text += f", {data.unjudged / max(1, data.trained):.0%} of them not judged by anybody"
    yield ReportLine("rows", text)
    if data.untrained:
        most = sorted(data.untrained.items(), key=lambda item: -item[1])[:MAX_LISTED_REASONS]
        why = ", ".join(f"{reason} {count:,}" for reason, count in most)
        yield ReportLine("", f"{sum(data.untrained.values()):,} not trained: {why}", "dim")


def stale_critic_lines(figures: RunFigures) -> Iterator[ReportLine]:
    """Whether a run's critic helps less than it did."""
    if stale := staleness(figures.critic_gains):
        yield ReportLine("critic", stale, "bad")


def validation_lines(figures: RunFigures) -> Iterator[ReportLine]:
    """The version of a run that solved most validation tasks."""
    if best := figures.best_validated:
        text = f"{best.policy} solved most, {best.solved:.0%} of {best.tasks} tasks"
        yield ReportLine("validation", text)


def held_out_lines(held_out: HeldOutLoss | None, curves: Sequence[Curve]) -> Iterator[ReportLine]:
    """Loss on rows that were never trained, before and after."""
    if held_out is None:
        words = "not measured: no rows were held out (houston train sft --held-out 0.2)"
        if any(curve.name == VALIDATION_CURVE for curve in curves):
            words = f"validation tasks, as `{VALIDATION_CURVE}` below"
        elif any(curve.unit == "update" for curve in curves):
            words = "not measured: no update was validated (--set evaluate_updates=5)"
        yield ReportLine("held out", words, "dim")
        return
    rows = pluralize(held_out.rows, "row")
    if held_out.after is None:
        text = (
            f"loss {held_out.before:.4f} before the first step, on {rows}; taken again at the end"
        )
        yield ReportLine("held out", text)
        return
    tone: ReportTone = "good" if held_out.after < held_out.before else "bad"
    yield ReportLine(
        "held out", f"loss {held_out.before:.4f} → {held_out.after:.4f} on {rows}", tone
    )


def _agreement_lines(registration: PolicyRegistered | None) -> Iterator[ReportLine]:
    """How a process reward model agrees with labels that it was not trained on."""
    metrics = registration.metrics if registration else {}
    agreement = metrics.get("held_out")
    if not isinstance(agreement, dict):
        yield ReportLine("agrees", "not measured: no task was held out from its labels", "dim")
        return
    error, guess = agreement.get("mae"), agreement.get("mean_predictor_mae")
    order = agreement.get("rank_correlation")
    if not isinstance(error, int | float) or not isinstance(guess, int | float):
        yield ReportLine("agrees", "not known: its figures cannot be read", "dim")
        return
    correlation_text = "no rank correlation" if order is None else f"rank correlation {order:.2f}"
    yield ReportLine(
        "agrees",
        f"off by {error:.3f} on {agreement.get('labels', 0):,} held-out labels (always the mean:"
        f" {guess:.3f}), {correlation_text}",
        "good" if error < guess else "bad",
    )


def curve_title(curve: Curve) -> str:
    """A curve in words: its name, where it began, where it is, and over what."""
    (first_at, first), (last_at, last) = curve.points[0], curve.points[-1]
    where = f"{curve.unit} {first_at:g}–{last_at:g}"
    if len(curve.points) == 1:
        return f"{curve.name} {format_value(last)} at {curve.unit} {last_at:g}"
    return f"{curve.name} {format_value(first)} → {format_value(last)}, {where}"


def format_value(value: float) -> str:
    """A figure in at most seven characters."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def no_curve_line(run: TrainingRunRow | None, figures: RunFigures) -> ReportLine | None:
    """Why there is no curve; None where there is one. run: None where it is not known."""
    if figures.curves:
        return None
    if run is None:
        return ReportLine("curves", "none: no run of this home made it", "dim")
    if run.state == "queued" or (run.state == "running" and not figures.data):
        return ReportLine("curves", "none yet: its first step has not ended", "dim")
    return ReportLine("curves", f"none was kept; houston train show {run.id} has its log", "dim")


# --- as JSON -------------------------------------------------------------------------------------


def evidence_json(evidence: PolicyEvidence) -> dict[str, Any]:
    """What `policy show --json` has of all this; null where it is not known."""
    records = evidence.records
    own = records.obedience.get(sampled_name(records.policy), Obedience())
    both = compare_task_scores(records.parent_scores, records.scores)
    return {
        "evaluations": [outcome_json(outcome) for outcome in evidence.outcomes],
        "obedience": obedience_json(own),
        "common_tasks": both._asdict() if both else None,
        **figures_json(evidence.figures),
    }


def outcome_json(outcome: SuiteOutcome) -> dict[str, Any]:
    """One suite."""
    return {
        "suite": outcome.suite,
        "split": outcome.split,
        "after": _suite_figures_json(outcome.after),
        "before": _suite_figures_json(outcome.before) if outcome.before else None,
        "gained": outcome.gained,
        "lost": outcome.lost,
    }


def _suite_figures_json(figures: SuiteFigures) -> dict[str, Any]:
    bounds = figures.interval
    return {
        **figures._asdict(),
        "policy": display_name(figures.policy),
        "interval": [bounds.low, bounds.high] if bounds else None,
    }


def obedience_json(obedience: Obedience) -> dict[str, Any] | None:
    """Messages that were heard, were followed, and cannot be checked; None where there are none."""
    if not obedience.heard:
        return None
    return {
        "heard": obedience.heard,
        "followed": obedience.followed,
        "cannot_be_checked": obedience.unchecked,
    }


def figures_json(figures: RunFigures) -> dict[str, Any]:
    """What `train show --json` has besides: curves, held-out loss and data of a run."""
    return {
        "curves": [
            {"name": curve.name, "unit": curve.unit, "points": [list(p) for p in curve.points]}
            for curve in figures.curves
        ],
        "held_out": figures.held_out._asdict() if figures.held_out else None,
        "data": figures.data._asdict() if figures.data else None,
        "best_validated": best._asdict() if (best := figures.best_validated) else None,
        "stale_critic": staleness(figures.critic_gains) or None,
    }
