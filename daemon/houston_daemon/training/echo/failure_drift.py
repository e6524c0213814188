"""How the failures of a run's policy change during training, and what critics gain on them (ECHO,
section 5.2, figure 3).

The run is cut into three phases, with three neighbouring versions of its policy from each. Every
version tries the same held-out tasks, and a critic says what went wrong in each attempt that did
not solve its task. Each diagnosis becomes a vector. An energy distance (Székely and Rizzo, 2013)
with a permutation test decides whether the vectors of the phases differ. For one version of each
phase, the failed attempts are also refined: with the critic that the run began with, and with the
critic of that update.

Earlier results are read again, so that an interrupted measurement resumes. It draws nothing.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from houston_daemon.agent.flow.episode_memory import embed
from houston_daemon.experiments.experiment_statistics import bootstrap_mean, score_differences
from houston_daemon.suites.suite_catalog import suite_tasks
from houston_daemon.suites.suite_results import SuiteRun, read_run, write_run
from houston_daemon.suites.suite_run import SuiteOrder, run_suite, suites_folder
from houston_daemon.training.echo.critic_usefulness import PHASES, split_into_phases
from houston_daemon.training.echo.critique_trials import mean_gains, try_critiques
from houston_daemon.training.echo.sampled_critiques import CriticisedAttempt, CritiqueSampler
from houston_daemon.training.rl.engine_sampler import EngineSampler
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rl_run_folder import RlRunFolder
from houston_daemon.training.rl.rollout_groups import TRAIN_SPLIT, GroupFolder
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import UsageError

NEIGHBOURS = 3
"""Versions of the policy that are taken from a phase."""
PERMUTATIONS = 1_000
HELD_OUT_SPLIT = "test"
NOTHING_MEASURED = "Nothing was run."
_SEED = 1


class Checkpoint(NamedTuple):
    """A version of the policy."""

    phase: str
    update: int
    policy: str
    critic: str
    """That the run had at this update."""


class Diagnosis(NamedTuple):
    """What a critic found wrong in an attempt."""

    phase: str
    policy: str
    rollout: str
    text: str


@dataclass(frozen=True, slots=True)
class DriftOrder:
    """What is to be measured."""

    loaded: LoadedConfiguration
    folder: RlRunFolder
    engine: str
    """That writes the diagnoses."""
    critic: str
    """The policy of that engine that does; `base` for its own model."""
    worlds: int
    """Held-out tasks."""
    critiques: int
    """Of each failed attempt of a phase's middle version, by each critic."""
    tell: Callable[[str], None]
    """Takes a line for people."""

    @property
    def kept(self) -> Path:
        """Folder of what was said and tried."""
        return self.folder.path / f"drift-{self.worlds}"


