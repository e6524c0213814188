"""Which policy the model's engine serves, and which one rollouts really sampled with."""

from collections.abc import Sequence

from houston_daemon.training.experiment.own_home import Spoiled
from houston_daemon.training.experiment.run import MODEL, Run
from houston_shared.policy_names import BASE
from houston_shared.store.queries.rollouts import Rollout


def activate(run: Run, policy: str) -> None:
    """Have new rollouts of the model sample with `policy`. Raises HoustonError where it fails."""
    words = ("policy", "activate", policy, "--engine", MODEL)
    run.ground.run(*words, "--wait", f"{run.seconds:.0f}", seconds=run.seconds + 60)


def check(ended: Sequence[Rollout], policy: str) -> None:
    """Refuse rollouts that sampled with another policy ("" for the base). Raises Spoiled."""
    if other := [one for one in ended if one.policy != policy]:
        wrong = f"it sampled with {other[0].policy or BASE}, not {policy or BASE}"
        raise Spoiled(len(other), len(ended), other[0].id, wrong)
