"""What a policy was trained on: the task texts of the rollouts in its lineage.

Evaluations drop questions that appear in them. It reads run folders and the journal, no weights.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from houston_daemon.suites.question_leaks import TrainingText
from houston_daemon.suites.suite_run import suites_folder
from houston_daemon.training.rl.recorded_states import rollouts_of_source
from houston_daemon.training.rl.rl_run_folder import RlRunFolder
from houston_daemon.training.rl.rollout_groups import TRAIN_SPLIT, GroupFolder
from houston_daemon.training.sft.sft_run_folder import RunFolder
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.policy_and_run_files import parse_version_note, training_folder
from houston_shared.store import policy_queries, rollout_queries
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.store.store_reader import Reader


class LineageTexts(NamedTuple):
    """What is known of the training of some policies."""

    texts: list[TrainingText]
    """The task of each rollout, each text once."""
    unknown: list[str]
    """Policies of whose training nothing is known here, and why."""


def lineage_texts(home: Home, reader: Reader, names: Sequence[str]) -> LineageTexts:
    """The texts that policies and all that they come from were trained on. names: `policy@2`;
    base models and what there is not are passed over."""
    rows = {row.name: row for row in reader.run(policy_queries.list_policies())}
    texts: dict[str, TrainingText] = {}
    unknown: list[str] = []
    for row in _ancestors(rows, names):
        try:
            rollouts = _trained_rollouts(home, reader, row)
        except (HoustonError, OSError, ValueError) as problem:
            unknown.append(f"{row.name}: {problem}")
            continue
        lost_count = 0
        for rollout in rollouts:
            if text := task_text(reader, rollout):
                texts.setdefault(text, TrainingText(f"{row.name}: {rollout}", text))
            else:
                lost_count += 1
        if lost_count:
            unknown.append(
                f"{row.name}: the texts of {lost_count} of its {len(rollouts)} rollouts are gone."
            )
    return LineageTexts(list(texts.values()), unknown)


def _ancestors(rows: dict[str, PolicyRow], names: Sequence[str]) -> Iterator[PolicyRow]:
    """The policies with all that they come from, each once."""
    waiting, seen_names = list(names), set[str]()
    while waiting:
        row = rows.get(waiting.pop())
        if row is None or row.name in seen_names or row.kind == "base":
            continue
        seen_names.add(row.name)
        yield row
        waiting.append(row.parent)
        waiting += [
            other.name
            for other in rows.values()
            if other.kind == "full" and other.hash == row.base_hash
        ]


def _trained_rollouts(home: Home, reader: Reader, row: PolicyRow) -> list[str]:
    """The rollouts of one policy's own training. Raises HoustonError where they are not known."""
    if not row.run:
        return _rollouts_of_version(home, reader, row)
    run = reader.run(policy_queries.find_training_run(row.run))
    if run is not None and run.kind == "dapo":
        return _rl_rollouts(home, reader, row.run, None)
    place = training_folder(home) / row.run
    return [str(source["rollout"]) for source in _sources(RunFolder(place))]


def _rollouts_of_version(home: Home, reader: Reader, row: PolicyRow) -> list[str]:
    """Those of a version that a run of reinforcement learning registered on its way: only its note
    says of which run."""
    registration = reader.run(policy_queries.read_policy_registration(row))
    version = parse_version_note(registration.note) if registration else None
    if registration is None or version is None or registration.origin:
        raise HoustonError("it was imported, and what it was trained on is not known here.")
    return _rl_rollouts(home, reader, version.run, version.update)


def _rl_rollouts(home: Home, reader: Reader, run: str, before: int | None) -> list[str]:
    """What a run of reinforcement learning trained. before: only in the updates before this one;
    None for all. Raises HoustonError where the run is gone."""
    folder = RlRunFolder(training_folder(home) / run)
    suites = suites_folder(home)
    states = [
        rollout
        for source in folder.spec.recipe.states
        for rollout in rollouts_of_source(reader, source, suites)
    ]
    trained = (
        group
        for group in GroupFolder(folder.path / "groups").all()
        if group.split == TRAIN_SPLIT and (before is None or group.update < before)
    )
    return [*states, *(rollout for group in trained for rollout in group.rollouts)]


def _sources(folder: RunFolder) -> list[dict[str, Any]]:
    file = folder.path / "manifest.json"
    manifest = json.loads(file.read_bytes()) if file.is_file() else folder.manifest
    sources: list[dict[str, Any]] = manifest.get("sources") or []
    if not sources:
        raise HoustonError("its data does not say of which rollouts it was made.")
    return sources


_LEAD = re.compile(r"(?:\A|\n\n)Question: ")
"""How environments begin the question of a set, behind the instructions."""
_TAIL = re.compile(r"\n\n(?:\(Code may import |\[You have )")
"""What stands behind it: numbers that are not the question's."""


def task_text(reader: Reader, rollout: str) -> str:
    """The question of a set that a rollout was given, or its whole task without the budgets; empty
    where it is gone."""
    try:
        row = reader.run(rollout_queries.find_rollout(rollout))
        head = reader.run(rollout_queries.read_rollout_head(row))
    except HoustonError:
        return ""
    task = head.task if head else ""
    if lead := _LEAD.search(task):
        task = task[lead.end() :]
    return _TAIL.split(task)[0]
