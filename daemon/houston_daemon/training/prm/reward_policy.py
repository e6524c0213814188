"""Which process reward model is meant, and whether this machine can score with it.

Reads the home's policies and their files; it imports no torch, so that `doctor` may ask too.
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from houston_daemon.engines.local_model import INSTALL_LOCAL_HINT
from houston_daemon.training.policies.policy_files import require_policy_files
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.store import policy_queries
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.store.store_reader import Reader

SCORER_PACKAGES = ("torch", "transformers")
REWARD_KIND = "reward"
"""Kind of a policy that scores decisions and samples nothing."""
_NOT_SCORED = "Decisions are not scored."


class RewardPolicy(NamedTuple):
    """A process reward model with its files."""

    name: str
    """`prm@2`."""
    folder: Path


def find_reward_policy(
    home: Home, reader: Reader, name: str, setting: str = "review.process_reward"
) -> RewardPolicy:
    """The model called `name`, or the newest of that family where no number is given. setting:
    the setting that names it.

    Raises ConfigurationError for none and for a policy of another kind, and HoustonError where its
    files are not those that were registered.
    """
    policies = reader.run(policy_queries.list_policies())
    named = [row for row in policies if name in (row.name, row.family)]
    models = [row for row in named if row.kind == REWARD_KIND]
    if not models:
        raise ConfigurationError(
            _why_none(setting, name, named), _NOT_SCORED, "houston policy list"
        )
    newest = models[-1]
    require_policy_files(home, newest)
    return RewardPolicy(newest.name, policies_folder(home) / newest.folder)


def _why_none(setting: str, name: str, named: list[PolicyRow]) -> str:
    if not named:
        return f"`{setting}` names {name!r}, and there is no such policy."
    return (
        f"`{setting}` names {name!r}, which is not a process reward model:"
        f" {named[-1].name} is of the kind {named[-1].kind}."
    )


def require_scorer_packages() -> None:
    """Raise HoustonError where what scores is not installed; nothing is imported."""
    lacking = [name for name in SCORER_PACKAGES if importlib.util.find_spec(name) is None]
    if lacking:
        raise HoustonError(
            f"A process reward model needs the extra `local`: {', '.join(lacking)} are not"
            " installed.",
            _NOT_SCORED,
            INSTALL_LOCAL_HINT,
        )
