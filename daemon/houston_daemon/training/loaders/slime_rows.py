"""Houston's rows for slime's reinforcement learning: two functions for slime's own hooks.

    PYTHONPATH=DIR … --rollout-function-path slime_rows.generate_rollout
        --custom-reward-post-process-path slime_rows.keep_advantages --advantage-estimator grpo

Each of slime's rollout steps gets the rows of one update, in order; nothing is sampled.
"""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data.jsonl")


def read_updates(file: Path) -> list[list[dict[str, Any]]]:
    """Samples as slime's `Sample.to_dict` writes them, by update."""
    updates: dict[int, list[dict[str, Any]]] = {}
    for number, line in enumerate(file.read_bytes().splitlines()):
        sample = {**json.loads(line), "index": number}
        updates.setdefault(sample["metadata"]["update"], []).append(sample)
    return [updates[update] for update in sorted(updates)]


def generate_rollout(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """The samples of an update, group by group. rollout_id: slime's step, from 0.

    Raises IndexError after the last update, and ValueError where slime asks for an evaluation.
    """
    from slime.utils.types import Sample

    if evaluation:
        raise ValueError("An export has nothing to evaluate: leave out --eval-interval")
    updates = read_updates(DATA)
    if rollout_id >= len(updates):
        raise IndexError(f"The export has {len(updates)} updates: set --num-rollout {len(updates)}")
    groups: dict[int, list[Any]] = {}
    for sample in updates[rollout_id]:
        groups.setdefault(sample["group_index"], []).append(Sample.from_dict(sample))
    return list(groups.values())


def keep_advantages(args: Any, samples: list[Any]) -> tuple[list[float], list[float]]:
    """Rewards as they were earned, and in place of normalised ones the advantages: with GRPO slime
    gives each token of a sample that number."""
    rewards = [sample.reward for sample in samples]
    return rewards, [sample.metadata["advantages"][0] for sample in samples]