def measure_drift(order: DriftOrder) -> dict[str, Any]:
    """Run, ask and compare; figures as JSON has them, with every diagnosis.

    Raises HoustonError for a run that is too short, and what starting rollouts and asking raise.
    """
    checkpoints = choose_checkpoints(order.folder)
    order.kept.mkdir(exist_ok=True)
    runs = {checkpoint: _held_out_run(order, checkpoint) for checkpoint in checkpoints}
    diagnoses = [
        diagnosis
        for checkpoint, run in runs.items()
        for diagnosis in _diagnoses(order, checkpoint, _failed_rollouts(run))
    ]
    middle = {
        phase: [each for each in checkpoints if each.phase == phase][NEIGHBOURS // 2]
        for phase in PHASES
    }
    return {
        "run": order.folder.spec.run,
        "suite": order.folder.spec.recipe.suite,
        "worlds": order.worlds,
        "diagnosed by": f"{order.critic} on {order.engine}",
        "checkpoints": [
            {
                **checkpoint._asdict(),
                "failed": len(_failed_rollouts(run)),
                "score": round(fmean(world.attempts[0].score for world in run.worlds) / 100, 4),
            }
            for checkpoint, run in runs.items()
        ],
        "drift": drift_figures(diagnoses),
        "critics": {
            phase: _critic_gains(order, checkpoint, runs[checkpoint])
            for phase, checkpoint in middle.items()
        },
        "diagnoses": [diagnosis._asdict() for diagnosis in diagnoses],
    }


def choose_checkpoints(folder: RlRunFolder) -> list[Checkpoint]:
    """Three neighbouring updates from the middle of each third of a run. Raises HoustonError for a
    run without a critic, or with too few updates."""
    policies = {
        group.update: group.policy
        for group in GroupFolder(folder.path / "groups").all()
        if group.split == TRAIN_SPLIT
    }
    critics = {update.update: update.critic.policy for update in folder.updates if update.critic}
    updates = sorted(policies.keys() & critics.keys())
    if len(updates) < len(PHASES) * NEIGHBOURS:
        raise UsageError(
            f"{folder.path.name} has {len(updates)} updates with a critic, and"
            f" {len(PHASES) * NEIGHBOURS} are needed: three in each third of the run.",
            NOTHING_MEASURED,
            "houston train list",
        )
    chosen = []
    for phase, part in split_into_phases(updates).items():
        start = (len(part) - NEIGHBOURS) // 2
        for update in part[start : start + NEIGHBOURS]:
            chosen.append(Checkpoint(phase, update, policies[update], critics[update]))
    return chosen


def _held_out_run(order: DriftOrder, checkpoint: Checkpoint) -> SuiteRun:
    """The version's attempts at the held-out tasks; what was run before is read."""
    recipe = order.folder.spec.recipe
    name = f"{order.folder.spec.run}-{checkpoint.policy.replace('@', '-')}-{order.worlds}"
    file = suites_folder(order.loaded.home) / recipe.suite / f"{name}.json"
    if not file.is_file():
        order.tell(f"{checkpoint.policy} ({checkpoint.phase}) tries {order.worlds} held-out tasks")
        tasks = suite_tasks(recipe.suite, HELD_OUT_SPLIT)
        suite_order = SuiteOrder(tasks, order.worlds, 1, recipe.engine, checkpoint.policy)
        write_run(file, run_suite(order.loaded, suite_order, order.tell))
    return read_run(file)


def _failed_rollouts(run: SuiteRun) -> list[str]:
    """Attempts that came to their end and did not solve their task."""
    attempts = [world.attempts[0] for world in run.worlds]
    return [each.rollout for each in attempts if each.state == "finished" and not each.solved]


def _diagnoses(
    order: DriftOrder, checkpoint: Checkpoint, attempts: Sequence[str]
) -> list[Diagnosis]:
    name = _kept_name("diagnoses", checkpoint.policy, order.engine, order.critic, 1)
    criticised = _criticise(order, order.engine, order.critic, name, attempts, 1)
    return [
        Diagnosis(checkpoint.phase, checkpoint.policy, attempt.rollout, text)
        for attempt in criticised
        for text in [attempt.critiques[0].reason or attempt.critiques[0].text]
        if text
    ]


def _kept_name(what: str, policy: str, engine: str, critic: str, count: int) -> str:
    """Under which answers are kept: another critic, or another number of them, is asked itself."""
    digest = hashlib.sha256(f"{engine}\n{critic}\n{count}".encode()).hexdigest()
    return f"{what}-{policy.replace('@', '-')}-{digest[:8]}"


def _criticise(
    order: DriftOrder, engine: str, critic: str, name: str, attempts: Sequence[str], count: int
) -> list[CriticisedAttempt]:
    recipe = RlRecipe(
        critic="frozen",
        critic_engine=order.folder.spec.recipe.critic_engine,
        group_size=count,
        critic_template=order.folder.spec.recipe.critic_template,
    )
    sampler = EngineSampler(order.loaded, engine, lambda: False, order.tell)
    sampled = CritiqueSampler(order.loaded, recipe, sampler, order.kept)
    return sampled.criticise(name, attempts, critic)


def _critic_gains(order: DriftOrder, checkpoint: Checkpoint, run: SuiteRun) -> dict[str, Any]:
    """What each critic gains on the failed attempts of one version, and what the tasks' score is
    with its help: the mean over its refinements where an attempt failed."""
    recipe = order.folder.spec.recipe
    critics = {"first": recipe.first_critic}
    if recipe.critic == "trained":
        critics["own"] = checkpoint.critic
    failed = _failed_rollouts(run)
    gains: dict[str, Mapping[str, float]] = {}
    figures: dict[str, Any] = {"policy": checkpoint.policy, "attempts": len(failed)}
    for kind, critic in critics.items():
        engine, count = recipe.asked_critic_engine, order.critiques
        name = _kept_name(f"{kind}-of", checkpoint.policy, engine, critic, count)
        order.tell(f"{critic} criticises {len(failed)} attempts of {checkpoint.policy}")
        criticised = _criticise(order, engine, critic, name, failed, count)
        request = f"{order.folder.spec.run}/drift-{order.worlds}/{name}"
        scores = try_critiques(order.loaded, request, criticised)
        gains[kind] = mean_gains(criticised, scores)
        figures[kind] = {
            "critic": critic,
            "gain": _interval({each: {0: gain} for each, gain in gains[kind].items()}),
            "score with it": round(_helped_score(run, scores), 4),
        }
    if "own" in gains:
        cells = [{each: {0: gain} for each, gain in gains[kind].items()} for kind in gains]
        figures["own minus first"] = _interval(score_differences(cells[1], cells[0]))
    return figures


def _helped_score(run: SuiteRun, scores: Mapping[str, Sequence[float]]) -> float:
    """Mean score over tasks, as a share of the full one."""
    attempts = [world.attempts[0] for world in run.worlds]
    return fmean(
        fmean(scores.get(attempt.rollout) or [attempt.score / 100]) for attempt in attempts
    )


def _interval(cells: Mapping[str, dict[int, float]]) -> dict[str, float | None]:
    return bootstrap_mean(cells, _SEED).as_json()


def drift_figures(diagnoses: Sequence[Diagnosis]) -> dict[str, Any]:
    """For each pair of phases how far apart their diagnoses are (energy distance of their vectors)
    and how often as much comes about by chance; and the most frequent texts of each phase."""
    by_phase = {phase: [d.text for d in diagnoses if d.phase == phase] for phase in PHASES}
    pairs = {}
    for first, second in combinations(PHASES, 2):
        if by_phase[first] and by_phase[second]:
            distance, p = energy_test(by_phase[first], by_phase[second])
            pairs[f"{first} to {second}"] = {"energy": round(distance, 5), "p": round(p, 4)}
    return {
        "distances": pairs,
        "diagnoses": {phase: len(texts) for phase, texts in by_phase.items()},
        "most said": {phase: Counter(texts).most_common(5) for phase, texts in by_phase.items()},
    }


def vectors_of(texts: Sequence[str]) -> Any:
    """A row of 256 numbers for each text, of length 1 (a numpy array). Raises ImportError."""
    import numpy

    rows = {text: numpy.frombuffer(embed(text), dtype="<f4") for text in set(texts)}
    return numpy.stack([rows[text] for text in texts])


def energy_test(first: Sequence[str], second: Sequence[str]) -> tuple[float, float]:
    """Energy distance of two lists of texts, 2 E|X-Y| - E|X-X'| - E|Y-Y'| over their vectors, and
    the share of 1,000 permutations (and the lists themselves) that are at least as far apart."""
    import numpy

    vectors = vectors_of([*first, *second])
    products = numpy.clip(vectors @ vectors.T, -1.0, 1.0)
    apart = numpy.sqrt(numpy.maximum(2.0 - 2.0 * products, 0.0))
    source = random.Random(_SEED)
    order = list(range(len(vectors)))

    def distance(order: Sequence[int]) -> float:
        sample, other = order[: len(first)], order[len(first) :]
        across = apart[numpy.ix_(sample, other)].mean()
        within = apart[numpy.ix_(sample, sample)].mean() + apart[numpy.ix_(other, other)].mean()
        return float(2.0 * across - within)

    observed_distance = distance(order)
    as_far = 1
    for _ in range(PERMUTATIONS):
        source.shuffle(order)
        as_far += distance(order) >= observed_distance
    return observed_distance, as_far / (PERMUTATIONS + 1)
