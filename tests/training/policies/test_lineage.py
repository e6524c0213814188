"""What a policy comes from: which models, where those lie, whose weights an adapter fits."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.training.policies import policy_constraints
from houston_daemon.training.policies.lineage_texts import lineage_texts
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rl_run_folder import RlRunFolder, RlRunSpec
from houston_daemon.training.rl.rollout_groups import GroupFolder, RolloutGroup
from houston_shared.home import Home
from houston_shared.policy_and_run_files import training_folder
from houston_shared.records import ContextHead
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.support.written_home import WrittenHome


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


def home_with_a_run(path: Path, **registered: Any) -> Home:
    """The run `dapo-1` of three updates, a group each, and `p@2`."""
    written = WrittenHome(path)
    policy_of_it = PolicyRegistered(
        **{"by": "", "name": "p@2", "kind": "lora", "base": "/m", "base_hash": "m", "hash": "a2",
           "folder": "p@2", "parent": "p@1", **registered}
    )  # fmt: skip
    written.event(EventKey(), "policy", policy_of_it)
    folder = RlRunFolder(training_folder(written.home) / "dapo-1")
    folder.write_spec(
        RlRunSpec(run="dapo-1", name="p", parent="", home=str(path), base_hash="m",
                  active_before="", recipe=RlRecipe(suite="word-worlds"))
    )  # fmt: skip
    groups = GroupFolder(folder.path / "groups")
    for update in range(3):
        for split in ("train", "validation"):
            rollout = written.rollout(f"{split}-{update}")
            head = ContextHead(system="s", task=f"{split} {update}?", tools=(), rendered="",
                               token_ids=(), dialect="", tokenizer="")  # fmt: skip
            written.head(rollout, head)
            groups.keep(RolloutGroup(update=update, batch=0, split=split, index=0, policy="base",
                                     rollouts=(rollout,)))  # fmt: skip
    return written.home


class Known(NamedTuple):
    """What is registered of `p@2`, and what is known of its training."""

    registered: dict[str, Any]
    texts: list[str]
    unknown: str = ""


IMPORTED = "p@2: it was imported, and what it was trained on is not known here."
TRAINED: dict[str, Known] = {
    "a version of a run": Known({"note": "dapo-1, update 2"}, ["train 0?", "train 1?"]),
    "its first version": Known({"note": "dapo-1, update 1"}, ["train 0?"]),
    "imported": Known({"note": "from the lab"}, [], IMPORTED),
    "pulled from the hub": Known({"note": "dapo-1, update 2", "origin": "a/b@c"}, [], IMPORTED),
    "of a run that is gone": Known(
        {"note": "dapo-7, update 2"}, [], "dapo-7 is not the folder of a run of reinforcement"
    ),
    "a note that leaves the home": Known({"note": "../dapo-1, update 2"}, [], IMPORTED),
}


@pytest.mark.parametrize("case", TRAINED)
def test_a_version_of_a_run_was_trained_on_what_came_before_it(tmp_path: Path, case: str) -> None:
    known = TRAINED[case]
    home = home_with_a_run(tmp_path / "home", **known.registered)
    with Reader(home) as reader:
        found = lineage_texts(home, reader, ["p@2"])
    assert [text.text for text in found.texts] == known.texts
    assert len(found.unknown) == bool(known.unknown)
    assert known.unknown in "".join(found.unknown)
