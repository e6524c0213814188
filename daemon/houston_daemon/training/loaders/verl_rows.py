"""Houston's rows for verl: token ids, and which of them are trained, as the export says them.

verl's own datasets render messages through a chat template and train every answer. Here nothing is
rendered: ids and masks are the file's. For SFT, name this file and class in verl's configuration:

    data.custom_cls.path=DIR/verl_rows.py data.custom_cls.name=TokenRows
    data.train_files=DIR/data.jsonl data.max_length=LONGEST

For reinforcement learning `read_updates` makes a `DataProto` of each update, for `update_actor`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset


def read_rows(files: Any) -> list[dict[str, Any]]:
    """Rows of one data file or several, JSON Lines or parquet, in their order."""
    rows: list[dict[str, Any]] = []
    for file in [files] if isinstance(files, str | Path) else list(files):
        if str(file).endswith(".parquet"):
            import pyarrow.parquet as pq

            rows += pq.read_table(file).to_pylist()
        else:
            rows += map(json.loads, Path(file).read_bytes().splitlines())
    return rows


class TokenRows(Dataset):  # type: ignore[misc]  # verl's hook wants one of torch
    """Rows of `houston export --format verl-sft`, in the form of verl's `MultiTurnSFTDataset`.

    A row longer than `data.max_length` raises ValueError: a row that is cut would end in the middle
    of an answer.
    """

    def __init__(
        self,
        parquet_files: Any,
        tokenizer: Any,
        config: Any,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        """Of these `data` settings are read: `pad_mode` (`no_padding` or `right`), `max_length`.

        tokenizer: says which id pads. max_samples: take the first rows only; -1 takes all.
        """
        rows = read_rows(parquet_files)
        self.rows = rows[:max_samples] if max_samples > 0 else rows
        self.pad_mode = config.get("pad_mode", "no_padding")
        self.max_length = int(config.get("max_length", 1024))
        pad = getattr(tokenizer, "pad_token_id", None)
        self.pad = 0 if pad is None else pad
        longest = max((len(row["input_ids"]) for row in self.rows), default=0)
        if longest > self.max_length:
            raise ValueError(
                f"The longest row has {longest} tokens, data.max_length is {self.max_length}:"
                f" set data.max_length={longest}"
            )
        if self.pad_mode not in ("no_padding", "right"):
            raise ValueError(f"data.pad_mode is {self.pad_mode!r}, not no_padding or right")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self.rows[index]
        ids = torch.tensor(row["input_ids"], dtype=torch.long)
        item = {
            "input_ids": ids,
            "position_ids": torch.arange(len(ids), dtype=torch.long),
            "loss_mask": torch.tensor(row["loss_mask"], dtype=torch.long),
        }
        if self.pad_mode == "no_padding":
            return item
        item["attention_mask"] = torch.ones_like(ids)
        fill = self.max_length - len(ids)
        return {
            name: torch.nn.functional.pad(
                values, (0, fill), value=self.pad if name == "input_ids" else 0
            )
            for name, values in item.items()
        }


_BY_TOKEN = {
    "response_mask": torch.long,
    "rollout_log_probs": torch.float32,
    "advantages": torch.float32,
    "returns": torch.float32,
}


def read_updates(files: Any, pad: int) -> Iterator[tuple[int, Any]]:
    """Rows of `houston export --format verl-rl`: number of each update, and its `DataProto`.

    pad: the id that fills rows up (the tokenizer's `pad_token_id`).
    """
    updates: dict[int, list[dict[str, Any]]] = {}
    for row in read_rows(files):
        updates.setdefault(row["update"], []).append(row)
    for update in sorted(updates):
        yield update, make_batch(updates[update], pad)


def make_batch(rows: list[dict[str, Any]], pad: int) -> Any:
    """A `DataProto` as verl's agent loop makes it: prompts padded on the left, responses on the
    right; (rows, tokens) each.

    `old_log_probs` is not in it: `actor.compute_log_prob` makes it with the policy as it is. Who
    trains on the sampling policy's copies `rollout_log_probs` there.
    """
    import numpy as np
    from verl import DataProto

    prompt = max(len(row["prompts"]) for row in rows)
    response = max(len(row["responses"]) for row in rows)

    def left(values: list[int], fill: int) -> list[int]:
        return [fill] * (prompt - len(values)) + list(values)

    def right(values: list[Any], fill: float) -> list[Any]:
        return list(values) + [fill] * (response - len(values))

    tensors = {
        "prompts": torch.tensor([left(row["prompts"], pad) for row in rows]),
        "responses": torch.tensor([right(row["responses"], pad) for row in rows]),
        "attention_mask": torch.tensor(
            [
                left([1] * len(row["prompts"]), 0) + right([1] * len(row["responses"]), 0)
                for row in rows
            ]
        ),
    }
    tensors["input_ids"] = torch.cat([tensors["prompts"], tensors["responses"]], dim=1)
    tensors["position_ids"] = (tensors["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
    for name, dtype in _BY_TOKEN.items():
        tensors[name] = torch.tensor([right(row[name], 0) for row in rows], dtype=dtype)
    tensors["token_level_scores"] = torch.zeros_like(tensors["advantages"])
    for number, row in enumerate(rows):
        tensors["token_level_scores"][number, len(row["responses"]) - 1] = row["reward"]
    named = {
        name: np.array([row[name] for row in rows], dtype=object)
        for name in ("uid", "row", "rollout", "policies")
    }
    return DataProto.from_dict(tensors=tensors, non_tensors=named)
