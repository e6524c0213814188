"""The roles in which models are asked, in one table: what each is, and what follows from it.

Every sample of the ledger says its role (`records.SampleBody`). A new one gets a name in
`SampleRole` and a line in `SAMPLE_ROLES`; nothing else decides by a role's name whether it acts or
makes rows. Roles of people are another matter (`[roles]` of the configuration).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from houston_shared.errors import ConfigurationError

SampleRole = Literal[
    "policy", "summary", "judge", "planner", "executor", "verifier", "critic", "lookahead"
]


class RoleFacts(NamedTuple):
    """What is true of a role wherever it is asked."""

    what: str
    """What it does, for people."""
    acts: bool = False
    """Whether its answer is an action: it is asked with tools, and with reasoning where that is
    on."""
    has_rows: bool = False
    """Whether rows are made of its answers, so that it can be trained."""


SAMPLE_ROLES: Mapping[SampleRole, RoleFacts] = MappingProxyType(
    {
        "policy": RoleFacts("decides each step", acts=True, has_rows=True),
        "planner": RoleFacts("decides each step of a flow", acts=True, has_rows=True),
        "summary": RoleFacts("sums up the older half of a context", has_rows=True),
        "lookahead": RoleFacts("corrects a failed call ahead", acts=True),
        "judge": RoleFacts("judges steps after the fact"),
        "executor": RoleFacts("carries out what a planner said"),
        "verifier": RoleFacts("says whether the question of a flow is answered"),
        "critic": RoleFacts("says what was wrong with a step"),
    }
)
ROW_ROLES: tuple[SampleRole, ...] = tuple(
    role for role, facts in SAMPLE_ROLES.items() if facts.has_rows
)
"""Roles that rows are made of, and that are trained where nobody says otherwise."""

STEP_ROLES: tuple[SampleRole, ...] = tuple(
    role for role, facts in SAMPLE_ROLES.items() if facts.acts and facts.has_rows
)
"""Roles whose answers are steps: a rollout has one of them (`step_role` of its task)."""


def parse_row_roles(names: Sequence[str], effect: str = "") -> tuple[SampleRole, ...]:
    """The roles that are to be trained, in the order of the table.

    effect: what did not happen. Raises ConfigurationError for no name, and for one that is no role
    or that no rows are made of.
    """
    for name in names or ("",):
        if name not in ROW_ROLES:
            facts = SAMPLE_ROLES.get(name)  # type: ignore[call-overload]
            raise ConfigurationError(
                f"No rows are made of the role {name!r}, which {facts.what}."
                if facts
                else f"There is no role {name!r}.",
                effect,
                f"Name roles that are trained: {', '.join(ROW_ROLES)}.",
            )
    return tuple(role for role in ROW_ROLES if role in names)
