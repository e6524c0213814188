"""The page of a policy: everything from its registration and its run, nothing of this machine."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
from huggingface_hub import ModelCard

from houston_daemon.training.policies import policy_card
from houston_daemon.training.policies.policy_files import NamedPolicy
from houston_shared.home import Home
from houston_shared.policy_and_run_files import training_folder
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.store.training_event_bodies import PolicyRegistered

COMMIT = "c" * 40
SNAPSHOT = f"/home/jane/.cache/huggingface/hub/models--acme--base/snapshots/{COMMIT}"
RUN = "sft-20261128-070000-abcd"
MANIFEST: dict[str, Any] = {
    "rows": 12,
    "sources": [{"rollout": "a"}, {"rollout": "b"}],
    "counts": {"unit": "tokens", "sampled": 900, "trained": 700, "untrained": {"mask: human": 200}},
    "verdicts": {"rules": {}, "judges": {}, "people": 3, "counts": {}, "ran": {"r@1": 2},
                 "steps": 40, "unjudged": 37},
}  # fmt: skip


def source(**more: Any) -> NamedPolicy:
    """A policy as the registry has it."""
    registered = PolicyRegistered(
        **{
            "by": "person:jane", "name": "policy@2", "kind": "lora", "base": SNAPSHOT,
            "base_hash": "b" * 64, "base_origin": f"acme/base@{COMMIT}", "hash": "h",
            "parent": "policy@1", "run": RUN, "rank": 16, "version": "0.1.0",
            "recipe": {"base": SNAPSHOT, "learning_rate": 2e-4, "accelerate": "/home/jane/a.yaml",
                       "upsample": {"react": 7}},
            "metrics": {"loss_mean_last_10": 0.4321},
        } | more
    )  # fmt: skip
    row = PolicyRow(
        name="policy@2", family="policy", number=2, kind="lora", base=SNAPSHOT, base_hash="b" * 64,
        hash="h", folder="policy@2", parent="policy@1", run=RUN, manifest="", seq=1, created_at=1,
    )  # fmt: skip
    return NamedPolicy(row, Path("/p"), Path(SNAPSHOT), msgspec.to_builtins(registered))


def card_of(home: Home, policy: NamedPolicy, kind: str = "lora") -> ModelCard:
    lineage = policy_card.public_lineage(policy, {"adapter_model.safetensors": "f" * 64}, kind)
    return ModelCard(policy_card.policy_card(home, lineage))


def test_it_says_base_recipe_rows_figures_and_version(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = training_folder(home) / RUN
    folder.mkdir(parents=True)
    raw = json.dumps(MANIFEST).encode()
    (folder / "manifest.json").write_bytes(raw)
    card = card_of(home, source(manifest=hashlib.sha256(raw).hexdigest()))
    assert card.data.to_dict() == {
        "base_model": "acme/base", "base_model_relation": "adapter", "library_name": "peft",
        "pipeline_tag": "text-generation", "tags": ["houston", "lora"],
    }  # fmt: skip
    for words in (
        "LoRA adapter of rank 16, trained with Houston 0.1.0",
        f"acme/base@{COMMIT}",
        RUN,
        "12 rows of 2 rollouts; 700 of 900 sampled tokens are trained.",
        "nobody judged 37 (92 %)",
        "not trained: 200 tokens, mask: human",
        "| learning_rate | `0.0002` |",
        "| upsample.react | `7` |",
        "| loss_mean_last_10 | `0.4321` |",
        f"| adapter_model.safetensors | `{'f' * 64}` |",
    ):
        assert words in card.text
    assert "jane" not in card.text and "/home" not in card.text


def test_rows_of_other_data_are_not_told(tmp_path: Path) -> None:
    """The run's folder may have been used again: only the manifest that was registered counts."""
    home = Home(tmp_path)
    folder = training_folder(home) / RUN
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(json.dumps(MANIFEST).encode())
    assert "## Rows" not in card_of(home, source(manifest="0" * 64)).text


def test_a_version_of_reinforcement_learning_has_the_recipe_of_its_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = training_folder(home) / "dapo-1"
    folder.mkdir(parents=True)
    recipe = {"recipe": {"group_size": 8, "base": SNAPSHOT}}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    card = card_of(home, source(run="", recipe={}, note="dapo-1, update 5"))
    assert "| group_size | `8` |" in card.text and "dapo-1, update 5" in card.text


def test_a_base_from_a_folder_is_named_without_its_place(tmp_path: Path) -> None:
    card = card_of(Home(tmp_path), source(base="/home/jane/models/own", base_origin="", recipe={}))
    assert card.data.base_model is None
    assert "from `own`" in card.text and "b" * 64 in card.text and "/home" not in card.text
