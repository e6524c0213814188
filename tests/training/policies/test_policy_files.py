"""Files of a policy: what counts as one, what engines take it, and a folder that is whole or not
there."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.policies import policy_files
from houston_shared import policy_and_run_files
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.training_event_bodies import PolicyRegistered

SAID = PolicyRegistered(by="", name="p@2", kind="lora", base="b", base_hash="b", hash="h")
ENGINES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "plain": ({"r": 16}, ("embedded", "token", "vllm")),
    "as large as ours takes": ({"r": 64}, ("embedded", "token", "vllm")),
    "too large for vLLM": ({"r": 128}, ("embedded",)),
    "a layer is too large": ({"r": 8, "rank_pattern": {"q_proj": 96}}, ("embedded",)),
    "whole modules beside it": ({"r": 8, "modules_to_save": ["lm_head"]}, ("embedded",)),
    "DoRA": ({"r": 8, "use_dora": True}, ("embedded",)),
    "with biases": ({"r": 8, "bias": "lora_only"}, ("embedded",)),
}


def adapter(folder: Path, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **config}))
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folder


@pytest.mark.parametrize("name", ENGINES)
def test_which_engines_take_an_adapter(tmp_path: Path, name: str) -> None:
    config, engines = ENGINES[name]
    weights = policy_files.find_weights(adapter(tmp_path / "a", **config))
    assert (weights.kind, weights.engines) == ("lora", engines)


def test_what_a_killed_process_has_begun_is_removed(tmp_path: Path) -> None:
    """And what another one is writing just now is not."""
    policies = tmp_path / "policies"
    ended = subprocess.Popen(["true"])
    ended.wait()
    unfinished = [policies / f".p@2.{pid}.new" for pid in (ended.pid, os.getppid())]
    for folder in unfinished:
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"half")
    policy_files.place_files(adapter(tmp_path / "a", r=8).iterdir(), policies / "p@3", SAID)
    assert {path.name for path in policies.iterdir()} == {"p@3", unfinished[1].name}


def test_what_is_no_policy_is_said(tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match="neither an adapter"):
        policy_files.find_weights(tmp_path)
    with pytest.raises(HoustonError, match="of the kind 'IA3'"):
        policy_files.find_weights(adapter(tmp_path / "a", peft_type="IA3"))
    (tmp_path / "a" / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8}')
    (tmp_path / "a" / "adapter_model.safetensors").unlink()
    with pytest.raises(HoustonError, match="holds no adapter_model"):
        policy_files.find_weights(tmp_path / "a")


@pytest.mark.parametrize(
    "text",
    (
        "[]",
        '"LORA"',
        "[" * 100_000,
        '{"peft_type": "LORA", "r": "large"}',
        '{"peft_type": "LORA", "r": 1e400}',
        '{"peft_type": "LORA", "r": -1}',
        '{"peft_type": "LORA", "rank_pattern": [1]}',
        '{"peft_type": "LORA", "rank_pattern": {"q_proj": "large"}}',
    ),
)
def test_a_description_that_is_none_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    folder = adapter(tmp_path / "a")
    (folder / "adapter_config.json").write_text(text)
    with pytest.raises(HoustonError):
        policy_files.find_weights(folder)


def test_a_folder_is_whole_or_not_there_and_belongs_to_who_was_first(tmp_path: Path) -> None:
    source = adapter(tmp_path / "a", r=8)
    target = tmp_path / "policies" / "p@2"
    policy_files.place_files(source.iterdir(), target, SAID)
    assert {file.name for file in target.iterdir()} == {
        *policy_files.ADAPTER_FILES,
        policy_files.LINEAGE_FILE,
    }
    (source / "adapter_model.safetensors").write_bytes(b"others")
    with pytest.raises(FileExistsError):
        policy_files.place_files(source.iterdir(), target, SAID)
    assert (target / "adapter_model.safetensors").read_bytes() == b"weights"
    assert [path.name for path in target.parent.iterdir()] == ["p@2"], "nothing half is left"


def test_a_model_is_known_by_its_content(tmp_path: Path) -> None:
    home, model, other = Home(tmp_path / "home"), tmp_path / "model", tmp_path / "other"
    home.path.mkdir()
    for folder in (model, other):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"w" * 1000)
        (folder / "README.md").write_text(str(folder))
    first = policy_files.model_hash(model, home)
    assert policy_files.model_hash(other, home) == policy_files.model_hash(other) == first
    (other / "model.safetensors").write_bytes(b"w" * 999 + b"x")
    assert policy_files.model_hash(other, home) != first
    assert policy_files.model_hash(model, home) == first
    with pytest.raises(HoustonError, match="no weights"):
        policy_files.model_hash(home.path)


NAMES = {"policy@2": True, "a.b-c@10": True, "policy@0": False, "policy": False, "../x@2": False,
         "@2": False, "policy@2@3": False, "-a@2": False, "policy@02": False}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_policies(name: str) -> None:
    if NAMES[name]:
        assert str(policy_and_run_files.parse_policy_name(name)) == name
    else:
        with pytest.raises(HoustonError):
            policy_and_run_files.parse_policy_name(name)
