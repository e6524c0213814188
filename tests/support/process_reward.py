"""A process reward model for tests: two layers, random weights, one number for a text."""

import os
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers import LlamaForSequenceClassification as RegressionHead

from houston_daemon.training.policies.policy_files import hash_files
from houston_shared import wire
from houston_shared.home import Home
from houston_shared.store.training_event_bodies import PolicyRegistered
from tests.support.recorder_client import Person
from tests.training.sft import tiny


class RegressionModel:
    """What a scorer does, in a few lines: a text at a time, clipped to what a score is."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    def score(self, texts: Sequence[str]) -> list[float]:
        with torch.no_grad():
            values = [
                self._model(**self._tokenizer(text, return_tensors="pt")).logits.item()
                for text in texts
            ]
        return [min(1.0, max(0.0, value)) for value in values]


def save_reward_model(folder: Path, seed: int = 7) -> Path:
    """A model that says many different things, most of them between 0 and 1."""
    torch.manual_seed(seed)
    config = tiny.config(num_labels=1, problem_type="regression", max_position_embeddings=4096)
    model = RegressionHead(config)
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.mul_(4) if parameter.dim() > 1 else None
        model.score.weight.mul_(8)
    model.save_pretrained(folder)
    tiny.save_tokenizer(folder)
    return folder


def register_reward_model(home: Home, person: Person, number: int = 2, seed: int = 7) -> str:
    """A model of the home, registered; its name."""
    name = f"prm@{number}"
    folder = save_reward_model(home.path / "policies" / name, seed)
    files = hash_files(folder.iterdir())
    (folder / "lineage.json").write_text("{}")
    policy = PolicyRegistered(
        by="", name=name, kind="reward", base="/models/base", base_hash="b", hash=name, folder=name,
        files=files,
    )  # fmt: skip
    answer = person.ask(wire.RegisterPolicy(request=name, policy=policy))
    assert isinstance(answer, wire.RequestStored), answer
    return name
