"""What the screen of policies reads in one transaction, and how far runs have come."""

from typing import NamedTuple

from houston_shared import training_progress
from houston_shared.home import Home
from houston_shared.store.plan import Plan
from houston_shared.store.queries import policies, training_runs
from houston_shared.store.queries.policies import Activation, Policy
from houston_shared.store.queries.training_runs import TrainingRun
from houston_shared.training_progress import Progress

NEWEST = 50
"""Activations that are read: the last of each engine is among them, or it is long ago."""


class Known(NamedTuple):
    """Everything that is shown."""

    policies: list[Policy]
    runs: list[TrainingRun]
    active: dict[str, str]
    """Engine → the policy that its new rollouts sample with."""
    engines: dict[str, list[str]]
    """Policy (empty: engines' own models) → engines, an entry for each rollout that goes on."""
    tokens: dict[str, int]
    """Policy → tokens that were sampled with it."""
    newest: list[Activation]


def known() -> Plan[Known]:
    """What the database says."""
    engines: dict[str, list[str]] = {}
    for use in (yield from policies.uses()):
        engines.setdefault(use.policy, []).extend([use.engine] * len(use.rollouts))
    return Known(
        (yield from policies.every()),
        (yield from training_runs.every()),
        (yield from policies.shown_actives()),
        engines,
        (yield from policies.sampled()),
        (yield from policies.activations(newest=NEWEST)),
    )


def progress(home: Home, runs: list[TrainingRun]) -> dict[str, Progress]:
    """How far runs have come that go on, as their folders say it; who may not look sees none."""
    read = {one.id: training_progress.read(home, one.id) for one in runs if one.state == "running"}
    return {run: one for run, one in read.items() if one is not None}
