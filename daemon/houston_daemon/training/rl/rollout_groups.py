"""Groups of rollouts of a training run: each is started once, waited for and counted.

This module alone knows which rollouts belong to which update, and whether a whole group has ended.
A group is written down when it has been started, and starting it again under the same key gives the
same rollouts, so that a trainer that was killed continues with its groups.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.engines.logprob_kind import non_neutral_sampling, settings_text
from houston_daemon.review.critic.refinements import RefinementText, refinement_specs
from houston_daemon.service.rollout_end_wait import Rows, wait_until_ended, waiting_sentence
from houston_daemon.service.rollout_start_checks import build_rollout_specs
from houston_daemon.suites.suite_catalog import write_suite_task
from houston_daemon.training.credit.group_advantages import ScoredRollout
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rows.rollout_plan import find_lost_data
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_shared import atomic_file
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import send_with_retry
from houston_shared.control_messages import StartRollouts
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.store import outcome_queries, purification_queries
from houston_shared.store.outcome_queries import Overlong
from houston_shared.store.purification_queries import PurificationCounts
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.task import LoadedTask, load_task, thought_handling
from houston_shared.times_and_counts import pluralize

StepScores = dict[int, float]
"""By step of a rollout, the process reward of its decision, 0 to 1."""
TRAIN_SPLIT, VALIDATION_SPLIT = "train", "validation"


class StopRequested(Exception):
    """Somebody asked the run to end while it waited for rollouts."""


class SuiteTasks(NamedTuple):
    """The tasks of a suite that a run is trained and measured on."""

    suite: str
    folder: Path
    """Where they are written as they are needed."""
    train: int
    """How many of the training split; every task may come again."""

    def task(self, split: str, index: int) -> LoadedTask:
        """One of them, the same every time."""
        return load_task(write_suite_task(self.suite, split, index, self.folder))


class RolloutGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Rollouts of one task that are compared with each other."""

    update: int
    """Of which update, from 0."""
    batch: int
    """0: the first of the update; then the refills."""
    split: str
    index: int
    """Number of the task in its split."""
    policy: str
    """With which its rollouts sample; `base` for the engine's own model."""
    rollouts: tuple[str, ...] = ()
    """None before they are started."""
    refines: str = ""
    """The attempt that they refine; empty for attempts."""

    @property
    def name(self) -> str:
        """Unlike every other group's of its run."""
        name = f"{self.update}.{self.batch}-{self.split}-{self.index}"
        return f"{name}-refined" if self.refines else name


class GroupOutcome(NamedTuple):
    """A group of which all have ended."""

    group: RolloutGroup
    members: tuple[ScoredRollout, ...]
    """One for each rollout, in order; none where one of them failed, which is no fault of the
    policy, or where it is to be trained and cannot be."""
    purification: tuple[PurificationCounts, ...]
    """Of each rollout: failed calls before and after purification, and what that took."""
    steps: int
    """Steps of all of them."""
    scores: tuple[StepScores, ...] = ()
    """For each member, the process reward of each of its steps; none where none is given."""
    lost: bool = False
    """Whether something of a rollout that is to be trained was erased, archived or set aside."""


