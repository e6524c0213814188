"""A process reward model in memory: reads texts of decisions, returns scores from 0 to 1.

The model is transformers' sequence classification with one label. Texts are scored in batches of
similar length, padded on the right. If a text is longer than the model reads, its beginning is left
out, because the decision is at the end. `prompts.decision_text` writes the texts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from houston_shared.errors import HoustonError

TEXTS_PER_BATCH = 8
LONGEST_TEXT = 2_048
"""Tokens that are read of a text at most, also where the model could read more."""
TRAINED_LENGTH = "houston_longest_text"
"""Where a model's configuration says how long the texts were that it was trained on."""


class ProcessRewardScorer:
    """`score` gives each text its number."""

    def __init__(self, model: Any, tokenizer: Any, device: str) -> None:
        """model: with one label. tokenizer: with a token to pad with."""
        self._model = model.to(device).eval()
        self._tokenizer = tokenizer
        self._device = device
        self._longest = longest_text(model.config)

    def score(self, texts: Sequence[str]) -> list[float]:
        """The worth of each decision, clipped to [0, 1], in the order of `texts`."""
        encoded = [encode_text(self._tokenizer, text, self._longest) for text in texts]
        order = sorted(range(len(texts)), key=lambda number: len(encoded[number]))
        scores = [0.0] * len(texts)
        for first in range(0, len(order), TEXTS_PER_BATCH):
            batch = order[first : first + TEXTS_PER_BATCH]
            padded = self._tokenizer.pad(
                {"input_ids": [encoded[number] for number in batch]},
                padding_side="right",
                return_tensors="pt",
            ).to(self._device)
            with torch.inference_mode():
                logits = self._model(
                    input_ids=padded["input_ids"], attention_mask=padded["attention_mask"]
                ).logits
            for number, value in zip(batch, logits[:, 0].float().clamp(0, 1).tolist(), strict=True):
                scores[number] = value
        return scores


def load_scorer(folder: Path, device: str = "auto") -> ProcessRewardScorer:
    """The model in `folder`, ready on a device; `auto` takes a GPU where there is one. On the
    CPU it computes in float32, which is faster there than what the files may hold.

    Raises HoustonError for a folder whose model has not exactly one label.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    config = AutoConfig.from_pretrained(folder)
    if config.num_labels != 1:
        raise HoustonError(
            f"{folder} holds no process reward model: it has {config.num_labels} labels, not one."
        )
    tokenizer = load_tokenizer(folder)
    config.pad_token_id = tokenizer.pad_token_id
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, config=config, dtype=torch.float32 if device == "cpu" else "auto"
    )
    return ProcessRewardScorer(model, tokenizer, device)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model, with a token to pad with."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def longest_text(config: Any, wanted: int = 0) -> int:
    """Most tokens of a text: as a model was trained, or `wanted`; never more than its window."""
    trained = int(getattr(config, TRAINED_LENGTH, 0) or LONGEST_TEXT)
    text = config.get_text_config()
    window = int(getattr(text, "max_position_embeddings", 0) or LONGEST_TEXT)
    return min(wanted or trained, window)


def encode_text(tokenizer: Any, text: str, longest: int) -> list[int]:
    """Ids of a text; of a longer one the beginning is left out, since its decision is at the
    end."""
    ids: list[int] = tokenizer(text)["input_ids"][-longest:]
    return ids
