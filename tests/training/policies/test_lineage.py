"""What a policy comes from: which models, where those lie, whose weights an adapter fits."""

from pathlib import Path

import pytest

from houston_daemon.training.policies import policy_constraints
from houston_shared.home import Home
from houston_shared.store.policy_queries import PolicyRow


def policy(name: str, kind: str, base: str, base_hash: str, hash: str) -> PolicyRow:
    family, _, number = name.partition("@")
    folder = "" if kind == "base" else name
    return PolicyRow(
        name, family, int(number), kind, base, base_hash, hash, folder, "", "", "", 1, 1
    )  # fmt: skip


KNOWN = {
    row.name: row
    for row in (
        policy("p@1", "base", "/m", "m", "m"),
        policy("p@2", "full", "/m", "m", "f2"),
        policy("p@3", "full", "/h/policies/p@2", "f2", "f3"),
        policy("p@4", "lora", "/h/policies/p@3", "f3", "a4"),
        policy("p@5", "lora", "/m", "m", "a5"),
        policy("q@1", "base", "/h/policies/p@2", "f2", "f2"),
        policy("q@2", "full", "/copy", "f2", "g2"),
        policy("r@2", "full", "/r", "r2", "r2"),
        policy("r@3", "full", "/r", "r4", "r3"),
        policy("r@4", "full", "/r", "r3", "r4"),
    )
}
BASES: dict[str, tuple[str, set[str]]] = {
    "the first round": ("p@2", {"m"}),
    "a round on full weights": ("p@3", {"f2", "m"}),
    "an adapter of the second round": ("p@4", {"f3", "f2", "m"}),
    "an adapter of the base": ("p@5", {"m"}),
    "another family that begins at full weights": ("q@2", {"f2", "m"}),
    "training that changed nothing": ("r@2", {"r2"}),
    "a circle, as nobody can make it": ("r@3", {"r4", "r3"}),
}


@pytest.mark.parametrize("case", BASES)
def test_all_models_that_a_policy_comes_from(case: str) -> None:
    name, expected = BASES[case]
    assert policy_constraints.base_hashes(KNOWN[name], KNOWN.values()) == expected


def test_where_those_models_lie() -> None:
    folders = policy_constraints.base_folders(Home(Path("/h")), {"m", "f2"}, KNOWN.values())
    assert folders == {"/m", "/h/policies/p@2", "/copy"}


def test_whose_weights_an_adapter_fits() -> None:
    under = {
        name: policy_constraints.full_weights_under(row, KNOWN.values())
        for name, row in KNOWN.items()
    }
    assert {name: row.name for name, row in under.items() if row} == {"p@4": "p@3"}