class GroupFolder:
    """The groups of a run, each a file: written when it has been started, never changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, group: RolloutGroup) -> RolloutGroup | None:
        """The group of that name as it was started; None where none was noted."""
        try:
            raw = self._file(group).read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(raw, type=RolloutGroup)

    def keep(self, group: RolloutGroup) -> None:
        """Note a group, durably."""
        self._folder.mkdir(exist_ok=True)
        atomic_file.write_atomically(self._file(group), msgspec.json.encode(group))

    def all(self) -> list[RolloutGroup]:
        """Every group that was started, in the order of updates, batches and tasks."""
        groups = [
            msgspec.json.decode(file.read_bytes(), type=RolloutGroup)
            for file in self._folder.glob("*.json")
        ]
        return sorted(groups, key=lambda group: (group.update, group.batch, group.index))

    def _file(self, group: RolloutGroup) -> Path:
        return self._folder / f"{group.name}.json"


class GroupCoordinator:
    """Starts groups and waits for them. Blocks; used by one trainer only."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        run: str,
        recipe: RlRecipe,
        tasks: SuiteTasks,
        folder: Path,
        stop: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        """run: its id, a part of every key. folder: of the run. stop: asked while it waits. tell:
        takes a line about rollouts that wait for a person."""
        self._loaded = loaded
        self._run = run
        self._recipe = recipe
        self._tasks = tasks
        self._groups = GroupFolder(folder / "groups")
        self._stop = stop
        self._tell = tell

    def task_order(self, update: int) -> list[int]:
        """The tasks of an update, all different, drawn by the run's seed: first those that it
        begins with, then those that take the place of dropped ones."""
        size = self._tasks.train
        count = self._recipe.max_groups
        return random.Random(f"{self._recipe.seed} {update}").sample(range(size), min(count, size))

    def begin(
        self, update: int, batch: int, indices: Iterable[int], policy: str, size: int = 0
    ) -> list[RolloutGroup]:
        """Groups for tasks of the training split; those that were begun before are found again.

        size: rollouts of each; 0: as the recipe says.
        """
        size = size or self._recipe.group_size
        return [self._begin(update, batch, TRAIN_SPLIT, index, policy, size) for index in indices]

    def begin_validation(self, update: int, policy: str) -> list[RolloutGroup]:
        """One rollout for each of the validation tasks, the same tasks every time."""
        return [
            self._begin(update, 0, VALIDATION_SPLIT, index, policy, 1)
            for index in range(self._recipe.evaluate_tasks)
        ]

    def refine(self, attempt: RolloutGroup, critiques: Sequence[RefinementText]) -> RolloutGroup:
        """A refinement for each critique of a group's only rollout, with the same policy; those
        that were started before are found again. Raises HoustonError for an attempt that has not
        ended."""
        (rollout,) = attempt.rollouts
        group = msgspec.structs.replace(attempt, rollouts=(), refines=rollout)
        if begun := self._groups.find(group):
            return begun
        with Reader(self._loaded.home) as reader:
            specs = reader.run(refinement_specs(rollout, critiques, attempt.policy))
        return self._start(group, specs)

    def wait(self, groups: Sequence[RolloutGroup]) -> list[GroupOutcome]:
        """All of them, in order, once every rollout has ended. Raises StopRequested, and
        HoustonError as `refuse_failure_of_all`."""
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        rows = wait_until_ended(self._loaded.home, rollouts, self._look)
        refuse_failure_of_all(groups, rows)
        with Reader(self._loaded.home) as reader:
            return read_outcomes(reader, groups, rows, self._recipe.overlong_filter)

    def _look(self, rows: Rows) -> None:
        if self._stop():
            raise StopRequested
        self._tell(waiting_sentence(self._loaded.home, rows.values()))

    def _begin(
        self, update: int, batch: int, split: str, index: int, policy: str, size: int
    ) -> RolloutGroup:
        group = RolloutGroup(update=update, batch=batch, split=split, index=index, policy=policy)
        if begun := self._groups.find(group):
            return begun
        recipe = self._recipe
        specs = build_rollout_specs(
            self._loaded,
            self._tasks.task(split, index),
            recipe.engine,
            size,
            _rollout_seed(recipe.seed, update, batch, index),
            policy=policy,
            purify=self._purify(split),
            without_memory=True,
        )
        refuse_other_engines(specs[0], recipe)
        require_neutral_sampling(specs[0])
        return self._start(group, specs)

    def _start(self, group: RolloutGroup, specs: Sequence[RolloutSpec]) -> RolloutGroup:
        """Start a group's rollouts, and note which they are."""
        answer = send_with_retry(
            self._loaded.home,
            StartRollouts(request=f"{self._run}/{group.name}", specs=tuple(specs)),
            "They may have been queued; the run finds them when it continues.",
            f"houston train show {self._run}",
        )
        started = msgspec.structs.replace(group, rollouts=tuple(answer.rollouts))
        self._groups.keep(started)
        return started

    def _purify(self, split: str) -> dict[str, Any]:
        """Settings over the task's `[purify]`."""
        recipe = self._recipe
        return {
            "enabled": bool(recipe.purify) and split == TRAIN_SPLIT,
            "share": recipe.purify,
            "retries": recipe.purify_retries,
            "similarity": recipe.purify_similarity,
        }


