"""Measures what critiques of ended attempts gain: each is tried once, in a refinement.

A repeated call finds the refinements that were started before. It asks no critic.
"""

import hashlib
from collections.abc import Sequence
from statistics import fmean

from houston_daemon.review.critic.refinements import RefinementText, refinement_specs
from houston_daemon.service.rollout_end_wait import wait_until_ended
from houston_daemon.training.echo.sampled_critiques import CriticisedAttempt
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import send_with_retry
from houston_shared.control_messages import StartRollouts
from houston_shared.critic_gain import critique_gain, unit_score
from houston_shared.records import RolloutSpec
from houston_shared.store.store_reader import Reader


def try_critiques(
    loaded: LoadedConfiguration, name: str, criticised: Sequence[CriticisedAttempt]
) -> dict[str, list[float]]:
    """The scores of each attempt's finished refinements, as shares of the full score, in the order
    of its usable critiques. A refinement that failed or was cancelled is left out: it says nothing
    about the critique. name: of this trial; the same name finds the same refinements.

    Raises HoustonError where they cannot be started.
    """
    started: dict[str, tuple[str, ...]] = {}
    for attempt in criticised:
        critiques = [RefinementText(critique.text, attempt.critic) for critique in attempt.usable]
        if critiques:
            with Reader(loaded.home) as reader:
                specs = reader.run(refinement_specs(attempt.rollout, critiques))
            key = hashlib.sha256(f"{name}/{attempt.rollout}".encode()).hexdigest()
            started[attempt.rollout] = _start(loaded, key[:32], specs)
    every = [rollout for rollouts in started.values() for rollout in rollouts]
    rows = wait_until_ended(loaded.home, every, lambda rows: None)
    return {
        attempt.rollout: [
            unit_score(rows[rollout].last_score)
            for rollout in started.get(attempt.rollout, ())
            if rows[rollout].state == "finished"
        ]
        for attempt in criticised
    }


def mean_gains(
    criticised: Sequence[CriticisedAttempt], scores: dict[str, list[float]]
) -> dict[str, float]:
    """By attempt the mean gain of its refinements; 0 where the critic said nothing. An attempt is
    left out where none of its refinements came to its end."""
    return {
        attempt.rollout: fmean(
            [critique_gain(attempt.score, after) for after in scores[attempt.rollout]] or [0.0]
        )
        for attempt in criticised
        if scores[attempt.rollout] or not attempt.usable
    }


def _start(
    loaded: LoadedConfiguration, request: str, specs: Sequence[RolloutSpec]
) -> tuple[str, ...]:
    answer = send_with_retry(
        loaded.home,
        StartRollouts(request=request, specs=tuple(specs)),
        "They may have been queued.",
        "houston rollout list",
    )
    return tuple(answer.rollouts)
