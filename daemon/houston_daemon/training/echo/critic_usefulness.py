"""How useful a critic was in each third of the run that trained it with its policy: what its
critiques gained, and how many brought an attempt near the full score up to the full score (ECHO's
figures of usefulness and of scores near saturation).

It reads the records of finished runs; it starts nothing, draws nothing and imports no torch.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from houston_daemon.experiments.experiment_statistics import bootstrap_mean
from houston_daemon.training.rl.rl_run_folder import RlRunFolder
from houston_daemon.training.rl.rollout_groups import GroupFolder
from houston_daemon.training.rl.update_figures import CriticFigures
from houston_shared.critic_gain import critique_gain, unit_score
from houston_shared.errors import UsageError
from houston_shared.home import Home
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader

PHASES = ("early", "intermediate", "late")
NEAR_FULL_SCORE = 0.5
"""Share of the full score from which an attempt that has not all of it is near saturation."""
_SEED = 1


class RefinedScores(NamedTuple):
    """A refinement and its attempt; scores as shares of the full one."""

    update: int
    attempt: str
    before: float
    after: float


def critic_figures(folder: RlRunFolder, effect: str) -> dict[int, CriticFigures]:
    """By update of a run what its critiques came to. effect: what did not happen, for the error.
    Raises HoustonError for a run without a critic."""
    figures = {update.update: update.critic for update in folder.updates if update.critic}
    if not figures:
        raise UsageError(
            f"{folder.path.name} has trained no update with a critic.",
            effect,
            "houston train echo --help",
        )
    return figures


def refined_scores(
    folder: RlRunFolder, home: Home, updates: Collection[int]
) -> list[RefinedScores]:
    """Every refinement of these updates that came to its end, with its attempt. Raises HoustonError
    where one of them is no longer in the home."""
    groups = [group for group in GroupFolder(folder.path / "groups").all() if group.refines]
    scores = []
    with Reader(home) as reader:
        for group in groups:
            if group.update not in updates:
                continue
            attempt = reader.run(rollout_queries.find_rollout(group.refines))
            before = unit_score(attempt.last_score)
            for rollout in group.rollouts:
                row = reader.run(rollout_queries.find_rollout(rollout))
                if row.state == "finished":
                    after = unit_score(row.last_score)
                    scores.append(RefinedScores(group.update, attempt.id, before, after))
    return scores


def split_into_phases(updates: Collection[int]) -> dict[str, list[int]]:
    """The updates of a run in three parts of equal size, as far as that goes, in order."""
    order = sorted(updates)
    count = len(PHASES)
    return {
        phase: order[number * len(order) // count : (number + 1) * len(order) // count]
        for number, phase in enumerate(PHASES)
    }


def scores_by_phase(
    scores: Sequence[RefinedScores], updates: Collection[int]
) -> dict[str, list[RefinedScores]]:
    """The refinements of each third of a run. updates: all that the run trained."""
    return {
        phase: [each for each in scores if each.update in part]
        for phase, part in split_into_phases(updates).items()
    }


def usefulness(scores: Sequence[RefinedScores]) -> dict[str, Any]:
    """Figures of all critiques, and of those on attempts near the full score. A figure is None
    where there was nothing to count.

    Gains are ECHO's, however the critic was rewarded, so that runs can be compared. `to_full` is
    the share of an attempt's refinements that reached the full score: the mean over attempts, with
    a 95 % interval that resamples whole attempts, because refinements of one attempt are alike.
    """
    near = [each for each in scores if NEAR_FULL_SCORE <= each.before < 1.0]
    return {
        **_counts(scores),
        "raised": _mean([float(each.after > each.before) for each in scores]),
        "lowered": _mean([float(each.after < each.before) for each in scores]),
        "near_full_score": {**_counts(near), "to_full": _share_to_full(near)},
    }


def _counts(scores: Sequence[RefinedScores]) -> dict[str, Any]:
    return {
        "attempts": len({each.attempt for each in scores}),
        "critiques": len(scores),
        "gain": _mean([critique_gain(each.before, each.after) for each in scores]),
    }


def _share_to_full(scores: Sequence[RefinedScores]) -> Mapping[str, float | None] | None:
    by_attempt: dict[str, list[float]] = defaultdict(list)
    for each in scores:
        by_attempt[each.attempt].append(float(each.after >= 1.0))
    if not by_attempt:
        return None
    shares = {name: {0: fmean(full)} for name, full in by_attempt.items()}
    return bootstrap_mean(shares, _SEED).as_json()


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 4) if values else None