def read_outcomes(
    reader: Reader,
    groups: Sequence[RolloutGroup],
    rows: Mapping[str, RolloutRow],
    overlong: Collection[Overlong],
) -> list[GroupOutcome]:
    """How groups came out of which every rollout has ended. rows: of their rollouts, by id.
    overlong: what overlong filtering leaves out."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    cut = reader.run(outcome_queries.overlong_rollouts(rollouts, overlong))
    tokens = reader.run(outcome_queries.longest_contexts(rollouts))
    counts = reader.run(purification_queries.count_purification(rollouts))
    trained = [
        rollout for group in groups if group.split == TRAIN_SPLIT for rollout in group.rollouts
    ]
    lost = {rollout for rollout in trained if reader.run(find_lost_data(rollout))}
    return [_outcome(group, rows, cut, tokens, counts, lost) for group in groups]


def _rollout_seed(seed: int, update: int, batch: int, index: int) -> int:
    """Of a group's first rollout; the others count on from it."""
    return random.Random(f"{seed} {update} {batch} {index}").randrange(2**30)


def _outcome(
    group: RolloutGroup,
    known: Mapping[str, RolloutRow],
    overlong: Mapping[str, Overlong],
    tokens: Mapping[str, int],
    counts: Mapping[str, PurificationCounts],
    unusable: Collection[str],
) -> GroupOutcome:
    rows = [known[rollout] for rollout in group.rollouts]
    lost = any(rollout in unusable for rollout in group.rollouts)
    sound = not lost and all(row.state == "finished" for row in rows)
    members = tuple(
        ScoredRollout(row.id, row.last_score, tokens.get(row.id, 0), overlong.get(row.id))
        for row in rows
    )
    return GroupOutcome(
        group,
        members if sound else (),
        tuple(counts[rollout] for rollout in group.rollouts),
        sum(row.steps for row in rows),
        lost=lost,
    )


def refuse_failure_of_all(groups: Sequence[RolloutGroup], rows: Mapping[str, RolloutRow]) -> None:
    """Raise HoustonError where the first rollouts of an update, its refinements or a validation all
    fail: that is no accident, and more would fail too. rows: of their rollouts, by id."""
    failed = [
        rows[rollout]
        for group in groups
        for rollout in group.rollouts
        if group.batch == 0 and rows[rollout].state == "failed"
    ]
    if not failed or len(failed) < sum(len(group.rollouts) for group in groups):
        return
    first, count = groups[0], len(failed)
    effect = "The update was not trained; those before it stay."
    if first.split == VALIDATION_SPLIT:
        began = f"The validation after {pluralize(first.update, 'update')} began with"
        began += f" {pluralize(count, 'rollout')}"
        effect = "Nothing was measured; what was trained stays."
    elif first.refines:
        began = f"Update {first.update + 1} tried its critiques in {pluralize(count, 'refinement')}"
    else:
        began = f"Update {first.update + 1} began with {pluralize(count, 'rollout')}"
    raise HoustonError(
        f"{began}, and all failed. {failed[0].id}: {failed[0].reason}",
        effect,
        f"Next: houston rollout show {failed[0].id}; once that is fixed, start a new run",
    )


def require_neutral_sampling(spec: RolloutSpec) -> None:
    """Raise HoustonError, before anything is sampled, for rollouts that `require_plain_sampling`
    would refuse: the engine changes the distribution, or the task strips thoughts."""
    settings = spec.engine_settings
    drawn = {"temperature": 1.0, **(settings.get("parameters") or {})}
    sent = {name: drawn[name] for name in drawn.keys() - set(settings.get("omit_parameters") or ())}
    bent = non_neutral_sampling(sent)
    if thought_handling(spec) == "strip":
        bent["thoughts"] = '"strip"'
    if bent:
        raise HoustonError(
            f"Rollouts of {spec.task.name} on {spec.engine} are sampled with {settings_text(bent)}:"
            " the policy would be trained on answers that are not its own.",
            NOTHING_TRAINED_MESSAGE,
            "Take it out of [sampling] of the task, or of parameters and omit_parameters of the"
            " engine",
        )


def refuse_other_engines(spec: RolloutSpec, recipe: RlRecipe) -> None:
    """Raise HoustonError where a role that is trained is sampled by another engine than the run's:
    its answers are not the policy's own."""
    for role, own in spec.role_engines.items():
        if role in recipe.roles:
            other_roles = ", ".join(f'"{each}"' for each in recipe.roles if each != role)
            raise HoustonError(
                f"The task {spec.task.name} has the role {role} sampled by {own.engine}, and"
                f" {spec.engine} is trained on its own answers.",
                NOTHING_TRAINED_MESSAGE,
                f"Leave the role out: --set roles='[{other_roles}]'",
            )
